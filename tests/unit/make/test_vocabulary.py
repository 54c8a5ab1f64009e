from pathlib import Path

import pytest

from cloze.errors import InputError
from cloze.make.vocabulary import vocabulary
from cloze.text.tokenizer import Tokenizer
from cloze.train.callbacks import Callback
from helpers import Mentions, raises

ROWS = [{"id": 1, "text": "the cat sat on the mat"}, {"id": 2, "text": "größe 北京"}] * 20


def test_a_vocabulary_is_learned_from_rows_and_saved(tmp_path: Path) -> None:
    made = vocabulary([ROWS], out=tmp_path / "v", size=100)
    again = Tokenizer.load(tmp_path / "v")
    assert again.encode("the cat").ids == made.encode("the cat").ids
    assert "[UNK]" not in made.encode("größe 北京").tokens


def test_nothing_is_written_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    vocabulary([ROWS], size=100)
    assert not list(tmp_path.iterdir())


def test_a_taken_place_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    def never() -> object:
        pytest.fail("the text was read")
        yield

    (tmp_path / "file").touch()
    with raises(InputError, "exists", fix="force=True"):
        vocabulary(never(), out=tmp_path)


def test_progress_tells_how_much_was_read() -> None:
    seen: list[tuple[str, int, int | None]] = []
    many = ("ä" * 100 for _ in range(10_000))

    class Watch(Callback):
        def on_progress(self, stage: str, done: int, total: int | None) -> None:
            seen.append((stage, done, total))

    vocabulary(many, kind="char", size=100, progress=False, callbacks=[Watch()])
    assert seen == [("texts counted", 10_000, None)]


def test_rows_that_cannot_be_read_are_handed_over() -> None:
    errors: list[InputError] = []
    vocabulary([[*ROWS, {"text": None}]], size=100, on_error=errors.append)
    assert [error.problem for error in errors] == [Mentions("<list>:41: ", "None")]


def test_accents_and_ideographs_are_as_asked() -> None:
    kept = vocabulary([ROWS], size=100, lowercase=True, strip_accents=False)
    assert kept.encode("Ä").ids == kept.encode("ä").ids != kept.encode("a").ids
    texts = [["北京 北京 北京"]]
    assert vocabulary(texts, kind="word", size=20).encode("北京").tokens[1:-1] == ["北", "京"]
    whole = vocabulary(texts, kind="word", size=20, chinese=False)
    assert whole.encode("北京").tokens[1:-1] == ["北京"]
