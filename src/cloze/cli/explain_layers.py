"""The options of the views of layers: ablation, patching, layers, cka, probe (see `explain.py`)."""

from typing import Annotated

import typer

from cloze.cli.common import TextColumn

Pair = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Second text of a pair (encoders only).")
]
Target = Annotated[
    str | None,
    typer.Option(
        metavar="WORD|LABEL", help="Output that is explained (default: what the model predicts)."
    ),
]
TargetText = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT", help="The translation (translators only; default: the greedy one)."
    ),
]
Metric = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="What changes: logit, log_probability or probability of the output.",
        show_default=True,
    ),
]


def ablation(
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="The text, unless --data is given.")
    ] = None,
    *,
    pair: Pair = None,
    target: Target = None,
    target_text: TargetText = None,
    parts: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What is removed: heads, sublayers (attention, feed-forward, block) or all.",
            show_default=True,
        ),
    ] = "all",
    method: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Replace a part with zero, or with its mean over all tokens.",
            show_default=True,
        ),
    ] = "zero",
    metric: Metric = "log_probability",
    data: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Average the change over the texts of this file."),
    ] = None,
    max_texts: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of texts of --data (default 200).")
    ] = 200,
    text_column: TextColumn = None,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Seed of the tokens of --data that are masked.")
    ] = 0,
) -> None:
    """Show how the output changes if a head, a sublayer or a whole block is removed."""


def patching(
    *,
    pair: Pair = None,
    from_text: Annotated[
        str, typer.Option(metavar="TEXT", help="Text from which parts are taken.")
    ],
    from_pair: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Second text of --from-text (default: that of --pair)."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="WORD|LABEL",
            help="Output that is measured (default: what is predicted for --from-text).",
        ),
    ] = None,
    parts: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What is replaced: heads, or at each token blocks, attention, cross_attention or "
            "ffn; or all.",
            show_default=True,
        ),
    ] = "all",
    metric: Metric = "log_probability",
) -> None:
    """Show how the output changes if parts are taken from a run on another text."""


def layers(
    *,
    pair: Pair = None,
    candidates: Annotated[
        str,
        typer.Option(
            metavar="WORDS",
            help="Show the ranks of these comma-separated tokens or labels (default: the three "
            "best).",
        ),
    ] = "",
    top: Annotated[
        int, typer.Option(metavar="K", help="Number of predictions for each layer (default 5).")
    ] = 5,
    generate: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Number of tokens that a language model adds to the text (default 0); their ranks "
            "are shown.",
        ),
    ] = 0,
    target_text: TargetText = None,
) -> None:
    """Show what the model would predict after each layer, and the ranks of candidates."""


def cka(
    text: Annotated[
        str, typer.Argument(metavar="DATA", help="File or folder of texts, one per line or row.")
    ],
    *,
    other_model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Compare with the layers of this model (default: those of the first).",
        ),
    ] = None,
    estimator: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="minibatch (unbiased, any number of texts) or exact (up to 20,000 words).",
            show_default=True,
        ),
    ] = "minibatch",
    batch_size: Annotated[
        int, typer.Option(metavar="N", help="Number of words of a minibatch (default 512).")
    ] = 512,
    max_texts: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of texts (default 2000).")
    ] = 2000,
    text_column: TextColumn = None,
) -> None:
    """Show how similar the layers of a model are to each other, or to those of another model."""


def probe(
    text: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="Tagged sentences (CoNLL-U, CoNLL, JSON), or senses: NAME.data.txt with "
            "NAME.gold.txt.",
        ),
    ],
    *,
    test: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Data to test on (default: a fifth of the sentences)."),
    ] = None,
    tag_column: Annotated[
        str | None,
        typer.Option(metavar="NAME|N", help="Column of the tags (default: upos, or the last)."),
    ] = None,
    max_train: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of words to train on (default 5000).")
    ] = 5000,
    max_test: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of words to test on (default 2000).")
    ] = 2000,
    c: Annotated[
        float,
        typer.Option(
            "--c", metavar="C", help="Inverse strength of the L2 regularization (default 1)."
        ),
    ] = 1.0,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of random choices.")] = 0,
) -> None:
    """Show how well a linear classifier predicts labels of words from each layer."""
