"""Predictions as a file: one row for each example, in their order.

| ending | holds |
|---|---|
| .jsonl | everything, an object to an example, which names its file and line |
| .tsv | the main things, a line to an example; of tags a word to a line, as conlleval reads it |
| .json | answers alone: {id: text}, as SQuAD's own script reads it |
"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cloze.errors import InputError
from cloze.files import PathLike, check_output_path, write_text
from cloze.tasks.evaluation import Evaluation

ENDINGS = (".jsonl", ".tsv", ".json")
COLUMNS = ("file", "line", "gold", "predicted", "score", "text", "pair")


def predictions_file(path: PathLike, *, force: bool = False) -> Path:
    """A place for predictions, if its ending says what to write there."""
    if Path(path).suffix not in ENDINGS:
        raise InputError(
            f"{path}: predictions are not written to such a file",
            fix=f"end its name in one of {', '.join(ENDINGS)}",
        )
    return check_output_path(path, force, file=True)


def write_predictions(made: Evaluation, path: PathLike, *, force: bool = False) -> Path:
    """All predictions of an evaluation, whole or not at all."""
    place = predictions_file(path, force=force)
    if place.suffix == ".json":
        return write_text(place, _by_id(made))
    rows = _objects(made) if place.suffix == ".jsonl" else _table(made)
    return write_text(place, "".join(f"{row}\n" for row in rows))


def _objects(made: Evaluation) -> Iterator[str]:
    judged = made.result
    sides = zip(judged.examples, judged.gold, judged.predictions, strict=True)
    for example, gold, prediction in sides:
        origin = asdict(example.origin)
        yield json.dumps(
            {
                **({} if origin["id"] is None else {"id": origin["id"]}),
                "file": origin["file"],
                "line": origin["line"],
                **_asked(made.kind, example),
                "gold": gold,
                "predicted": _predicted(made.kind, prediction),
            },
            ensure_ascii=False,
        )


def _predicted(kind: str, prediction: Any) -> dict[str, Any]:  # noqa: ANN401
    """All of it; a word that was never read has no score, which tells it from a certain O."""
    found = asdict(prediction)
    if kind == "tag":
        found["scores"] = [score or None for score in found["scores"]]
    return found


def _asked(kind: str, example: Any) -> dict[str, Any]:  # noqa: ANN401
    """What the model was asked; contexts, which many questions share, are left to the data."""
    names = {"answer": ("question",), "choose": ("text", "question", "options")}
    found = {name: getattr(example, name, None) for name in names.get(kind, ("text", "pair"))}
    return {name: value for name, value in found.items() if value is not None}


def _table(made: Evaluation) -> Iterator[str]:
    if made.kind == "tag":
        yield from _words(made)
        return
    yield "\t".join(COLUMNS)
    judged = made.result
    for example, gold, said, one in zip(
        judged.examples, judged.gold, judged.predicted, judged.predictions, strict=True
    ):
        asked = _asked(made.kind, example)
        cells = (
            example.origin.file,
            example.origin.line,
            " / ".join(dict.fromkeys(gold)) if made.kind == "answer" else gold,
            said,
            one.probability if made.kind == "answer" else one.score,
            asked.get("text", asked.get("question", "")),
            asked.get("pair", ""),
        )
        yield "\t".join(_cell(cell) for cell in cells)


def _words(made: Evaluation) -> Iterator[str]:
    judged = made.result
    for example, gold, said in zip(judged.examples, judged.gold, judged.predicted, strict=True):
        for (start, end), right, told in zip(example.words, gold, said, strict=True):
            # conlleval parts columns by white space, and a word may hold some
            yield f"{'_'.join(example.text[start:end].split())}\t{right}\t{told}"
        yield ""


def _cell(value: object) -> str:
    """A tab or a line break would make another cell."""
    return f"{value:.6g}" if isinstance(value, float) else " ".join(str(value).split())


def _by_id(made: Evaluation) -> str:
    if made.kind != "answer":
        raise InputError(
            "only answers are written as {id: text}", fix="use a file that ends in .jsonl or .tsv"
        )
    judged = made.result
    found: dict[str, str] = {}
    for example, said in zip(judged.examples, judged.predicted, strict=True):
        name = example.origin.id
        if name is None or name in found:
            what = "it has no id" if name is None else f"the id {name!r} stands there twice"
            raise InputError(
                f"{example.origin}: {what}", fix="use a file that ends in .jsonl: it needs none"
            )
        found[name] = said
    return json.dumps(found, ensure_ascii=False) + "\n"
