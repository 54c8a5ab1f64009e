"""The options of `cloze explain` for neurons, vectors and older models; see `cli/explain.py`."""

from pathlib import Path
from typing import Annotated

import typer

from cloze.cli.common import TextColumn

CORPUS = "Corpus"

Map = Annotated[
    str,
    typer.Option(
        "--map",
        metavar="METHOD",
        help="Map in two dimensions: pca (principal components) or umap (extra umap).",
    ),
]
MapSeed = Annotated[int, typer.Option(min=0, metavar="N", help="Seed of UMAP.")]


def neurons(
    text: Annotated[
        str | None,
        typer.Argument(metavar="[TEXT]", help="The text; not needed with --corpus."),
    ] = None,
    *,
    pair: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Second text of a pair (encoders only).")
    ] = None,
    target_text: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="What the decoder of a translator reads (default: its translation).",
        ),
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(
            metavar="LAYERS",
            help="Layers such as 3, 1,2 or 2-4; -1 is the last; of a translator encoder.1 or "
            "decoder.1 (default: all).",
        ),
    ] = None,
    factors: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Number of factors, or several such as 2-8 (default: 6, fewer for a short text).",
        ),
    ] = None,
    clusters: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Number of clusters, 0 for none (default: 6, fewer for a short text).",
        ),
    ] = None,
    shown: Annotated[
        int, typer.Option(metavar="N", help="Number of neurons in the heat map.")
    ] = 40,
    special_tokens: Annotated[
        bool, typer.Option("--special-tokens", help="Include special tokens such as [CLS].")
    ] = False,
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="Seed of factors and clusters.")
    ] = 0,
    neuron: Annotated[
        list[str] | None,
        typer.Option(metavar="LAYER:NUMBER", help="A neuron, such as 3:120; may be repeated."),
    ] = None,
    corpus: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=CORPUS,
            help="File, folder or glob with texts: show the tokens that excite --neuron most.",
        ),
    ] = None,
    text_column: TextColumn = None,
    top: Annotated[
        int,
        typer.Option(metavar="N", rich_help_panel=CORPUS, help="Number of tokens for each neuron."),
    ] = 20,
) -> None:
    """Show which neurons are active where, their factors and clusters, and what excites them."""


def embeddings(
    text: Annotated[
        list[str],
        typer.Argument(metavar="TEXT…", help="A text, whose tokens are shown, or several texts."),
    ],
    *,
    layers: Annotated[
        str,
        typer.Option(
            metavar="LAYERS",
            help="Layers: embeddings (or 0), numbers such as 3 or 1,6,12, last or all.",
        ),
    ] = "last",
    pooling: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Vector of each of several texts: mean, cls or max (default: the model's own, "
            "else mean).",
        ),
    ] = None,
    map: Map = "pca",
    special_tokens: Annotated[
        bool, typer.Option("--special-tokens", help="Include special tokens such as [CLS].")
    ] = False,
    seed: MapSeed = 0,
) -> None:
    """Show the vectors of tokens or texts as colored cells and as a map."""


def occurrences(
    text: Annotated[
        str, typer.Argument(metavar="FILE", help="File with a text in each line or row.")
    ],
    *,
    word: Annotated[str, typer.Option(metavar="WORD", help="The word to find in the texts.")],
    text_column: TextColumn = None,
    label_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of the word's sense: name or 1-based number (default: no senses).",
        ),
    ] = None,
    layers: Annotated[
        str,
        typer.Option(metavar="LAYERS", help="Layers: numbers such as 0 or 1,6,12, last or all."),
    ] = "all",
    color: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="sense (a map for each layer) or layer (one map of all layers)."
        ),
    ] = "sense",
    map: Map = "pca",
    seed: MapSeed = 0,
    limit: Annotated[int, typer.Option(metavar="N", help="Maximum number of occurrences.")] = 2000,
) -> None:
    """Show the vectors of one word in many sentences, colored by sense or by layer."""


def gates(
    *,
    layers: Annotated[
        str | None,
        typer.Option(
            metavar="LAYERS",
            help="Layers such as 1 or 1,2; of a bidirectional layer also 1.forward (default: all).",
        ),
    ] = None,
    units: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Maximum number of units of a layer: those whose cell state changes most.",
        ),
    ] = 200,
) -> None:
    """Show the gates and cell states of an LSTM or GRU at each token."""


def layer_weights(
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="Not used.", hidden=True)
    ] = None,
) -> None:
    """Show the weights of the layers that a task model on ELMo or another encoder has learned."""


def neighbors(
    text: Annotated[str, typer.Argument(metavar="WORDS", help="Words, separated by spaces.")],
    *,
    top: Annotated[int, typer.Option(metavar="N", help="Number of nearest words.")] = 10,
) -> None:
    """Show the nearest words of words, and how they changed during training."""


def backoff(
    *,
    top: Annotated[int, typer.Option(metavar="N", help="Number of possible next words.")] = 5,
) -> None:
    """Show which n-grams the probability of each word comes from."""
