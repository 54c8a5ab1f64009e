from pathlib import Path

from cloze.tasks.tokenize import tokenize
from cloze.text.learn import learn
from cloze.text.tokenizer import Tokenizer


def test_it_takes_a_tokenizer_a_model_a_folder_or_a_file(tmp_path: Path) -> None:
    tokenizer = learn(["the cat sat on the mat"] * 9, size=60)
    tokenizer.save(tmp_path)

    class Model:
        def __init__(self, tokenizer: Tokenizer) -> None:
            self.tokenizer = tokenizer

    want = tokenizer.encode("the cat", "sat")
    for model in (tokenizer, Model(tokenizer), tmp_path, str(tmp_path / "vocab.txt")):
        assert tokenize(model, "the cat", "sat") == want
