"""`cloze explain VIEW`: show how a model reads a text.

To add a view, write a function of its name here, with the options of that view only and a docstring
that is its help, and add it to `SUBCOMMANDS`. Every view also has the arguments and options of
`_shared_options`; one of the same name replaces it. The function itself is not called: all values
are passed to `cloze.explain`.
"""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from cloze.cli import explain_layers, explain_saliency, explain_vectors
from cloze.cli.common import (
    Device,
    Dtype,
    Force,
    Json,
    ModelFolder,
    PairColumn,
    Quiet,
    TextColumn,
)
from cloze.cli.format import print_json, print_text

OUTPUT = "Output"

Pair = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Second text of a pair (encoders only).")
]


def attention(
    *,
    pair: Pair = None,
    target_text: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Translation of the text (default: the model's own)."),
    ] = None,
    layers: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="Include this layer only (repeatable; default: all)."),
    ] = None,
    heads: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="Include this head only (repeatable; default: all)."),
    ] = None,
    layer: Annotated[
        int | None,
        typer.Option(metavar="N", help="Layer that is shown first (default: the middle one)."),
    ] = None,
    head: Annotated[
        int | None,
        typer.Option(metavar="N", help="Only head that is shown first (default: all)."),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(metavar="TOKEN", help="Token or word that is selected first."),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            help="Show how the score of --token and this token is computed, in --layer and --head.",
        ),
    ] = None,
) -> None:
    """Show how much each token attends to each other token, in every layer and head."""


def heads(
    text: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Texts: a file, folder or glob, or - for standard input.",
        ),
    ],
    *,
    patterns: Annotated[
        list[str] | None,
        typer.Option(
            "--pattern", metavar="NAME", help="Show this pattern only (repeatable; default: all)."
        ),
    ] = None,
    text_column: TextColumn = None,
    pair_column: PairColumn = None,
    max_texts: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Number of texts to read (default: all)."),
    ] = None,
) -> None:
    """Rank attention heads by what they attend to in a corpus, such as the previous token."""


def explain() -> None:
    """Show how a model reads a text: attention, saliency, neurons, layers and others."""


SUBCOMMANDS: dict[str, Callable[..., None]] = {
    "attention": attention,
    "heads": heads,
    "saliency": explain_saliency.saliency,
    "neurons": explain_vectors.neurons,
    "ablation": explain_layers.ablation,
    "patching": explain_layers.patching,
    "layers": explain_layers.layers,
    "cka": explain_layers.cka,
    "probe": explain_layers.probe,
    "embeddings": explain_vectors.embeddings,
    "occurrences": explain_vectors.occurrences,
    "gates": explain_vectors.gates,
    "layer_weights": explain_vectors.layer_weights,
    "neighbors": explain_vectors.neighbors,
    "backoff": explain_vectors.backoff,
}
"""The views in the order of the help."""
SUBCOMMAND_METAVAR = "VIEW MODEL TEXT"


def _shared_options(
    model: ModelFolder,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text.")],
    *,
    against: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Show the view of this model beside the first."),
    ] = None,
    against_text: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Show the view of this text beside the first."),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="Write the interactive view to an .html file (default: VIEW.html, without "
            "another output).",
        ),
    ] = None,
    svg: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", rich_help_panel=OUTPUT, help="Write the drawing to an .svg file."
        ),
    ] = None,
    png: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="Write the drawing to a .png file (extra explain).",
        ),
    ] = None,
    force: Force = False,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """The arguments and options that every view has."""


def make_subcommand(view: str, declared: Callable[..., None]) -> Callable[..., None]:
    """The command of a view: the shared parameters, and those that its function declares."""
    shared = inspect.signature(_shared_options, eval_str=True).parameters
    own = inspect.signature(declared, eval_str=True).parameters
    merged = {**shared, **own}

    def command(**given: Any) -> None:  # noqa: ANN401 - whatever the view declares
        options = {name: given[name] for name in own if name not in shared}
        if "files" in options:  # the view also takes many texts
            from cloze.cli.explain_files import print_views, take_file_options

            source = take_file_options(options, given)
            if source is not None:
                print_views(view, options, source, given)
                return
        _show_view(view, options, **{name: given[name] for name in shared})

    command.__doc__ = declared.__doc__
    parameters = sorted(merged.values(), key=lambda one: one.kind)
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def _show_view(
    view: str,
    options: dict[str, Any],
    *,
    model: str,
    text: str,
    against: str | None,
    against_text: str | None,
    html: Path | None,
    svg: Path | None,
    png: Path | None,
    force: bool,
    device: str | None,
    dtype: str,
    as_json: bool,
    quiet: bool,
) -> None:
    """Compute a view, or two side by side, and write it to files or print its values."""
    from cloze.files import check_output_path

    named = {".html": html, ".svg": svg, ".png": png}
    paths = [_check_suffix(path, suffix) for suffix, path in named.items() if path is not None]
    if not paths and not as_json:
        paths = [Path(f"{view}.html")]
    for path in paths:
        check_output_path(path, force, file=True)

    from cloze.checkpoint.load import load
    from cloze.tasks.explain import explain

    opened = load(model, device=device, dtype=dtype, quiet=quiet)
    if against is None and against_text is None:
        found = explain(opened, text, view=view, **options)
    else:
        other = (
            opened if against is None else load(against, device=device, dtype=dtype, quiet=quiet)
        )
        pairs = (opened, text), (other, text if against_text is None else against_text)
        found = explain.compare(*pairs, view=view, **options)
    for path in paths:
        found.save(path)
    if as_json:
        print_json(found.to_dict())
    else:
        print_text("\n".join(map(str, paths)))


def _check_suffix(path: Path, suffix: str) -> Path:
    from cloze.errors import InputError

    if path.suffix.lower() != suffix:
        raise InputError(
            f"{path}: --{suffix[1:]} writes an {suffix} file",
            fix=f"use a name that ends in {suffix}",
        )
    return path
