"""`cloze suggest`: the most probable next words."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.common import (
    Device,
    Dtype,
    Files,
    Json,
    ModelFolder,
    PromptTruncation,
    Quiet,
    SkipBad,
    TextColumn,
    Texts,
    print_note,
    read_inputs,
)
from cloze.cli.format import print_json_lines, print_suggest, print_text
from cloze.cli.outcomes import Outcomes
from cloze.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloze.data.sources import Row
    from cloze.models.language import LanguageModel


def suggest(
    model: ModelFolder,
    texts: Texts = None,
    *,
    top: Annotated[int, typer.Option(metavar="N", help="Number of words per text.")] = 10,
    interactive: Annotated[
        bool,
        typer.Option(
            "--interactive",
            help="Number the words and read numbers from standard input: the word is appended to "
            "the text, and the words after it are shown. An empty line ends.",
        ),
    ] = False,
    truncation: PromptTruncation = None,
    files: Files = None,
    text_column: TextColumn = None,
    skip_bad: SkipBad = False,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show the most probable next words of a text, with their probabilities."""
    if interactive:
        _check_interactive(texts, files, as_json)
        texts = texts or [""]
    outcomes = Outcomes("texts", skip_bad=skip_bad)
    inputs = read_inputs(texts, files, text_column, on_error=outcomes.on_error)

    from cloze.checkpoint.load import load
    from cloze.tasks.inputs import open_language_model
    from cloze.tasks.suggest import suggest

    opened = load(model, device=device, dtype=dtype, quiet=quiet)
    language_model = open_language_model(opened, "suggest")

    if interactive:
        (row,) = inputs
        print_text(_choose_words(language_model, row.text, top=top, truncation=truncation))
        return

    def suggest_all(rows: "Sequence[Row]", **options: Any) -> "Sequence[Any]":  # noqa: ANN401
        some = [row.text for row in rows]
        return suggest(language_model, some, top=top, truncation=truncation, **options)

    with outcomes.predict(suggest_all, inputs, ["text"], quiet=quiet) as results:
        (print_json_lines if as_json else print_suggest)(results)


def _check_interactive(
    texts: "Sequence[str] | None", files: "Sequence[str] | None", as_json: bool
) -> None:
    """Reject several texts, texts from standard input, and JSON."""
    given = [f"{len(texts)} texts"] if texts and len(texts) > 1 else []
    given += ["-"] if "-" in (texts or ()) else []
    given += ["--file"] if files else []
    given += ["--json"] if as_json else []
    if given:
        raise InputError(
            f"--interactive shows words after one text, but {given[0]} was given",
            fix="write one text after the model, and leave out --file and --json",
        )


def _choose_words(model: "LanguageModel", text: str, **options: Any) -> str:  # noqa: ANN401
    """The text with the words that are chosen by their numbers, up to an empty line or the end."""
    from cloze.tasks.suggest import append_word, suggest

    while True:
        result = suggest(model, text, **options)
        print_suggest([result], numbered=True)
        chosen = _read_number(len(result.suggestions))
        if chosen is None or result.suggestions[chosen - 1].id == model.eos_id:
            return text
        text = append_word(model, text, result.suggestions[chosen - 1])


def _read_number(most: int) -> int | None:
    """A number from 1 to `most` from standard input, or None at an empty line or its end."""
    while True:
        print("number of a word, or nothing to end: ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        answer = line.strip()
        if not line.endswith("\n"):
            print(file=sys.stderr)
        if not answer:
            return None
        if answer.isdecimal() and 1 <= int(answer) <= most:
            return int(answer)
        print_note(f"{answer!r} is not a number from 1 to {most}")
