"""The commands, in the order in which `--help` shows them.

To add one, write `cli/NAME.py` with a function of that name, whose docstring is the help, and add a
row here. A command's module is imported when the command is run, or shown by `cloze --help`.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from inspect import signature
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from cloze import __version__

INFERENCE, EVALUATION, TRAINING, TOOLS = "Inference", "Evaluation", "Training", "Tools"

COMMANDS: dict[str, tuple[str, str]] = {
    "fill": (INFERENCE, 'cloze fill runs/bert "The capital of France is [MASK]."'),
    "embed": (INFERENCE, "cloze embed runs/bert --file reviews.jsonl --out reviews.npy"),
    "classify": (INFERENCE, 'cloze classify runs/sst2 "A fine film." --top 2'),
    "tag": (INFERENCE, 'cloze tag runs/ner "Ada Lovelace lived in London."'),
    "answer": (INFERENCE, 'cloze answer runs/squad "Who slept?" "The dog slept, the cat did not."'),
    "choose": (INFERENCE, 'cloze choose runs/swag "She opened the door" "and left." "and flew."'),
    "suggest": (INFERENCE, 'cloze suggest runs/ngram "thou shalt"'),
    "generate": (INFERENCE, 'cloze generate runs/lstm "the stock market" --top-p 0.9 --samples 3'),
    "score": (INFERENCE, 'cloze score cloze-en "The keys are here." "The keys is here."'),
    "translate": (INFERENCE, 'cloze translate runs/en-de "A dog runs." --beam 4 --n-best 3'),
    "summarize": (INFERENCE, "cloze summarize runs/news --file articles.jsonl"),
    "draw": (INFERENCE, 'cloze draw runs/emoji "a red heart" --out heart.png'),
    "similarity": (INFERENCE, 'cloze similarity cloze-en "A cat sat." "A cat is sitting."'),
    "rerank": (INFERENCE, 'cloze rerank cloze-en "Who slept?" "The dog slept." "It rains."'),
    "index": (INFERENCE, "cloze index articles.jsonl --out runs/articles"),
    "search": (INFERENCE, 'cloze search runs/articles "Who slept?" --filter "year>=1990"'),
    "similar": (INFERENCE, "cloze similar runs/words --analogy man king woman"),
    "evaluate": (EVALUATION, "cloze evaluate runs/sst2 dev.tsv --report sst2.html"),
    "compare": (EVALUATION, "cloze compare runs/sst2 runs/small-sst2 dev.tsv"),
    "glue": (EVALUATION, "cloze glue runs/bert --data glue/ --out runs/glue"),
    "lineage": (EVALUATION, "cloze lineage text/ train.tsv --minutes 5 --out runs/lineage"),
    "explain": (EVALUATION, 'cloze explain attention cloze-en "The cat sat." --html cat.html'),
    "demo": (TRAINING, "cloze demo --out my-demo"),
    "pretrain": (TRAINING, "cloze pretrain text/*.txt.xz --out runs/my-bert --minutes 30"),
    "finetune": (
        TRAINING,
        "cloze finetune classify runs/bert --train train.tsv --dev dev.tsv --out runs/sst2",
    ),
    "distill": (TRAINING, "cloze distill runs/bert text/*.txt.xz --out runs/small --minutes 30"),
    "vocabulary": (TRAINING, "cloze vocabulary texts/ more/*.jsonl.gz --out runs/vocabulary"),
    "database": (TRAINING, "cloze database runs/retro text/*.txt --out runs/database"),
    "serve": (TOOLS, "cloze serve cloze-en runs/ner runs/qa --port 8000"),
    "info": (TOOLS, "cloze info runs/bert"),
    "tokenize": (TOOLS, 'cloze tokenize runs/bert "The cat sat." --pair "It slept."'),
    "report": (TOOLS, "cloze report runs/my-bert"),
    "export": (TOOLS, "cloze export arpa runs/ngram ngram.arpa.gz"),
}
"""By name: the section of the help, and an example."""


_SYNONYMS = {  # of commands, in other programs
    "train": "'finetune' (labelled data) or 'pretrain' (text)",
    "fit": "'finetune' (labelled data) or 'pretrain' (text)",
    "predict": "'classify', 'tag', 'answer', 'choose' or 'fill'",
    "encode": "'embed' or 'tokenize'",
    "eval": "'evaluate'",
    "test": "'evaluate'",
    "ner": "'tag'",
    "qa": "'answer'",
    "convert": "'export'",
    "perplexity": "'score' or 'evaluate'",
    "vocab": "'vocabulary'",
    "nearest": "'similar'",
    "retrieve": "'search'",
    "query": "'search'",
    "list": "'info'",
}


class Group(TyperGroup):
    """A command that has commands of its own; its help shows no types."""

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401
        """`--version`, `--help` and the options of shell completion."""
        from cloze.cli.command import simplify_parameter

        found = super().get_params(ctx)
        for one in found:
            simplify_parameter(one)
        return found


@cache
def load_command(name: str, *, to_run: bool = False) -> TyperCommand | TyperGroup:
    """Import a command and make it one that click can run.

    A function with `**options` gets the options of its recipes, which takes time: only if `to_run`,
    not for the list of commands.
    """
    from cloze.cli.command import Command, make_command

    section, example = COMMANDS[name]
    module = import_module(f"cloze.cli.{name}")
    if hasattr(module, "SUBCOMMANDS"):
        return _load_group(name, module)
    function = getattr(module, name)
    if to_run and any(
        one.kind is one.VAR_KEYWORD for one in signature(function).parameters.values()
    ):
        from cloze.cli.flags import add_flags

        function = add_flags(function, name)
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    cls: type[TyperCommand] = getattr(module, "COMMAND_CLASS", Command)
    single.command(name, rich_help_panel=section, epilog=f"Example: {example}", cls=cls)(
        make_command(function)
    )
    command = typer.main.get_command(single)
    assert isinstance(command, TyperCommand)
    return command


def _load_group(name: str, module: Any) -> TyperGroup:  # noqa: ANN401
    """A command that has commands of its own: the functions in `SUBCOMMANDS` of its module."""
    from cloze.cli.command import Command, make_command

    section, example = COMMANDS[name]
    group = typer.Typer(
        cls=Group,
        add_completion=False,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    group.callback(
        help=getattr(module, name).__doc__,
        epilog=f"Example: {example}",
        subcommand_metavar=module.SUBCOMMAND_METAVAR,
    )(_do_nothing)
    for subname, function in module.SUBCOMMANDS.items():
        group.command(subname, cls=Command)(make_command(module.make_subcommand(subname, function)))
    found = typer.main.get_group(group)
    found.name, found.rich_help_panel = name, section
    return found


def _do_nothing() -> None:
    """The group itself has no options."""


class CommandTable(Mapping[str, TyperCommand | TyperGroup]):
    """The commands by name, each imported when it is looked up."""

    def __getitem__(self, name: str) -> TyperCommand | TyperGroup:
        return load_command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class LazyCommands(Group):
    """A group that imports a command when it is used."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 (whatever typer passes)
        super().__init__(**attributes)
        self.commands = CommandTable()  # type: ignore[assignment]  # it is only read

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:  # noqa: ANN401
        """The command that the arguments name, with all of its options."""
        if args and args[0] not in COMMANDS and (meant := _SYNONYMS.get(args[0].lower())):
            ctx.fail(f"No such command '{args[0]}'. Did you mean {meant}?")
        name, command, rest = super().resolve_command(ctx, args)
        return name, load_command(name, to_run=True) if name in COMMANDS else command, rest


app = typer.Typer(
    name="cloze",
    cls=LazyCommands,
    help="Pre-train, fine-tune, evaluate and use BERT and related models on your own text.",
    epilog="`cloze COMMAND --help` shows the options of a command and an example.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # an error that is no ClozeError is a bug: keep its traceback
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cloze {__version__}")
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Options that come before the command."""
