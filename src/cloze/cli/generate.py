"""`cloze generate`: a text goes on."""

from typing import TYPE_CHECKING, Annotated

import typer

from cloze.cli.common import (
    Column,
    Device,
    Dtype,
    Files,
    Json,
    ModelFolder,
    Quiet,
    Seed,
    Texts,
    read_inputs,
)
from cloze.cli.outcomes import print_line
from cloze.errors import InputError

if TYPE_CHECKING:
    from cloze.tasks.generate import Generation


def generate(
    model: ModelFolder,
    texts: Texts = None,
    *,
    length: Annotated[int, typer.Option(metavar="N", help="Tokens to write, at most.")] = 50,
    samples: Annotated[int, typer.Option(metavar="N", help="Continuations of each text.")] = 1,
    temperature: Annotated[
        float, typer.Option(metavar="X", help="Below 1 the likely is likelier; 0: greedy.")
    ] = 1.0,
    top_k: Annotated[
        int | None, typer.Option(metavar="K", help="Draw among the K likeliest.")
    ] = None,
    top_p: Annotated[
        float, typer.Option(metavar="P", help="Draw among the likeliest that together have P.")
    ] = 1.0,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always the likeliest.")] = False,
    stop: Annotated[
        bool, typer.Option("--stop/--no-stop", help="End where the model ends a sentence.")
    ] = True,
    files: Files = None,
    column: Column = None,
    seed: Seed = 0,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Continue a text with a language model."""
    if greedy:
        _check_greedy(temperature, top_k, top_p)
    inputs = read_inputs(texts, files, column)

    from cloze.checkpoint.load import load
    from cloze.tasks.generate import generate

    opened = load(model, device=device, dtype=dtype, quiet=quiet)
    for row in inputs:
        found = generate(
            opened,
            row.text,
            length=length,
            samples=samples,
            temperature=0.0 if greedy else temperature,
            top_k=top_k,
            top_p=top_p,
            stop=stop,
            seed=seed,
        )
        if as_json:
            print_line({"text": row.text}, {"continuations": [_plain(one) for one in found]})
        else:
            print(*(one.full_text for one in found), sep="\n")


def _plain(one: "Generation") -> dict[str, object]:
    return {
        "continuation": one.continuation,
        "tokens": one.tokens,
        "log_probability": one.log_probability,
        "finished": one.finished,
        "full_text": one.full_text,
    }


def _check_greedy(temperature: float, top_k: int | None, top_p: float) -> None:
    """Refuse choices of a draw where nothing is drawn; temperature 0 says the same."""
    chosen = {
        "temperature": temperature not in (0.0, 1.0),
        "top-k": top_k is not None,
        "top-p": top_p != 1.0,
    }
    for name in (name for name, said in chosen.items() if said):
        raise InputError(
            f"there is no {name} to choose for --greedy, which draws nothing",
            fix=f"leave out --greedy or --{name}",
        )
