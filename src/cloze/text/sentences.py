"""Rule-based sentence splitting for Latin and East Asian text.

A regular expression finds the candidates, so most of a text is never processed in Python; the word
before and the word after each candidate decide whether a sentence ends there.
"""

import re

# Stops that need no space after them: Chinese and Japanese, then Indic, Arabic, Armenian, Ethiopic.
_WIDE = "。！？｡．।॥؟۔։።"
_WIDE_MARKS = frozenset(_WIDE)
_NARROW = ".!?…"
_CLOSING = "\"'”’»)]}」』】》〉）］｝〕"
_OPENING = "\"'“‘«([{¿¡「『【《〈（［｛〔—–-"

# A run of stops with closing quotes and brackets; "[12]" is a citation in encyclopedias.
_CANDIDATE = re.compile(
    rf"([{_NARROW}{_WIDE}]+)([{re.escape(_CLOSING)}]*)(?:\[\d{{1,3}}\])*|\n[^\S\n]*\n"
)
_SPACE = re.compile(r"\s*")
_WORD_BEFORE = re.compile(r"(?:[^\W_]|[.&])+\Z")
_WORD_AFTER = re.compile(rf"[\s{re.escape(_OPENING)}]*([^\W_]*)(.?)", re.DOTALL)
_DOTTED = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}")  # U.S, e.g, Ph.D, z.B
_NUMERAL = re.compile(r"\d|[IVXLC]{2,}\b|[IVXLC]\b(?!\s)")  # a lone "I " is a pronoun
_ENUMERATOR = re.compile(r"\W*(?:\d{1,3}|[A-Za-z]|[ivxIVX]{2,5})\Z")
_LONGEST_ABBREVIATION = 16
_LONGEST_ENUMERATOR = 8
_LONGEST_QUOTATION = 2000


def _split_words(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


# Capitalized, these precede a name and never end a sentence.
_TITLES = _split_words(
    "mr mrs ms mx dr drs prof st ste gen col maj capt lt sgt cpl pvt cmdr adm rev revd hon pres "
    "gov sen rep messrs mme mlle mgr fr br sr dom don hr herr frau mt ft supt insp det atty"
)
# These are always followed by more of the sentence.
_LEADING = _split_words("e.g eg i.e ie cf viz vs v ca approx esp resp incl z.b d.h u.a p.ej op")
# These do not end a sentence if a numeral follows: No. 5, p. 12, Vol. III, Jan. 3.
_BEFORE_NUMERALS = _split_words(
    "no nos nr p pp vol vols fig figs tab ch chap sec sect art para pt bk eq eqs ex ver c n ll "
    "jan feb mar apr jun jul aug sep sept oct nov dec"
)
# These may end a sentence; the next word decides.
_EITHER = _split_words(
    "inc ltd co corp plc llc bros jr esq etc al est ave blvd rd dept univ assn gmbh phd ed eds "
    "trans cont max min avg tel ext lb lbs oz"
)
# Words that start an English sentence far more often than a name.
_STARTERS = _split_words(
    "the a an this that these those he she it they we you i his her its their our my in on at by "
    "for from with as after before when while if although though since because however but and or "
    "so yet then there here what who where why how not no all some many most both each one two "
    "another such thus therefore moreover meanwhile nevertheless during despite according"
)
_CONTINUING = tuple("，、,；;：:~～")
_QUOTING = ("と", "って")  # 「…。」と: the Japanese sentence continues after the quotation


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, without surrounding white space."""
    return [text[start:end] for start, end in find_sentence_spans(text)]


def find_sentence_spans(text: str) -> list[tuple[int, int]]:
    """Character spans of the sentences: ordered, disjoint, covering all but white space."""
    spans = []
    start = _skip_space(text, 0)
    for stop in _CANDIDATE.finditer(text):
        if stop.end() > start and (end := _find_sentence_end(text, start, stop)):
            spans.append((start, end))
            start = _skip_space(text, end)
    if start < len(text):
        spans.append((start, len(text.rstrip())))
    return spans


def _skip_space(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return found.end() if found else position


def _find_sentence_end(text: str, start: int, stop: re.Match[str]) -> int:
    """The end of the sentence if this candidate ends it, else 0."""
    marks, end = stop[1], stop.end()
    if marks is None:  # a blank line always ends a sentence
        return start + len(text[start : stop.start()].rstrip())
    if not _WIDE_MARKS.isdisjoint(marks):
        return _find_wide_end(text, start, stop)
    if end == len(text) or text[end].isspace():
        return end if _is_narrow_end(text, start, stop) else 0
    # Chinese typed with Latin marks: 真的?我不信!
    return end if marks[0] in "!?" and text[end] >= "\u2e80" and text[end].isalnum() else 0


def _find_wide_end(text: str, start: int, stop: re.Match[str]) -> int:
    marks, closing = stop.groups()
    if '"' in closing:
        # Opening and closing quotes look alike: after an even number, this one opens a sentence.
        quote = stop.start(2) + closing.index('"')
        if text.count('"', max(start, quote - _LONGEST_QUOTATION), quote) % 2 == 0:
            return quote
    after = text[stop.end() : stop.end() + 2]
    continues = (
        after.startswith(_CONTINUING)
        or (closing and after.startswith(_QUOTING))
        or (marks[-1] == "．" and after[:1].isdigit())
    )
    return 0 if continues else stop.end()


def _is_narrow_end(text: str, start: int, stop: re.Match[str]) -> bool:
    after = _WORD_AFTER.match(text, stop.end())
    word, following = after.groups() if after else ("", "")
    if word[:1].islower() or (not word and following and following in _NARROW):
        return False
    if text[stop.start()] != "." or text.startswith("..", stop.start()):
        return True
    here = stop.start()
    if here - start < _LONGEST_ENUMERATOR and _ENUMERATOR.match(text[start:here]):
        return False  # "1. Introduction"
    found = _WORD_BEFORE.search(text, max(start, here - _LONGEST_ABBREVIATION), here)
    return found is None or _may_end_sentence(found.group(), word, following)


def _may_end_sentence(before: str, word: str, following: str) -> bool:
    """Whether "before. word" may be two sentences; `following` is the character after it."""
    lower = before.lower()
    if lower in _LEADING or (lower in _TITLES and before[0].isupper()):
        return False
    if lower in _BEFORE_NUMERALS and _NUMERAL.match(word + following):
        return False
    initial = len(before) == 1 and before.isupper()
    if initial or lower in _EITHER or _DOTTED.fullmatch(before):
        return word.lower() in _STARTERS and following != "."
    return True
