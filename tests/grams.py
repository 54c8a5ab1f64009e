"""Modified Kneser–Ney by its definition, in exact fractions, to hold the real one against."""

import math
import tempfile
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np

from cloze.checkpoint.model import Model
from cloze.models.configs.ngram import BOS, EOS
from cloze.models.ngram import NGram
from cloze.text.tokenizer_training import build_whitespace_tokenizer
from cloze.train.ngram import estimate_ngram

TEXT = """the cat sat on the mat
the dog sat on the cat
a cat and a dog sat on a mat
the cat and the dog
the cat slept
a dog slept on the mat and the cat sat
the the cat
mat
the dog and the cat sat on the mat
a cat sat on the dog
the dog slept
zebra""".splitlines()


class Reference:
    """p(w | h) of Chen and Goodman 1998, looked up in dictionaries."""

    def __init__(self, sentences, vocab_size, order):
        self.order, self.vocab_size = order, vocab_size
        raw = {n: Counter() for n in range(1, order + 1)}
        for sentence in sentences:
            padded = (BOS, *sentence, EOS)
            for n in raw:
                raw[n].update(padded[i : i + n] for i in range(len(padded) - n + 1))
        self.counts = {}
        for n in raw:
            if n == order:
                self.counts[n] = dict(raw[n])
            else:
                before = Counter(gram[1:] for gram in raw[n + 1])
                self.counts[n] = {
                    gram: raw[n][gram] if gram[0] == BOS else before[gram] for gram in raw[n]
                }
        self.counts[1].pop((BOS,))
        self.discounts = {n: self._discounts(n) for n in raw}

    def _discounts(self, n):
        n1, n2, n3, n4 = (sum(c == k for c in self.counts[n].values()) for k in (1, 2, 3, 4))
        if n1 and n2 and n3:
            y = Fraction(n1, n1 + 2 * n2)
            found = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
            if all(0 < d <= i for i, d in enumerate(found, 1)):
                return found
        return Fraction(1, 2), Fraction(1), Fraction(3, 2)

    def p(self, word, context):
        context = tuple(context)[max(0, len(context) - self.order + 1) :]
        n = len(context) + 1
        lower = Fraction(1, self.vocab_size - 1) if n == 1 else self.p(word, context[1:])
        following = {g[-1]: c for g, c in self.counts[n].items() if g[:-1] == context}
        if not following:
            return lower
        taken = {w: self.discounts[n][min(c, 3) - 1] for w, c in following.items()}
        own = following.get(word, 0) - taken.get(word, 0)
        return (own + sum(taken.values()) * lower) / Fraction(sum(following.values()))


def made(sentences, vocab_size, order, memory=1 << 20) -> NGram:
    """A model whose arrays outlive the folder they were counted in."""
    with tempfile.TemporaryDirectory() as folder:
        return estimate_ngram(
            sentences, vocab_size=vocab_size, order=order, folder=Path(folder), memory=memory
        )


def text_model(order=3, lines=TEXT) -> Model:
    """A small model of words."""
    tokenizer = build_whitespace_tokenizer(
        sorted({word for line in lines for word in line.split()})
    )
    module = made(tokenizer.encode_ids(lines), tokenizer.vocab_size, order)
    return Model(module=module, config=module.config, tokenizer=tokenizer)


def total(model, context) -> float:
    return math.fsum(np.exp(model.next_log_probs(context)))
