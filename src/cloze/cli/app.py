"""The commands and the order in which `--help` shows them.

To add one, write `cli/VERB.py` with a function of that name, then import it and `add` it here.
"""

from collections.abc import Callable
from typing import Annotated

import typer
from typer.core import TyperCommand

from cloze import __version__
from cloze.cli.answer import answer
from cloze.cli.choose import choose
from cloze.cli.classify import classify
from cloze.cli.common import make_command
from cloze.cli.compare import compare
from cloze.cli.demo import demo
from cloze.cli.distill import distill
from cloze.cli.embed import embed
from cloze.cli.evaluate import evaluate
from cloze.cli.export import export
from cloze.cli.fill import fill
from cloze.cli.finetune import PairedFiles, finetune
from cloze.cli.generate import generate
from cloze.cli.glue import glue
from cloze.cli.info import info
from cloze.cli.pretrain import pretrain
from cloze.cli.report import report
from cloze.cli.similar import similar
from cloze.cli.suggest import suggest
from cloze.cli.tag import tag
from cloze.cli.tokenize import tokenize
from cloze.cli.translate import translate
from cloze.cli.vocabulary import vocabulary

USE, JUDGE, MAKE = "Use", "Judge", "Make"

app = typer.Typer(
    name="cloze",
    help="BERT and everything it grew from and into: train, use, look inside.",
    epilog="`cloze VERB --help` shows a verb's options and an example.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # what a user can cause is a ClozeError; the rest is our bug
    context_settings={"help_option_names": ["-h", "--help"]},
)


def add(
    verb: Callable[..., None], panel: str, *, example: str, cls: type[TyperCommand] = TyperCommand
) -> None:
    """Make a function a command; its docstring is the help."""
    app.command(rich_help_panel=panel, epilog=f"Example: {example}", cls=cls)(make_command(verb))


add(fill, USE, example='cloze fill runs/bert "The capital of France is [MASK]."')
add(similar, USE, example="cloze similar runs/words --analogy man king woman")
add(suggest, USE, example='cloze suggest runs/ngram "thou shalt"')
add(generate, USE, example='cloze generate runs/lstm "the stock market" --top-p 0.9 --samples 3')
add(embed, USE, example="cloze embed runs/bert --file reviews.jsonl --out reviews.npy")
add(classify, USE, example='cloze classify runs/sst2 "A fine film." --top 2')
add(tag, USE, example='cloze tag runs/ner "Ada Lovelace lived in London."')
add(answer, USE, example='cloze answer runs/squad "Who slept?" "The dog slept, the cat did not."')
add(choose, USE, example='cloze choose runs/swag "She opened the door" "and left." "and flew."')
add(translate, USE, example='cloze translate runs/en-de "A dog runs." --beam 4 --best 3')
add(info, USE, example="cloze info runs/bert")
add(tokenize, USE, example='cloze tokenize runs/bert "The cat sat." --pair "It slept."')
add(evaluate, JUDGE, example="cloze evaluate runs/sst2 dev.tsv --report sst2.html")
add(compare, JUDGE, example="cloze compare runs/sst2 runs/small-sst2 dev.tsv")
add(glue, JUDGE, example="cloze glue runs/bert --data glue/ --out runs/glue")
add(pretrain, MAKE, example="cloze pretrain text/*.txt.xz --out runs/my-bert --minutes 30")
add(
    finetune,
    MAKE,
    example="cloze finetune classify runs/bert --train train.tsv --dev dev.tsv --out runs/sst2",
    cls=PairedFiles,
)
add(distill, MAKE, example="cloze distill runs/bert text/*.txt.xz --out runs/small --minutes 30")
add(report, MAKE, example="cloze report runs/my-bert")
add(export, MAKE, example="cloze export arpa runs/ngram ngram.arpa.gz")
add(demo, MAKE, example="cloze demo --out my-demo")
add(vocabulary, MAKE, example="cloze vocabulary texts/ more/*.jsonl.gz --out runs/vocabulary")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cloze {__version__}")
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options that come before the verb."""
