"""`cloze similar`: nearest words, analogies, the odd one out, the cosine of two words."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cloze.cli.common import Force, Json, SkipBad, check_svg_path, print_table, read_inputs
from cloze.cli.outcomes import Outcomes, print_line
from cloze.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cloze.models.word2vec import WordVectors
    from cloze.tasks.similar import Neighbor, OddOneOut, Similar


def similar(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="A folder of word vectors, or a file of word2vec or GloVe."
        ),
    ],
    words: Annotated[
        list[str] | None, typer.Argument(metavar="WORD", help="Words; - reads standard input.")
    ] = None,
    *,
    top: Annotated[int, typer.Option(metavar="N", help="Words to show.")] = 10,
    total: Annotated[
        bool, typer.Option("--sum", help="Nearest to the sum of the words, not to each.")
    ] = False,
    minus: Annotated[
        list[str] | None,
        typer.Option(metavar="WORD", help="Take this off the sum; may be repeated."),
    ] = None,
    analogy: Annotated[
        tuple[str, str, str] | None,
        typer.Option(metavar="A B C", help="A is to B as C is to what?"),
    ] = None,
    product: Annotated[
        bool, typer.Option("--product", help="Sums and analogies by 3CosMul, not 3CosAdd.")
    ] = False,
    odd: Annotated[bool, typer.Option("--odd", help="Which word is the odd one out?")] = False,
    between: Annotated[
        bool, typer.Option("--between", help="How alike are two words? Their cosine.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option(metavar="N", help="Of a file, read the first N words only.")
    ] = None,
    no_header: Annotated[
        bool, typer.Option("--no-header", help="A file begins with a word, as GloVe's do. [found]")
    ] = False,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Draw the words found on a plane.")
    ] = None,
    cells: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Draw vectors as coloured rows.")
    ] = None,
    skip_bad: SkipBad = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Find nearest words, complete an analogy, find the odd one out, or compare two words."""
    summed = bool(total or minus or (product and not analogy))
    if sum((bool(analogy), odd, between, summed)) > 1 or (analogy and words):
        raise typer.BadParameter(
            "ask for one thing: neighbours, a sum, --analogy, --odd or --between"
        )
    told = Outcomes("words", skip_bad=skip_bad)
    asked = _words(words, analogy, between, told)

    from cloze.checkpoint.word2vec import load_vectors
    from cloze.tasks import similar as verb

    for path in (picture, cells):
        check_svg_path(path, force)
    vectors = load_vectors(model, limit=limit, header=False if no_header else None).module
    found: list[Similar] = []
    errors: dict[str, InputError] = {}
    if odd:
        _show_odd(asked, verb.odd_one_out(vectors, asked), as_json)
    elif between:
        _show_between(asked, verb.cosine(vectors, *asked), as_json)
    elif analogy:
        found = [verb.analogy(vectors, *analogy, top=top, product=product)]
    elif summed:
        found = [verb.combine(vectors, asked, minus or [], top=top, product=product)]
    else:
        found, errors = _neighbours(vectors, asked, top, told)
    _show(found, errors, as_json)
    known = [word for word in asked + (minus or []) if word not in errors]
    _draw(vectors, known, found, picture, cells)
    told.tell()


def _words(
    words: list[str] | None, analogy: tuple[str, str, str] | None, between: bool, told: Outcomes
) -> list[str]:
    if analogy:
        return list(analogy)
    asked = [row.text.strip() for row in read_inputs(words, on_error=told.on_error)]
    if between and len(asked) != 2:  # noqa: PLR2004
        raise typer.BadParameter(f"it takes two words, not {len(asked)}", param_hint="--between")
    return asked


def _neighbours(
    vectors: "WordVectors", words: list[str], top: int, told: Outcomes
) -> "tuple[list[Similar], dict[str, InputError]]":
    """Of each word that has a place in the output; and what is wrong with a word."""
    from cloze.tasks.similar import similar

    errors: dict[str, InputError] = {}

    def fail(number: int, error: InputError) -> None:
        errors[words[number]] = error

    found = similar(vectors, words, top=top, on_error=fail)
    return [one for one in found if told.shown(errors.get(one.query))], errors


def _draw(
    vectors: "WordVectors",
    words: list[str],
    found: "list[Similar]",
    picture: Path | None,
    cells: Path | None,
) -> None:
    from cloze.tasks.similar import plot_vectors, plot_words

    if not words:  # none has a vector, as was told
        return
    if picture is not None:
        plot_words(vectors, words, found).save(picture)
    if cells is not None:
        plot_vectors(vectors, words).save(cells)


def _show(found: "list[Similar]", errors: dict[str, InputError], as_json: bool) -> None:
    if as_json:
        for each in found:
            near = {"words": _plain(each.words)}
            print_line({"query": each.query}, errors.get(each.query) or near)
        return
    rows = [(each.query, near.word, f"{near.score:.4f}") for each in found for near in each.words]
    if len(found) > 1:
        print_table(("to", "word", "score"), rows)
    elif rows:
        print_table(("word", "score"), [row[1:] for row in rows], title=found[0].query)


def _plain(words: "Iterable[Neighbor]") -> list[dict[str, object]]:
    return [dataclasses.asdict(near) for near in words]


def _show_odd(words: list[str], odd: "OddOneOut", as_json: bool) -> None:
    if as_json:
        print_line({"query": ", ".join(words)}, {"word": odd.word, "fits": _plain(odd.fits)})
    else:
        rows = [(near.word, f"{near.score:.4f}") for near in odd.fits]
        print_table(("word", "fits"), rows, title=f"the odd one out: {odd.word}")


def _show_between(words: list[str], cosine: float, as_json: bool) -> None:
    if as_json:
        first, second = words
        print_line({"first": first, "second": second}, {"cosine": cosine})
    else:
        print_table(("word", "word", "cosine"), [(*words, f"{cosine:.4f}")])
