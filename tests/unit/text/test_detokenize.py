"""Spaces around punctuation are removed, and the tokens stay the same."""

import pytest

from cloze.text.detokenize import detokenize
from helpers import tiny_tokenizer


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("[MASK] u - 3 ( new ) type .", "[MASK] u-3 (new) type."),
        ("it ' s 97. 0 % , and don ' t !", "it's 97.0%, and don't!"),
        ("the book [MASK] , he said", "the book [MASK], he said"),
        ('he said " so " , twice', 'he said "so", twice'),
        ("$ 3 , 000 in 1990 – 91", "$3,000 in 1990–91"),
        ("a sentence without any", "a sentence without any"),
    ],
)
def test_text_is_written_as_usual(text, want):
    assert detokenize(text) == want
    tokenizer = tiny_tokenizer()
    assert tokenizer.encode(detokenize(text)).ids == tokenizer.encode(text).ids
