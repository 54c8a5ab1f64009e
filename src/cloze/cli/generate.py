"""`cloze generate`: continue texts with a language model."""

import sys
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.common import (
    Database,
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
    is_piped,
    read_inputs,
)
from cloze.cli.format import print_generate, print_json_lines, print_music, print_stream
from cloze.cli.outcomes import Outcomes, ignore_truncation
from cloze.decode.config import GenerationOptions, check_stop_strings
from cloze.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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
    stop_strings: Annotated[
        list[str] | None,
        typer.Option(
            "--stop-string",
            metavar="TEXT",
            help="End before the first occurrence of this text in the continuation; may be "
            "repeated.",
        ),
    ] = None,
    include_stop_string: Annotated[
        bool, typer.Option("--include-stop-string", help="End after the stop string instead.")
    ] = False,
    stream: Annotated[
        bool | None,
        typer.Option(
            "--stream/--no-stream",
            help="Print the continuation while it is generated (default: on a terminal, for one "
            "sample of one text).",
        ),
    ] = None,
    midi: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Music: write the events as a MIDI file, instead of printing them."
        ),
    ] = None,
    piano_roll: Annotated[
        str | None, typer.Option(metavar="FILE", help="Music: draw the notes as an SVG file.")
    ] = None,
    database: Database = None,
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
    """Continue a text with a language model; without a text, generate one."""
    if greedy:
        _check_greedy(options)
        options["temperature"] = 0.0
    GenerationOptions(**options)  # it is checked before the model is loaded
    check_stop_strings(stop_strings or (), include_stop_string=include_stop_string)
    outcomes = Outcomes("texts", skip_bad=False)
    if not texts and not files and not is_piped():
        texts = [""]
    inputs = read_inputs(texts, files, text_column)
    first = list(islice(inputs, 2))
    is_single = len(first) == 1 and samples == 1 and "beam" not in options
    is_music = midi is not None or piano_roll is not None
    _check_single(is_single and not as_json, stream=bool(stream), is_music=is_music)
    if stream is None:
        stream = is_single and not is_music and not as_json and sys.stdout.isatty()

    from cloze.checkpoint.load import load

    opened = load(model, device=device, dtype=dtype, quiet=quiet)

    from cloze.tasks.chunk_retriever import add_database
    from cloze.tasks.generate import generate
    from cloze.tasks.inputs import open_language_model

    run: Callable[..., Any] = partial(
        generate,
        add_database(open_language_model(opened, "generate"), database),
        max_new_tokens=max_new_tokens,
        samples=samples,
        **options,
        stop=stop,
        stop_strings=stop_strings or (),
        include_stop_string=include_stop_string,
        truncation=truncation,
        seed=seed,
    )

    def generate_all(rows: "Sequence[Row]", **others: Any) -> "Sequence[Any]":  # noqa: ANN401
        found: Sequence[Any] = run([row.text for row in rows], **others)
        return found

    if stream:
        with ignore_truncation():
            result = print_stream(first[0].text, run(first[0].text, stream=True))
        outcomes.add(truncated_chars=result.truncated_chars)
        outcomes.finish()
        return
    show: Callable[[Any], None] = print_json_lines if as_json else print_generate
    if is_music:
        show = partial(print_music, midi=midi, piano_roll=piano_roll)
    with outcomes.predict(generate_all, chain(first, inputs), ["text"], quiet=quiet) as results:
        show(results)


def _check_single(is_single: bool, *, stream: bool, is_music: bool) -> None:
    """Raise unless there is one sample of one text, where the output is for one."""
    if stream and (is_music or not is_single):
        raise InputError(
            "--stream prints one sample of one text, without --json, --beam and --midi",
            fix="leave out --stream",
        )
    if is_music and not is_single:
        raise InputError(
            "--midi and --piano-roll write one sample of one text, without --json and --beam",
            fix="leave out the other options, and run it once for each file",
        )


def _check_greedy(options: "Mapping[str, Any]") -> None:
    """Reject sampling options with --greedy, which does not sample; temperature 0 is the same."""
    without_effect: dict[str, tuple[float, ...]] = {
        "temperature": (0.0, 1.0),
        "top_k": (),
        "top_p": (1.0,),
        "min_p": (0.0,),
        "beam": (1,),
    }
    for name, value in options.items():
        if name in without_effect and value not in without_effect[name]:
            flag = "--" + name.replace("_", "-")
            raise InputError(
                f"{flag} has no effect with --greedy, which does not sample",
                fix=f"leave out --greedy or {flag}",
            )
