"""Write predictions to a file: one row per example, in their order.

| suffix | contents |
|---|---|
| .jsonl | all fields: one object per example, with file and line |
| .tsv | the main fields: one line per example; for tags one line per word, in conlleval format |
| .json | answers only: {id: text}, in the format of the official SQuAD script |
"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cloze.errors import InputError
from cloze.files import PathLike, check_output_path, write_text
from cloze.tasks.evaluation import Evaluation

SUFFIXES = (".jsonl", ".tsv", ".json")
INPUTS = {"answer": ("question", "context"), "choose": ("context", "question", "options")}
COLUMNS = ("file", "line", "gold", "predicted", "score", "text", "pair")


def check_predictions_path(path: PathLike, *, force: bool = False) -> Path:
    """Check that predictions can be written to a path."""
    if Path(path).suffix not in SUFFIXES:
        raise InputError(
            f"{path}: predictions cannot be written in this format",
            fix=f"use a file name that ends in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}",
        )
    return check_output_path(path, force, file=True)


def write_predictions(evaluation: Evaluation, path: PathLike, *, force: bool = False) -> Path:
    """Write all predictions of an evaluation to a file."""
    out = check_predictions_path(path, force=force)
    if out.suffix == ".json":
        return write_text(out, _json_by_id(evaluation))
    rows = _json_rows(evaluation) if out.suffix == ".jsonl" else _table_rows(evaluation)
    return write_text(out, "".join(f"{row}\n" for row in rows))


def _json_rows(evaluation: Evaluation) -> Iterator[str]:
    result = evaluation.result
    sides = zip(result.examples, result.gold, result.predictions, strict=True)
    for example, gold, prediction in sides:
        origin = asdict(example.origin)
        yield json.dumps(
            {
                **({} if origin["id"] is None else {"id": origin["id"]}),
                "file": origin["file"],
                "line": origin["line"],
                **_input_fields(evaluation.kind, example),
                "gold": gold,
                "predicted": _prediction_fields(evaluation.kind, prediction),
            },
            ensure_ascii=False,
        )


def _prediction_fields(kind: str, prediction: Any) -> dict[str, Any]:  # noqa: ANN401
    """All fields except the inputs; truncated words have no score."""
    inputs = INPUTS.get(kind, ("text", "pair"))
    found = {name: one for name, one in asdict(prediction).items() if name not in inputs}
    if kind == "tag":
        found["scores"] = [score or None for score in found["scores"]]
    return found


def _input_fields(kind: str, example: Any) -> dict[str, Any]:  # noqa: ANN401
    """The inputs, except contexts, which many questions share."""
    names = {"answer": ("question",), "choose": ("text", "question", "options")}
    found = {name: getattr(example, name, None) for name in names.get(kind, ("text", "pair"))}
    return {name: value for name, value in found.items() if value is not None}


def _table_rows(evaluation: Evaluation) -> Iterator[str]:
    if evaluation.kind == "tag":
        yield from _word_rows(evaluation)
        return
    yield "\t".join(COLUMNS)
    result = evaluation.result
    for example, gold, predicted, one in zip(
        result.examples, result.gold, result.predicted, result.predictions, strict=True
    ):
        inputs = _input_fields(evaluation.kind, example)
        cells = (
            example.origin.file,
            example.origin.line,
            " / ".join(dict.fromkeys(gold)) if evaluation.kind == "answer" else _join(gold),
            _join(predicted),
            one.probability if evaluation.kind == "answer" else one.score,
            inputs.get("text", inputs.get("question", "")),
            inputs.get("pair", ""),
        )
        yield "\t".join(_format_cell(cell) for cell in cells)


def _join(label: object) -> object:
    """Several labels of a text in one cell."""
    return "|".join(label) if isinstance(label, tuple) else label


def _word_rows(evaluation: Evaluation) -> Iterator[str]:
    result = evaluation.result
    for example, gold, predicted in zip(
        result.examples, result.gold, result.predicted, strict=True
    ):
        for (start, end), *tags in zip(example.words, gold, predicted, strict=True):
            # conlleval splits columns at white space, which a word may contain
            word = "_".join(example.text[start:end].split())
            yield "\t".join([word, *tags])
        yield ""


def _format_cell(value: object) -> str:
    """Format a cell, without tabs and line breaks."""
    return f"{value:.6g}" if isinstance(value, float) else " ".join(str(value).split())


def _json_by_id(evaluation: Evaluation) -> str:
    if evaluation.kind != "answer":
        raise InputError(
            "a .json file ({id: text}) can only hold answers to questions",
            fix="use a file name that ends in .jsonl or .tsv",
        )
    result = evaluation.result
    found: dict[str, str] = {}
    for example, predicted in zip(result.examples, result.predicted, strict=True):
        name = example.origin.id
        if name is None or name in found:
            what = "the question has no id" if name is None else f"the id {name!r} occurs twice"
            raise InputError(
                f"{example.origin}: {what}, which a .json file needs",
                fix="use a file name that ends in .jsonl",
            )
        found[name] = predicted
    return json.dumps(found, ensure_ascii=False) + "\n"
