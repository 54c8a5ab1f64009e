"""`cloze similar`: nearest words, analogies, odd one out, cosine similarity of two words."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cloze.cli.common import INPUT, Force, Json, SkipBad, check_svg_path, read_inputs
from cloze.cli.format import (
    print_json,
    print_json_lines,
    print_odd_one_out,
    print_similar,
    print_table,
)
from cloze.cli.outcomes import Outcomes
from cloze.errors import InputError

if TYPE_CHECKING:
    from cloze.models.word2vec import WordVectors
    from cloze.tasks.inputs import Failure
    from cloze.tasks.similar import Similar


def similar(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="Folder of word vectors, or file in word2vec, GloVe or fastText format.",
        ),
    ],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORD", help="One or more words; - reads standard input, one word per line."
        ),
    ] = None,
    *,
    top: Annotated[int, typer.Option(metavar="N", help="Number of words to print.")] = 10,
    total: Annotated[
        bool,
        typer.Option("--sum", help="Find the words nearest to the sum of all WORDs, not to each."),
    ] = False,
    minus: Annotated[
        list[str] | None,
        typer.Option(metavar="WORD", help="With --sum: subtract this word; may be repeated."),
    ] = None,
    analogy: Annotated[
        tuple[str, str, str] | None,
        typer.Option(metavar="A B C", help="Complete an analogy: A is to B as C is to …"),
    ] = None,
    product: Annotated[
        bool,
        typer.Option(
            "--product", help="With --sum and --analogy: rank by 3CosMul instead of 3CosAdd."
        ),
    ] = False,
    odd: Annotated[
        bool, typer.Option("--odd", help="Find the word that fits the others least.")
    ] = False,
    between: Annotated[
        bool, typer.Option("--between", help="Print the cosine similarity of two words.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            rich_help_panel=INPUT,
            help="Read only the first N words of a file (default: all).",
        ),
    ] = None,
    no_header: Annotated[
        bool,
        typer.Option(
            "--no-header",
            rich_help_panel=INPUT,
            help="The file has no header line; GloVe files have none (default: auto-detected).",
        ),
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Plot the words in two dimensions (PCA) to an .svg file."
        ),
    ] = None,
    plot_vectors: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Plot the vectors as a heat map to an .svg file."),
    ] = None,
    skip_bad: SkipBad = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Query word vectors: nearest words, sums, analogies, odd one out, cosine similarity."""
    is_sum = bool(total or minus or (product and not analogy))
    if sum((bool(analogy), odd, between, is_sum)) > 1 or (analogy and words):
        raise typer.BadParameter(
            "these cannot be combined: choose one of WORDs, --sum, --analogy, --odd and --between"
        )
    outcomes = Outcomes("words", skip_bad=skip_bad)
    given = _read_words(words, analogy, between, outcomes)

    from cloze.tasks import similar as task

    for path in (plot, plot_vectors):
        check_svg_path(path, force)
    vectors = _load_vectors(model, limit, no_header)
    found: list[Similar | Failure] = []
    if odd:
        result = task.odd_one_out(vectors, given)
        if as_json:
            print_json(result.to_dict())
        else:
            print_odd_one_out(result)
    elif between:
        _print_cosine(given, task.cosine(vectors, *given), as_json)
    elif analogy:
        found = [task.analogy(vectors, *analogy, top=top, product=product)]
    elif is_sum:
        found = [task.combine(vectors, given, minus or [], top=top, product=product)]
    else:
        found, given = _find_neighbors(vectors, given, top, outcomes)
    (print_json_lines if as_json else print_similar)(found)
    _save_plots(vectors, given + (minus or []), found, plot, plot_vectors)
    outcomes.finish()


def _load_vectors(model: str, max_words: int | None, no_header: bool) -> "WordVectors":
    from cloze.checkpoint.source import builtin
    from cloze.checkpoint.word2vec import load_vectors
    from cloze.tasks.similar import open_vectors

    if model in builtin():  # an error: it does not contain word vectors
        return open_vectors(model)
    return load_vectors(model, max_words=max_words, header=False if no_header else None).module


def _read_words(
    words: list[str] | None,
    analogy: tuple[str, str, str] | None,
    between: bool,
    outcomes: Outcomes,
) -> list[str]:
    if analogy:
        return list(analogy)
    given = [row.text.strip() for row in read_inputs(words, on_error=outcomes.on_error)]
    if between and len(given) != 2:  # noqa: PLR2004
        raise typer.BadParameter(f"it takes two words, not {len(given)}", param_hint="--between")
    return given


def _find_neighbors(
    vectors: "WordVectors", words: list[str], top: int, outcomes: Outcomes
) -> "tuple[list[Similar | Failure], list[str]]":
    """The results that are shown, and the words that have a vector."""
    from cloze.tasks.inputs import Failure
    from cloze.tasks.similar import similar

    errors: dict[int, InputError] = {}
    found = similar(vectors, words, top=top, on_error=errors.__setitem__)
    results = [
        Failure(inputs={"query": one.query}, error=errors[n]) if n in errors else one
        for n, one in enumerate(found)
        if outcomes.add(errors.get(n))
    ]
    return results, [word for n, word in enumerate(words) if n not in errors]


def _print_cosine(words: list[str], cosine: float, as_json: bool) -> None:
    if as_json:
        first, second = words
        print_json({"first": first, "second": second, "cosine": cosine})
    else:
        print_table(("word", "word", "cosine"), [(*words, f"{cosine:.4f}")])


def _save_plots(
    vectors: "WordVectors",
    words: list[str],
    found: "list[Similar | Failure]",
    plot: Path | None,
    vectors_plot: Path | None,
) -> None:
    from cloze.tasks.inputs import Failure
    from cloze.tasks.similar import plot_vectors, plot_words

    if not words:  # the errors of all words were printed
        return
    near = [one for one in found if not isinstance(one, Failure)]
    if plot is not None:
        plot_words(vectors, words, near).save(plot)
    if vectors_plot is not None:
        plot_vectors(vectors, words).save(vectors_plot)
