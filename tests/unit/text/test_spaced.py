"""Words between white space."""

from cloze.errors import ConfigError, InputError
from cloze.text.spaced import learn_spaced, spaced
from cloze.text.tokenizer import Tokenizer
from helpers import raises


def test_words_as_they_stand():
    tokenizer = spaced(["don't", "U.S.", "N"])
    assert tokenizer.ids(["don't  U.S.\tN <unk> x"]) == [[3, 4, 5, 0, 0]]
    assert tokenizer.decode([3, 5], skip_special=False) == "don't N"


def test_learned_by_count_and_then_by_spelling():
    tokenizer = learn_spaced(["b a <unk> b", "c a <s>"], min_count=1)
    assert [tokenizer.piece(id_) for id_ in range(tokenizer.size)] == [
        *("<unk>", "<s>", "</s>", "a", "b", "c")
    ]
    assert learn_spaced(["b a b", "c a"], min_count=2).size == 5
    assert learn_spaced(["b a b", "c"], size=4).size == 4


def test_saved_and_loaded(tmp_path):
    tokenizer = spaced(["a", "b"])
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.ids(["a z b </s>"]) == tokenizer.ids(["a z b </s>"])
    assert again.unk_id == 0


def test_what_is_wrong():
    with raises(InputError, "empty"):
        learn_spaced(["  "])
    with raises(ConfigError, "size", "3"):
        learn_spaced(["a"], size=3)
    with raises(ConfigError, "min_count", "0"):
        learn_spaced(["a"], min_count=0)
