"""Check that code, help, errors and documents use the field's words.

    python tools/check_vocabulary.py      # lists the problems; exit code 1 if there are any

Two rules. A function is named by a verb and its object, never by a bare participle such as `told`
or `_settled`. And some words are not used in texts: private names for known things, and metaphors.
Both have an allow-list in this file, for names that are the field's own.
"""

import ast
import re
import sys
import tokenize
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CODE = ("src/cloze", "bench", "tools")
TEXTS = ("README.md", "CONTRIBUTING.md", "docs/**/*.md", "docs/img/*.py", "recipes/*.toml")
# the changelog is history

IRREGULAR = frozenset(
    """
    begun built caught chosen cut dealt done drawn driven fed felt found forgotten given gone grown
    handed heard held hidden kept known laid led left lent lost made meant met paid put said sent
    set shown shut spent spoken stood struck taken taught thought thrown told turned understood
    written
    """.split()  # noqa: SIM905
)
# functions that are called so in Python, PyTorch or the field: verbs and nouns that look alike
ALLOWED_NAMES = frozenset(
    "cut embed feed finished need put seed set shed speed train_embed".split()  # noqa: SIM905
)

# word or phrase (a regular expression) -> what to write in its place
BANNED = {
    r"unsaid": "default",
    r"\[found\]": "(default: auto-detected)",
    r"may look": "may attend",
    r"commoner": "majority",
    r"commonest": "most frequent",
    r"told apart": "distinguished, classified correctly",
    r"words right": "accuracy",
    r"hidden words": "masked tokens",
    r"sureness": "calibration, confidence",
    r"numbers that are none": "NaN or infinite values",
    r"mend (that|it|the)": "fix",
    r"so often all": "epochs",
    r"how often all": "epochs",
    r"thaw(s|ed|ing)?": "unfreeze",
    r"goes on from|go on from": "continue from, initialize from",
    r"(the|a|this|our) house|rooms? of": "package",
    r"(thin|one|two) doors?": "interface",
    r"the dearest": "the most expensive",
    r"asked aloud|computed aloud": "computed explicitly",
    r"by heart": "memorized",
    r"workshop": "setup",
    r"\bpieces?\b": "token, subword",
    r"\b(places|spots)\b": "positions, indices",
    r"word_factors|lean_cross_entropy|own_words|commoner_label|held_against": "see design",
    r"a judgement|judgements|\bjudged?\b|\bjudges\b": "evaluate, score",
}
# the same, for documents and recipes only: in code some of these are names or have other meanings
BANNED_IN_DOCUMENTS = {
    r"verbs?": "function, command",
    r"doors?|rooms?|houses?|rungs?": "interface, package, step",
    r"(hold|holds|holding|held) (it |them |each |\w+ )?against": "compare with",
    r"peers?": "other libraries",
    r"foretells?|foretold": "predict",
    r"(is|are|was|were) told": "is reported, is given",
    r"(go|goes|going|went) on (with|from|where|left)": "continue",
    r"begins? anew|begun again": "start over",
    r"stretch(es)?|strips?": "span, segment",
    r"shares? of": "fraction of",
    r"blanks\b(?! lines)": "masks, empty lines",
    r"(is|are|was|were|be) cut|cuts? (off|at|away|it|there)": "truncated, split",
    r"\d wide": "hidden size, dimensions",
    r"highest rate|(?<!learning )rate \d|a rate of": "learning rate",
    r"remedy|remedies": "fix",
    r"in (one|another|the same) sitting": "in one session",
    r"thrown away": "discarded",
    r"waves": "sinusoidal positions",
    r"looks? at (each|all|whom|those|the source)": "attend to",
    r"(on|of) documents held out": "held-out documents",
    r"beside (its|the|others|ours)": "compared with",
}
# a line that may hold one of them, by file: the tokenizer library's own words, quotations, titles
ALLOWED_LINES = (
    (r"(README|docs/.*)\.md", r"opened the (door|\[MASK\])|in a room|^room\*"),
    (r"CONTRIBUTING", r"verb \+ object"),
    (r".*", r"byte_?pair|in place|in-place|takes? (its )?place|sentence ?piece|SentencePiece"),
)


def check_code(path: Path) -> Iterator[tuple[int, str]]:
    """The problems of a Python file, which is parsed only if its text may have some."""
    text = path.read_text(encoding="utf-8")
    if any(is_participle(name) for name in re.findall(r"\bdef\s+(\w+)", text)):
        yield from check_names(ast.parse(text))
    if compile_any(tuple(BANNED)).search(text):
        yield from check_words(path, read_texts(path))


def is_participle(function: str) -> bool:
    """Whether a function's name is a bare participle."""
    name = function.strip("_")
    participle = name in IRREGULAR or re.fullmatch(r"[a-z]{2,}ed", name)
    return bool(participle) and name not in ALLOWED_NAMES


def check_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Functions that a bare participle names."""
    for node in ast.walk(tree):
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function and is_participle(node.name):
            yield node.lineno, f"function {node.name!r} is named by a bare participle"


def check_words(
    path: Path, lines: Iterator[tuple[int, str]], banned: Mapping[str, str] = BANNED
) -> Iterator[tuple[int, str]]:
    """Banned words in texts."""
    any_word = compile_any(tuple(banned))
    for number, line in lines:
        if not any_word.search(line):
            continue
        for pattern, better in banned.items():
            found = re.search(delimit(pattern), line, re.I)
            if found and not is_allowed(path, line):
                yield number, f"{found[0]!r}: write {better}"


@cache
def compile_any(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """One expression that finds what any of the patterns finds."""
    return re.compile("|".join(f"(?:{delimit(one)})" for one in patterns), re.I)


def delimit(pattern: str) -> str:
    """The pattern for whole words, if it begins with a letter."""
    return rf"\b(?:{pattern})\b" if pattern[0].isalpha() else pattern


def is_allowed(path: Path, line: str) -> bool:
    """Whether the allow-list lets a line stand."""
    name = path.relative_to(ROOT).as_posix()
    return any(
        re.search(file, name) and re.search(text, line, re.I) for file, text in ALLOWED_LINES
    )


def read_texts(path: Path) -> Iterator[tuple[int, str]]:
    """The strings and comments of a Python file, line by line."""
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type in (tokenize.STRING, tokenize.COMMENT):
                for offset, line in enumerate(token.string.splitlines()):
                    yield token.start[0] + offset, line


def main() -> int:
    problems = []
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path == Path(__file__).resolve():
                continue
            problems += [(path, *one) for one in check_code(path)]
    for pattern in TEXTS:
        for path in sorted(ROOT.glob(pattern)):
            lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
            banned = BANNED | BANNED_IN_DOCUMENTS
            problems += [(path, *one) for one in check_words(path, lines, banned)]
    for path, line, message in problems:
        print(f"{path.relative_to(ROOT)}:{line}: {message}")
    print(f"{len(problems)} problems" if problems else "vocabulary: clean")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
