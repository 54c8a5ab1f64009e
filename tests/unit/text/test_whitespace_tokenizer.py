"""Words between white space."""

from cloze.errors import ConfigError, InputError
from cloze.text.tokenizer import Tokenizer
from cloze.text.tokenizer_training import build_whitespace_tokenizer, train_whitespace_tokenizer
from helpers import raises


def test_words_as_they_stand():
    tokenizer = build_whitespace_tokenizer(["don't", "U.S.", "N"])
    assert tokenizer.encode_ids(["don't  U.S.\tN <unk> x"]) == [[3, 4, 5, 0, 0]]
    assert tokenizer.decode([3, 5], skip_special_tokens=False) == "don't N"


def test_learned_by_count_and_then_by_spelling():
    tokenizer = train_whitespace_tokenizer(["b a <unk> b", "c a <s>"], min_count=1)
    assert [tokenizer.id_to_token(id_) for id_ in range(tokenizer.vocab_size)] == [
        *("<unk>", "<s>", "</s>", "a", "b", "c")
    ]
    assert train_whitespace_tokenizer(["b a b", "c a"], min_count=2).vocab_size == 5
    assert train_whitespace_tokenizer(["b a b", "c"], vocab_size=4).vocab_size == 4


def test_saved_and_loaded(tmp_path):
    tokenizer = build_whitespace_tokenizer(["a", "b"])
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.encode_ids(["a z b </s>"]) == tokenizer.encode_ids(["a z b </s>"])
    assert again.unk_id == 0


def test_what_is_wrong():
    with raises(InputError, "empty"):
        train_whitespace_tokenizer(["  "])
    with raises(ConfigError, "size", "3"):
        train_whitespace_tokenizer(["a"], vocab_size=3)
    with raises(ConfigError, "min_count", "0"):
        train_whitespace_tokenizer(["a"], min_count=0)
