"""The JSON that each command prints with `--json`, as described in docs/json.md."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from typer.testing import CliRunner

import cloze
from cloze.checkpoint.task import Task
from cloze.cli.app import COMMANDS, app
from grams import text_model
from helpers import tiny_model, word_model
from translators import TEXTS, translator

LONG = "a b c d e f g h i j " * 4
QUESTIONS = [
    {"question": "cat", "context": "the cat sat on a b c"},
    {"question": "a b", "context": "the cats sat."},
]
CHOICES = [
    {"text": "the cat", "question": "c", "options": ["cats", "sat", "a"]},
    {"text": "a b", "question": None, "options": ["c", "d"]},
]


class Case(NamedTuple):
    """A verb as it is asked: each input has a line, which repeats it and has the names of `found`.

    `ways` are options that change how many are found, or how, and no name. `python` gives what
    the names hold: things that have the attributes which the objects of a list have by name.
    """

    model: str
    given: list[str]
    asked: list[dict[str, Any]]
    ways: list[list[str]]
    python: Callable[..., dict[str, Any]]


def classified(model, text, pair):
    found = cloze.classify(model, text, pair)
    return {"labels": [found], "truncated_chars": found.truncated_chars}


def chosen(model, text, question, options):
    found = cloze.choose(model, text, options, question=question)
    return {"choices": [found], "truncated_chars": found.truncated_chars}


def answered(model, question, context):
    found = cloze.answer(model, question, context, top=9)
    return {"answers": found.candidates, "truncated_chars": found.truncated_chars}


def translated(model, source):
    found = cloze.translate(model, source, beam=3)
    return {"translations": found.candidates, "truncated_chars": found.truncated_chars}


def summarized(model, source):
    found = cloze.summarize(model, source, beam=3)
    return {"summaries": found.candidates, "truncated_chars": found.truncated_chars}


def tokens_of(model, text):
    found = cloze.embed(model, text, pooling="none")
    return found.vectors


def of(verb, *names):
    """What a verb's result itself calls by these names."""

    def found(model, **asked):
        result = verb(model, *asked.values())
        return {name: getattr(result, name) for name in names}

    return found


def texts(*some):
    return [{"text": text} for text in some]


def pairs(second):
    return [{"text": text, "pair": second} for text in ("the cat", "a b")]


MASKED = ["a [MASK]", "[MASK] b [MASK]"]
TWO = ["the cat", "a b"]
TOP = [["--top", "1"], ["--top", "3"]]
PIECES = ("ids", "tokens", "offsets", "words", "type_ids")
SCORED = ("tokens", "log_probability", "mean_log_probability", "perplexity", "unknown")
HOW = ["first", "none", "simple", "average"]

