"""Tag schemes: how word tags encode spans (IOB1, IOB2, BIOES and its variants), and plain tags.

IOB1 (Ramshaw, Marcus 1995) uses B- only where a span follows another with the same label; IOB2
(Tjong Kim Sang, Veenstra 1999) at the start of every span; BIOES also marks the last word of a span
and spans of one word, and is called BMES or BILOU with other letters.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeAlias

from cloze.config import suggest
from cloze.errors import InputError

Span: TypeAlias = tuple[int, int, str]  # first word, word after the last, label

OUTSIDE = "O"
SCHEMES = ("IOB1", "IOB2", "BIOES", "plain")
# Other names of the schemes.
_ALIASES = {"IOB": "IOB1", "BIO": "IOB2", "IOE": "BIOES"} | dict.fromkeys(
    ("IOBES", "BMES", "BMESO", "BMEWO", "BILOU"), "BIOES"
)
_LETTERS: Mapping[str, str] = {
    "B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "U": "S", "W": "S",
}  # fmt: skip


def parse_scheme(name: str) -> str:
    """The scheme with this name, in any case."""
    known = {scheme.upper(): scheme for scheme in SCHEMES} | _ALIASES
    if name.upper() not in known:
        raise InputError(f"tag scheme {name!r} is unknown", fix=suggest(name, SCHEMES))
    return known[name.upper()]


def detect_tag_scheme(tags: Iterable[str] | Iterable[Sequence[str]]) -> str:
    """Detect the scheme of the tags of one sentence or of many.

    Tags are plain (parts of speech, for example) if most of them, apart from O, do not consist of a
    letter and a label (B-PER). The letters E, L, S, U and W occur in BIOES only. Otherwise it is
    IOB1 if some span begins with I- and no B- is redundant in IOB1, else IOB2; both are decoded the
    same way.
    """
    begins_inside = has_redundant_b = False
    plain = 0
    letters: set[str] = set()
    for sentence in _iterate_sentences(tags):
        before = ("", "")
        for tag in sentence:
            if tag != OUTSIDE:
                plain += -1 if _is_prefixed(tag) else 1
            letter, label = _parse_tag(tag, "IOB2")
            letters.add(letter)
            follows = before[0] != "" and before[1] == label
            begins_inside |= letter == "I" and not follows
            has_redundant_b |= letter == "B" and not follows
            before = (letter, label)
    if plain > 0:
        return "plain"
    if letters & {"E", "S"}:
        return "BIOES"
    return "IOB1" if begins_inside and not has_redundant_b else "IOB2"


def tags_to_spans(tags: Sequence[str], scheme: str | None = None) -> list[Span]:
    """Decode tags into spans, in order, like conlleval.  Tjong Kim Sang 2000.

    Every sequence is valid: a span begins at B and S, and at I and E if no span with that label
    continues; it ends before the next span, before O, and after E and S. Of plain tags, a span is
    a run of equal tags other than O.
    """
    known = detect_tag_scheme(tags) if scheme is None else parse_scheme(scheme)
    spans: list[Span] = []
    first, before = 0, ("", "")
    for index, tag in enumerate(chain(tags, [OUTSIDE])):
        letter, label = current = _parse_tag(tag, known)
        continues = letter in {"I", "E"} and before[0] in {"B", "I"} and before[1] == label
        if before[0] and not continues:
            spans.append((first, index, before[1]))
        if not continues:
            first = index
        before = current
    return spans


def spans_to_tags(spans: Iterable[Span], count: int) -> tuple[str, ...]:
    """Encode spans as the IOB2 tags of `count` words; the inverse of `tags_to_spans`."""
    tags = [OUTSIDE] * count
    for first, last, label in spans:
        if first < 0 or last > count:
            raise InputError(
                f"span {first} to {last} is outside the {count:,} words",
                fix="count words from 0; the end is exclusive",
            )
        if first >= last:
            raise InputError(
                f"span {first} to {last} contains no word",
                fix=f"the end is exclusive: word {first} alone is {first} to {first + 1}",
            )
        if any(tag != OUTSIDE for tag in tags[first:last]):
            raise InputError(
                f"two spans overlap between words {first} and {last}",
                fix="remove one of them: a word has one tag",
            )
        tags[first:last] = [f"B-{label}"] + [f"I-{label}"] * (last - first - 1)
    return tuple(tags)


def convert_to_iob2(tags: Sequence[str], scheme: str | None = None) -> tuple[str, ...]:
    """The same spans in IOB2; plain tags are unchanged."""
    known = detect_tag_scheme(tags) if scheme is None else parse_scheme(scheme)
    return tuple(tags) if known == "plain" else spans_to_tags(tags_to_spans(tags, known), len(tags))


def _iterate_sentences(tags: Iterable[str] | Iterable[Sequence[str]]) -> Iterator[Collection[str]]:
    sentence: list[str] = []
    for item in tags:
        if isinstance(item, str):
            sentence.append(item)
        else:
            yield item
    yield sentence


def _is_prefixed(tag: str) -> bool:
    return tag[:1] in _LETTERS and tag[1:2] == "-" and len(tag) > 2  # noqa: PLR2004 - "B-" and a label


def _parse_tag(tag: str, scheme: str) -> tuple[str, str]:
    """The letter B, I, E or S ("" outside) and the label; a tag without a letter is a label."""
    if tag == OUTSIDE:
        return "", ""
    if scheme == "plain" or not _is_prefixed(tag):
        return "I", tag
    return _LETTERS[tag[0]], tag[2:]
