"""How tags of words spell spans: IOB1, IOB2, BIOES with its other spellings, and plain tags.

IOB1 (Ramshaw, Marcus 1995) writes B- only where a span follows another of its label; IOB2 (Tjong
Kim Sang, Veenstra 1999) where any span begins; BIOES also marks the last word and the only one,
and is called BMES or BILOU where its letters are others.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeAlias

from cloze.config import suggest
from cloze.errors import InputError

Span: TypeAlias = tuple[int, int, str]  # first word, the word after the last, label

OUTSIDE = "O"
SCHEMES = ("IOB1", "IOB2", "BIOES", "plain")
# Other names that people give them.
_CALLED = {"IOB": "IOB1", "BIO": "IOB2", "IOE": "BIOES"} | dict.fromkeys(
    ("IOBES", "BMES", "BMESO", "BMEWO", "BILOU"), "BIOES"
)
_LETTERS: Mapping[str, str] = {
    "B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "U": "S", "W": "S",
}  # fmt: skip


def parse_scheme(name: str) -> str:
    """The scheme of `SCHEMES` that goes by a name, in any case."""
    known = {scheme.upper(): scheme for scheme in SCHEMES} | _CALLED
    if name.upper() not in known:
        raise InputError(f"tag scheme {name!r} is unknown", fix=suggest(name, SCHEMES))
    return known[name.upper()]


def detect_tag_scheme(tags: Iterable[str] | Iterable[Sequence[str]]) -> str:
    """The scheme that tags are written in, those of one sentence or of many.

    Tags are plain, parts of speech say, if most of them but O are not a letter and a label (B-PER).
    A last letter (E, L) or an only one (S, U, W) tells BIOES. Of the two others it is IOB1 if some
    span begins with I- and no B- stands where IOB1 has no need of it. Both are read the same way.
    """
    begins_inside = needless = False
    plain = 0
    letters: set[str] = set()
    for sentence in _sentences(tags):
        before = ("", "")
        for tag in sentence:
            if tag != OUTSIDE:
                plain += -1 if _is_prefixed(tag) else 1
            letter, label = _parts(tag, "IOB2")
            letters.add(letter)
            follows = before[0] != "" and before[1] == label
            begins_inside |= letter == "I" and not follows
            needless |= letter == "B" and not follows
            before = (letter, label)
    if plain > 0:
        return "plain"
    if letters & {"E", "S"}:
        return "BIOES"
    return "IOB1" if begins_inside and not needless else "IOB2"


def tags_to_spans(tags: Sequence[str], scheme: str | None = None) -> list[Span]:
    """The spans that tags spell, in order, as conlleval reads them.  Tjong Kim Sang 2000.

    It takes no sequence for malformed: a span begins at B and S, and at I and E where no span of
    that label goes on; it ends before what begins another, before O, and after E and S. Plain tags
    have a span wherever one tag, but O, goes on.
    """
    how = detect_tag_scheme(tags) if scheme is None else parse_scheme(scheme)
    spans: list[Span] = []
    first, before = 0, ("", "")
    for place, tag in enumerate(chain(tags, [OUTSIDE])):
        letter, label = now = _parts(tag, how)
        goes_on = letter in {"I", "E"} and before[0] in {"B", "I"} and before[1] == label
        if before[0] and not goes_on:
            spans.append((first, place, before[1]))
        if not goes_on:
            first = place
        before = now
    return spans


def spans_to_tags(spans: Iterable[Span], count: int) -> tuple[str, ...]:
    """The IOB2 tags of `count` words, the opposite of `spans_of`."""
    tags = [OUTSIDE] * count
    for first, last, label in spans:
        if not 0 <= first < last <= count:
            raise InputError(
                f"there is no span from {first} to {last} in {count:,} words",
                fix="count words from 0; the end is the word behind the last",
            )
        if any(tag != OUTSIDE for tag in tags[first:last]):
            raise InputError(
                f"two spans share a word between {first} and {last}",
                fix="a word has one tag: leave one of the spans out",
            )
        tags[first:last] = [f"B-{label}"] + [f"I-{label}"] * (last - first - 1)
    return tuple(tags)


def convert_to_iob2(tags: Sequence[str], scheme: str | None = None) -> tuple[str, ...]:
    """The same spans in IOB2; plain tags as they are."""
    how = detect_tag_scheme(tags) if scheme is None else parse_scheme(scheme)
    return tuple(tags) if how == "plain" else spans_to_tags(tags_to_spans(tags, how), len(tags))


def _sentences(tags: Iterable[str] | Iterable[Sequence[str]]) -> Iterator[Collection[str]]:
    one: list[str] = []
    for item in tags:
        if isinstance(item, str):
            one.append(item)
        else:
            yield item
    yield one


def _is_prefixed(tag: str) -> bool:
    return tag[:1] in _LETTERS and tag[1:2] == "-" and len(tag) > 2  # noqa: PLR2004 - "B-" and a label


def _parts(tag: str, scheme: str) -> tuple[str, str]:
    """A letter of B I E S ("" outside) and a label; a tag without a letter is all label."""
    if tag == OUTSIDE:
        return "", ""
    if scheme == "plain" or not _is_prefixed(tag):
        return "I", tag
    return _LETTERS[tag[0]], tag[2:]
