"""Words as they stand between white space, for text that is split already (Penn Treebank)."""

from collections import Counter
from collections.abc import Iterable, Sequence

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from cloze.config import in_range
from cloze.errors import InputError
from cloze.text.counting import MAX_WORDS, Told, count_chunks
from cloze.text.tokenizer import Tokenizer

TOKENS = {"unk": "<unk>", "bos": "<s>", "eos": "</s>"}


def spaced(words: Sequence[str]) -> Tokenizer:
    """The tokenizer of these words, which take the ids after <unk>, <s> and </s>."""
    vocab = {word: number for number, word in enumerate([*TOKENS.values(), *words])}
    backend = Backend(models.WordLevel(vocab, unk_token=TOKENS["unk"]))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=False)  # puts the spaces back
    backend.add_special_tokens(list(TOKENS.values()))
    return Tokenizer(backend, tokens=TOKENS)


def check_words(*, size: int, min_count: int) -> None:
    """Refuse what no vocabulary can be learned by, before any text is read."""
    in_range("size", size, len(TOKENS) + 1, 10_000_000)
    in_range("min_count", min_count, 1, 1 << 40)


def learn_spaced(
    texts: Iterable[str],
    *,
    size: int = 1_000_000,
    min_count: int = 1,
    progress: Told | None = None,
) -> Tokenizer:
    """The words of a text, the most frequent first; <unk> in it is the tokenizer's own."""
    check_words(size=size, min_count=min_count)
    counts: Counter[str] = count_chunks(texts, str.split, max_words=MAX_WORDS, progress=progress)
    if not counts:
        raise InputError("the texts are empty", fix="give some text to learn a vocabulary from")
    ranked = sorted(counts, key=lambda word: (-counts[word], word))  # the same whatever the order
    kept = [word for word in ranked if counts[word] >= min_count and word not in TOKENS.values()]
    return spaced(kept[: size - len(TOKENS)])
