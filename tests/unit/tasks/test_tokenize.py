from pathlib import Path

from cloze.errors import InputError
from cloze.tasks.tokenize import tokenize
from cloze.text.tokenizer import Tokenizer
from cloze.text.tokenizer_training import train_tokenizer
from helpers import raises


def test_it_takes_a_tokenizer_a_model_a_folder_or_a_file(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(["the cat sat on the mat"] * 9, vocab_size=60)
    tokenizer.save(tmp_path)

    class Model:
        def __init__(self, tokenizer: Tokenizer) -> None:
            self.tokenizer = tokenizer

    want = tokenizer.encode("the cat", "sat")
    for model in (tokenizer, Model(tokenizer), tmp_path, str(tmp_path / "vocab.txt")):
        assert tokenize(model, "the cat", "sat") == want


def test_a_list_gives_a_list() -> None:
    tokenizer = train_tokenizer(["the cat sat on the mat"] * 9, vocab_size=60)
    texts = ["the cat", "", "sat"]
    assert tokenize(tokenizer, texts) == [tokenizer.encode(text) for text in texts]
    assert tokenize(tokenizer, ["the"], ["cat"]) == [tokenizer.encode("the", "cat")]
    with raises(InputError, "3 texts", "1 second text"):
        tokenize(tokenizer, texts, "mat")
