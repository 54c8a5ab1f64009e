import pickle

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, processors

from cloze.errors import ConfigError, InputError
from cloze.text.checks import convert_errors
from cloze.text.tokenizer import Tokenizer
from helpers import SPECIAL, raises, tiny_tokenizer

LETTERS = [*SPECIAL, *"abcdefghij"]


def letters(count: int) -> str:
    return " ".join("abcdefghij"[n % 10] for n in range(count))


def roberta_like() -> Tokenizer:
    """Special tokens in other places: one before, two between, one after."""
    backend = tokenizers.Tokenizer(
        models.WordLevel({token: n for n, token in enumerate(["<s>", "</s>", *"abcdefghij"])}, "a")
    )
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    backend.add_special_tokens(["<s>", "</s>"])
    return Tokenizer(backend, special_tokens={"cls": "<s>", "sep": "</s>"})


def test_roles_have_tokens_and_ids():
    tokenizer = tiny_tokenizer()
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id) == (0, 1, 2)
    assert (tokenizer.sep_id, tokenizer.mask_id, tokenizer.eos_id) == (3, 4, None)
    assert (tokenizer.mask_token, tokenizer.bos_token) == ("[MASK]", None)
    assert tokenizer.special_ids == {0, 1, 2, 3, 4}
    assert (tokenizer.kind, tokenizer.vocab_size, tokenizer.max_length) == ("wordpiece", 25, None)
    assert repr(tokenizer) == "Tokenizer(kind='wordpiece', vocab_size=25, max_length=None)"


def test_a_mask_in_the_text_belongs_to_the_text():
    encoding = tiny_tokenizer().encode("the [MASK] sat")
    assert encoding.tokens == ["[CLS]", "the", "[MASK]", "sat", "[SEP]"]
    assert encoding.words == [None, 0, 1, 2, None]
    assert encoding.special_tokens_mask == [True, False, False, False, True]


def test_a_text_that_is_too_long_is_rejected_without_truncation():
    fixes = ("truncation", "head", "tail", "head+tail", "window")
    with raises(InputError, "11 tokens", "10", fix=fixes):
        tiny_tokenizer().encode(letters(9), max_length=10)


def test_the_error_of_a_batch_names_the_text():
    with raises(InputError, "text 2", "11"):
        tiny_tokenizer().encode_batch(["a", letters(9)], max_length=10)


def test_a_text_of_exactly_max_length_is_not_truncated():
    encoding = tiny_tokenizer().encode(letters(8), max_length=10)
    assert len(encoding) == 10
    assert encoding.num_truncated == (0, 0)
    assert encoding.kept_ranges == ((range(8),), ())


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("head", "[CLS] a b c d e [SEP]"),
        ("tail", "[CLS] f g h i j [SEP]"),
        ("head+tail", "[CLS] a b h i j [SEP]"),
    ],
)
def test_truncation_keeps_special_tokens(policy: str, expected: str):
    encoding = tiny_tokenizer().encode(letters(10), max_length=7, truncation=policy)
    assert " ".join(encoding.tokens) == expected
    assert encoding.num_truncated == (5, 0)
    assert [encoding.offsets[n] for n in (1, 5)] == [
        (2 * (ord(encoding.tokens[n]) - ord("a")), 2 * (ord(encoding.tokens[n]) - ord("a")) + 1)
        for n in (1, 5)
    ]


def test_kept_ranges_of_head_and_tail():
    encoding = tiny_tokenizer().encode(letters(10), max_length=7, truncation="head+tail")
    assert encoding.kept_ranges == ((range(2), range(7, 10)), ())


def test_a_pair_is_truncated_longest_first():
    encoding = tiny_tokenizer().encode("a b", letters(10), max_length=8, truncation="tail")
    assert encoding.tokens == ["[CLS]", "a", "b", "[SEP]", "h", "i", "j", "[SEP]"]
    assert encoding.type_ids == [0, 0, 0, 0, 1, 1, 1, 1]
    assert encoding.num_truncated == (0, 7)
    assert encoding.kept_ranges == ((range(2),), (range(7, 10),))


def test_truncation_works_with_any_template():
    encoding = roberta_like().encode(letters(4), letters(9), max_length=10, truncation="head")
    assert encoding.tokens == ["<s>", "a", "b", "c", "</s>", "</s>", "a", "b", "c", "</s>"]
    assert encoding.sequence_ids == [None, 0, 0, 0, None, None, 1, 1, 1, None]


def test_without_special_tokens_all_of_max_length_is_text():
    encoding = tiny_tokenizer().encode(
        letters(9), max_length=4, truncation="head", add_special_tokens=False
    )
    assert encoding.tokens == ["a", "b", "c", "d"]


def test_a_max_length_without_room_for_text_is_rejected():
    with raises(InputError, "3", "tokens"):
        tiny_tokenizer().encode("a b", "c d", max_length=3, truncation="head")


def test_window_truncation_is_rejected_for_a_single_encoding():
    with raises(ConfigError, "window"):
        tiny_tokenizer().encode(letters(9), max_length=5, truncation="window")


def test_an_unknown_truncation_is_rejected_even_for_short_texts():
    with raises(ConfigError, "middle", fix="head+tail"):
        tiny_tokenizer().encode("a", truncation="middle")


