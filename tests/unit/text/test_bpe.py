from collections import Counter
from itertools import pairwise

import pytest

from cloze.text.bpe import learn_merges


def slow_merges(words: dict[str, int], symbols: list[str], room: int, min_count: int, prefix: str):
    """The same rule without any cleverness: count everything again after each merge."""
    spelled = {
        word: [character if n == 0 else prefix + character for n, character in enumerate(word)]
        for word in words
    }
    spelled = {word: parts for word, parts in spelled.items() if set(parts) <= set(symbols)}
    tokens, merges = list(symbols), []
    while len(tokens) < room:
        counts: Counter[tuple[int, int]] = Counter()
        for word, parts in spelled.items():
            for pair in pairwise(parts):
                counts[tokens.index(pair[0]), tokens.index(pair[1])] += words[word]
        best = min(counts, key=lambda pair: (-counts[pair], pair), default=None)
        if best is None or counts[best] < min_count:
            break
        left, right = tokens[best[0]], tokens[best[1]]
        merged = left + right.removeprefix(prefix)
        merges.append((left, right))
        if merged not in tokens:
            tokens.append(merged)
        for parts in spelled.values():
            n = 0
            while n < len(parts) - 1:
                if parts[n : n + 2] == [left, right]:
                    parts[n : n + 2] = [merged]
                n += 1
    return tokens, merges


WORDS = [
    {"low": 5, "lower": 2, "newest": 6, "widest": 3},
    {"aaa": 4, "aaaa": 3, "aaaaa": 2, "baaab": 1},
    {"abab": 3, "ababab": 2, "bababa": 2, "aab": 1},
    {"abc": 5, "abd": 5, "bcd": 5, "xabcd": 2, "cabd": 1},
    {"##a": 5, "#a": 3, "ba": 4},  # a word that begins with the prefix spells a piece twice
    {"x": 9, "": 3},
    {},
]


@pytest.mark.parametrize("prefix", ["", "##"])
@pytest.mark.parametrize("words", WORDS)
def test_merges_equal_those_of_recounting_every_pair(words: dict[str, int], prefix: str):
    letters = sorted({letter for word in words for letter in word})
    symbols = letters + [prefix + letter for letter in letters if prefix]
    found = learn_merges(words, symbols, vocab_size=60, min_count=2, prefix=prefix)
    assert (found.tokens, found.merges) == slow_merges(words, symbols, 60, 2, prefix)


def test_pairs_are_merged_by_frequency_then_by_id():
    found = learn_merges({"ab": 3, "cd": 3, "ef": 4}, list("abcdef"), vocab_size=9, min_count=1)
    assert found.merges == [("e", "f"), ("a", "b"), ("c", "d")]


def test_words_with_unknown_symbols_are_ignored():
    assert learn_merges({"ab€": 9, "cd": 3}, list("abcd"), vocab_size=9, min_count=1).merges == [
        ("c", "d")
    ]


def test_tokens_occur_at_least_min_count_times():
    assert learn_merges({"ab": 3, "cd": 4}, list("abcd"), vocab_size=9, min_count=4).merges == [
        ("c", "d")
    ]


def test_there_are_at_most_vocab_size_tokens():
    assert len(learn_merges({"abcdef": 3}, list("abcdef"), vocab_size=8, min_count=1).tokens) == 8


def test_the_order_of_the_words_does_not_matter():
    words = {"low": 5, "lower": 2, "newest": 6, "widest": 3, "west": 3}
    letters = sorted({letter for word in words for letter in word})
    back = dict(reversed(words.items()))
    assert learn_merges(words, letters, vocab_size=40, min_count=1) == learn_merges(
        back, letters, vocab_size=40, min_count=1
    )


def test_progress_is_reported():
    seen: list[tuple[str, int, int | None]] = []
    word = "".join(map(chr, range(0x4E00, 0x4E00 + 700)))
    learn_merges(
        {word: 2}, list(word), vocab_size=1300, min_count=1, progress=lambda *at: seen.append(at)
    )
    assert seen == [("tokens learned", 1200, 1300)]
