"""`cloze generate`: continue texts with a language model."""

from functools import partial
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
    Seed,
    TextColumn,
    Texts,
    read_inputs,
)
from cloze.cli.format import print_generate, print_json_lines
from cloze.cli.outcomes import Outcomes
from cloze.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloze.data.sources import Row


def generate(
    model: ModelFolder,
    texts: Texts = None,
    *,
    max_new_tokens: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of tokens to generate.")
    ] = 50,
    samples: Annotated[
        int, typer.Option(metavar="N", help="Number of continuations per text.")
    ] = 1,
    greedy: Annotated[
        bool, typer.Option("--greedy", help="Always take the most probable token.")
    ] = False,
    stop: Annotated[
        bool,
        typer.Option(
            "--stop/--no-stop",
            help="Stop where the model generates its end symbol, or never generate that symbol.",
        ),
    ] = True,
    truncation: PromptTruncation = None,
    files: Files = None,
    text_column: TextColumn = None,
    seed: Seed = 0,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
    **options: Any,  # noqa: ANN401
) -> None:
    """Continue a text with a language model."""
    if greedy:
        _check_greedy(options)
        options["temperature"] = 0.0
    outcomes = Outcomes("texts", skip_bad=False)
    inputs = read_inputs(texts, files, text_column)

    from cloze.checkpoint.load import load

    opened = load(model, device=device, dtype=dtype, quiet=quiet)

    from cloze.tasks.generate import generate
    from cloze.tasks.inputs import open_language_model

    run = partial(
        generate,
        open_language_model(opened, "generate"),
        max_new_tokens=max_new_tokens,
        samples=samples,
        **options,
        stop=stop,
        truncation=truncation,
        seed=seed,
    )

    def generate_all(rows: "Sequence[Row]", **others: Any) -> "Sequence[Any]":  # noqa: ANN401
        return run([row.text for row in rows], **others)

    with outcomes.predict(generate_all, inputs, ["text"], quiet=quiet) as results:
        (print_json_lines if as_json else print_generate)(results)


def _check_greedy(options: "Mapping[str, Any]") -> None:
    """Reject sampling options with --greedy, which does not sample; temperature 0 is the same."""
    without_effect = {"temperature": (0.0, 1.0), "top_p": (1.0,)}
    for name, value in options.items():
        if value not in without_effect.get(name, ()):
            flag = "--" + name.replace("_", "-")
            raise InputError(
                f"{flag} has no effect with --greedy, which does not sample",
                fix=f"leave out --greedy or {flag}",
            )