def test_windows_cover_a_text():
    windows = tiny_tokenizer().encode_windows(letters(10), max_length=6, overlap=1)
    assert [" ".join(window.tokens[1:-1]) for window in windows] == [
        "a b c d",
        "d e f g",
        "g h i j",
    ]
    assert [window.kept_ranges[0][0] for window in windows] == [range(4), range(3, 7), range(6, 10)]
    assert [window.num_truncated for window in windows] == [(6, 0)] * 3


def test_windows_of_a_pair_contain_the_whole_question():
    windows = tiny_tokenizer().encode_windows("the cat", letters(5), max_length=8, overlap=1)
    assert [" ".join(window.tokens) for window in windows] == [
        "[CLS] the cat [SEP] a b c [SEP]",
        "[CLS] the cat [SEP] c d e [SEP]",
    ]
    assert windows[1].word_spans(1)[0] == (4, 5)
    assert windows[1].kept_ranges == ((range(2),), (range(2, 5),))


def test_a_short_text_is_one_window():
    (window,) = tiny_tokenizer().encode_windows("a b", max_length=6, overlap=1)
    assert window == tiny_tokenizer().encode("a b")


def test_a_question_that_fills_the_window_is_rejected():
    with raises(InputError, "8", "window"):
        tiny_tokenizer().encode_windows(letters(5), letters(5), max_length=8, overlap=0)


def test_a_batch_equals_single_texts():
    tokenizer = tiny_tokenizer()
    texts, pairs = ["the cat", "cats sat.", ""], ["a", "b c", "abc"]
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_batch(texts, pairs) == list(map(tokenizer.encode, texts, pairs))


def test_encode_ids_equals_the_ids_of_encode():
    tokenizer = tiny_tokenizer()
    texts = ["the cats", "", "猫 sat"]
    assert tokenizer.encode_ids(texts) == [tokenizer.encode(text).ids for text in texts]
    assert tokenizer.encode_ids(["the cats"], add_special_tokens=False) == [
        tokenizer.encode("the cats").ids[1:-1]
    ]
    assert tokenizer.encode_ids([]) == []


def test_id_to_token_and_token_to_id():
    tokenizer = tiny_tokenizer()
    assert tokenizer.token_to_id("##s") == PIECE_S
    assert tokenizer.id_to_token(PIECE_S) == "##s"
    assert tokenizer.token_to_id("nowhere") is None


PIECE_S = tiny_tokenizer().encode("cats").ids[2]


@pytest.mark.parametrize("number", [-1, 25, 10**12])
def test_an_id_outside_the_vocabulary_is_rejected(number: int):
    with raises(InputError, "id", fix="25"):
        tiny_tokenizer().id_to_token(number)


def test_decode():
    tokenizer = tiny_tokenizer()
    ids = tokenizer.encode("the cats, sat.").ids
    assert tokenizer.decode(ids) == "the cats, sat."
    assert tokenizer.decode(ids[:2], skip_special_tokens=False) == "[CLS] the"


def test_invalid_ids_are_rejected():
    with raises(InputError, "ids", fix="25"):
        tiny_tokenizer().decode([-5])


def test_num_special_tokens():
    assert (
        tiny_tokenizer().num_special_tokens(),
        tiny_tokenizer().num_special_tokens(pair=True),
    ) == (2, 3)
    assert roberta_like().num_special_tokens(pair=True) == 4


def test_with_max_length_returns_a_new_tokenizer():
    tokenizer = tiny_tokenizer()
    assert tokenizer.with_max_length(128).max_length == 128
    assert tokenizer.max_length is None
    assert tokenizer.with_max_length(128).encode("the cat") == tokenizer.encode("the cat")


def test_a_tokenizer_can_be_pickled():
    tokenizer = tiny_tokenizer().with_max_length(77)
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.encode("the cats") == tokenizer.encode("the cats")
    assert (copy.max_length, copy.mask_id, copy.kind) == (77, 4, "wordpiece")


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda t: t.encode(5), ("text 1", "int")),
        (lambda t: t.encode("a", b"b"), ("text 1", "bytes")),
        (lambda t: t.encode_batch(["a", None]), ("text 2", "NoneType")),
        (lambda t: t.encode_batch("abc"), ("list", "single")),
        (lambda t: t.encode_ids("abc"), ("list", "single")),
        (lambda t: t.encode_ids(["a", "b\udc00"]), ("text 2", "surrogate", "character 1")),
        (lambda t: t.encode_batch(["a", "b"], ["c"]), ("2 texts", "1 pair")),
    ],
)
def test_invalid_texts_are_rejected(call, problem: str):
    with raises(InputError, problem):
        call(tiny_tokenizer())


def test_a_panic_of_the_library_becomes_an_input_error():
    backend = tiny_tokenizer().backend
    backend.pre_tokenizer = pre_tokenizers.FixedLength(length=0)
    tokenizer = Tokenizer(backend, special_tokens={})
    for call in (tokenizer.encode, lambda text: tokenizer.encode_ids([text])):
        with raises(InputError, "tokenizer"):
            call("the cat")


@pytest.mark.parametrize("signal", [KeyboardInterrupt, SystemExit, MemoryError])
def test_interrupts_are_not_converted(signal: type[BaseException]):
    with pytest.raises(signal), convert_errors(InputError, "swallowed"):
        raise signal