CASES = {
    "fill": Case("mlm", MASKED, texts(*MASKED), TOP, of(cloze.fill, "masks", "truncated_chars")),
    "fill, joint": Case(
        "mlm", [*MASKED, "--joint"], texts(*MASKED), TOP,
        of(partial(cloze.fill, joint=True), "masks", "joint", "truncated_chars"),
    ),
    "classify": Case("sequence", TWO, pairs(None), TOP, classified),
    "classify, pairs": Case("sequence", [*TWO, "--pair", "c"], pairs("c"), TOP, classified),
    "tag": Case(
        "token", TWO, texts(*TWO), [["--aggregation", how] for how in HOW],
        of(cloze.tag, "spans", "untagged", "truncated_chars"),
    ),
    "answer": Case("span", ["--file", "questions"], QUESTIONS, TOP, answered),
    "answer, one": Case("span", [*QUESTIONS[0].values()], QUESTIONS[:1], TOP, answered),
    "choose": Case("choice", ["--file", "choices"], CHOICES, [[]], chosen),
    "choose, one": Case("choice", ["a b", "c", "d"], CHOICES[1:], [[]], chosen),
    "embed": Case(
        "bare", TWO, texts(*TWO), [[], ["--pooling", "max"], ["--normalize"]],
        lambda model, text: {"embedding": cloze.embed(model, text), "truncated_chars": 0},
    ),
    "embed, tokens": Case(
        "bare", [*TWO, "--pooling", "none"], texts(*TWO), [[]],
        lambda model, text: {"tokens": tokens_of(model, text), "truncated_chars": 0},
    ),
    "tokenize": Case("bare", TWO, pairs(None), [[]], of(cloze.tokenize, *PIECES)),
    "tokenize, pairs": Case(
        "bare", [*TWO, "--pair", "c"], pairs("c"), [[]], of(cloze.tokenize, *PIECES)
    ),
    "suggest": Case(
        "ngram", TWO, texts(*TWO), TOP,
        of(cloze.suggest, "suggestions", "unk_probability", "truncated_chars"),
    ),
    "generate": Case(
        "ngram", TWO, texts(*TWO), [[], ["--samples", "3"]],
        lambda model, text: {"continuations": cloze.generate(model, text), "truncated_chars": 0},
    ),
    "score": Case(
        "ngram", TWO, texts(*TWO), [[], ["--no-eos"]],
        of(cloze.score, *SCORED),
    ),
    "translate": Case(
        "translator", TEXTS[:2], [{"source": text} for text in TEXTS[:2]],
        [["--beam", "3"], ["--beam", "3", "--n-best", "2"]], translated,
    ),
    "summarize": Case(
        "summarizer", TEXTS[:2], [{"source": text} for text in TEXTS[:2]],
        [["--beam", "3"], ["--beam", "3", "--n-best", "2"]], summarized,
    ),
    "similarity": Case(
        "bare", TWO, [{"text": TWO[0], "pair": TWO[1]}], [[], ["--pooling", "max"]],
        of(cloze.similarity, "score", "truncated_chars"),
    ),
    "similarity, matrix": Case(
        "bare", [*TWO, "c"], [{"texts": [*TWO, "c"], "pairs": [*TWO, "c"]}], [[]],
        of(cloze.similarity, "scores", "truncated_chars"),
    ),
    "rerank": Case(
        "bare", ["the cat", *TWO], [{"query": "the cat"}], TOP,
        lambda model, query: {
            "kind": "cosine", "documents": cloze.rerank(model, query, TWO).documents,
            "truncated_chars": 0,
        },
    ),
    "similar": Case(
        "vectors", ["cat", "dog"], [{"query": "cat"}, {"query": "dog"}], TOP,
        of(cloze.similar, "words"),
    ),
    "similar, a sum": Case(
        "vectors", ["cat", "dog", "--sum"], [{"query": "cat + dog"}], TOP,
        lambda model, query: {"words": cloze.combine(model, query.split(" + ")).words},
    ),
    "similar, odd": Case(
        "vectors", ["cat", "dog", "mat", "--odd"], [{"query": "cat, dog, mat"}], [[]],
        lambda model, query: vars(cloze.odd_one_out(model, query.split(", "))),
    ),
    "similar, between": Case(
        "vectors", ["cat", "dog", "--between"], [{"first": "cat", "second": "dog"}], [[]],
        lambda model, first, second: {"cosine": cloze.cosine(model, first, second)},
    ),
}  # fmt: skip

# verbs that have one object for all they were given, whatever that was
WHOLE = {
    "info", "evaluate", "compare", "glue", "pretrain", "finetune", "distill", "report", "export",
    "demo", "vocabulary", "database", "lineage", "serve", "explain", "index",
}  # fmt: skip


def test_no_verb_is_left_out():
    lines = {name.partition(",")[0] for name in CASES}
    # search takes an index, not a model, and draw writes pictures
    assert lines | WHOLE | {"search", "draw"} == set(COMMANDS)
    assert not lines & WHOLE


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("json")
    table = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    made = {
        "bare": tiny_model(),
        "mlm": tiny_model("mlm"),
        "sequence": tiny_model("sequence", labels=("bad", "fair", "good")),
        "token": tiny_model("token", labels=("O", "B-X", "I-X")),
        "span": tiny_model("span"),
        "choice": tiny_model("choice"),
        "ngram": text_model(3),
        "translator": translator("learned"),
        "summarizer": replace(
            translator("learned"), task=Task(name="summarize", max_target_length=20)
        ),
        "vectors": word_model(words=["cat", "dog", "mat", "sat", "the"], vectors=table),
    }
    for name, model in made.items():
        model.save(folder / name)
    for name, rows in (("questions", QUESTIONS), ("choices", CHOICES)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def lines_of(place, verb, model, *given, code=0):
    files = {name: str(place / f"{name}.jsonl") for name in ("questions", "choices")}
    asked = [verb, str(place / model), *(files.get(one, one) for one in given), "--json"]
    ran = CliRunner().invoke(app, asked)
    assert ran.exit_code == code, ran.output
    return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.mark.parametrize("name", CASES)
def test_a_line_for_each_input_with_the_same_names_whatever_is_found(place, name):
    case, shapes = CASES[name], set()
    for way in case.ways:
        lines = lines_of(place, name.partition(",")[0], case.model, *case.given, *way)
        for line, asked in zip(lines, case.asked, strict=True):
            assert {one: line[one] for one in asked} == asked
            assert (
                line.keys()
                == asked.keys() | case.python(cloze.load(place / case.model), **asked).keys()
            )
        shapes |= {shape for line in lines for shape in shapes_of(line)}
    assert len({path for path, _ in shapes}) == len(shapes), shapes


def shapes_of(found, path=""):
    """The names of every object in a line, by where it stands, however many there are."""
    if isinstance(found, dict):
        yield path, frozenset(found)
        for name, one in found.items():
            yield from shapes_of(one, f"{path}.{name}")
    elif isinstance(found, list):
        for one in found:
            yield from shapes_of(one, path)


@pytest.mark.parametrize("name", CASES)
def test_a_name_means_in_json_what_it_does_in_python(place, name):
    case = CASES[name]
    model = cloze.load(place / case.model)
    lines = lines_of(place, name.partition(",")[0], case.model, *case.given, *case.ways[0])
    for line, asked in zip(lines, case.asked, strict=True):
        for key, value in case.python(model, **asked).items():
            check_same(line[key], value)


def check_same(told, value):
    """Python may have found more: what was asked for here stands first."""
    if isinstance(told, dict) and isinstance(value, np.ndarray):
        check_same(told["embedding"], value)
    elif isinstance(told, dict):
        for name, one in told.items():
            check_same(one, getattr(value, name))
    elif isinstance(told, list):
        assert bool(told) == bool(len(value))
        for one, other in zip(told, value, strict=False):
            check_same(one, other)
    else:
        assert told == (
            pytest.approx(value, rel=1e-5, abs=1e-5) if isinstance(told, float) else value
        )


LONG_SOURCE = " ".join(TEXTS[:9])
ERROR = ["--truncation", "error"]


@pytest.mark.parametrize(
    ("verb", "model", "given", "asked"),
    [
        ("fill", "mlm", ["the cat"], {"text": "the cat"}),
        ("classify", "sequence", [LONG, *ERROR], {"text": LONG, "pair": None}),
        ("tag", "token", [LONG, *ERROR], {"text": LONG}),
        ("choose", "choice", [LONG, "a", "b", *ERROR],
         {"text": LONG, "question": None, "options": ["a", "b"]}),
        ("embed", "bare", [LONG, *ERROR], {"text": LONG}),
        ("embed", "bare", [LONG, "--pooling", "none", *ERROR], {"text": LONG}),
        ("translate", "translator", [LONG_SOURCE, *ERROR], {"source": LONG_SOURCE}),
        ("summarize", "summarizer", [LONG_SOURCE, *ERROR], {"source": LONG_SOURCE}),
        ("similar", "vectors", ["cow"], {"query": "cow"}),
    ],
)  # fmt: skip
def test_what_is_wrong_stands_beside_the_input(place, verb, model, given, asked):
    (line,) = lines_of(place, verb, model, *given, code=1)
    assert line.pop("error")
    assert line == asked


def test_one_object_for_all(place, tmp_path):
    labelled = tmp_path / "dev.tsv"
    labelled.write_text("text\tlabel\na\tbad\nb\tgood\n")
    for verb, *given in (["info"], ["evaluate", str(labelled)], ["compare", str(labelled)]):
        (line,) = lines_of(place, verb, "sequence", *given)
        assert isinstance(line, dict)
