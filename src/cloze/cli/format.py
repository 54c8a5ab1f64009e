"""Print results: JSON lines, tables on a terminal, tab-separated lines in a pipe or file.

Results define their JSON (`to_dict`); this file defines all other output.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeAlias

from cloze.cli.tables import print_table as print_table
from cloze.files import replace_non_finite
from cloze.terminal import escape_control_characters, escape_json

if TYPE_CHECKING:
    from cloze.tasks.chunk_retriever import RetrievedChunk
    from cloze.tasks.generate import Generations, GenerationStream
    from cloze.tasks.info import Info
    from cloze.tasks.inputs import Failure
    from cloze.tasks.similar import OddOneOut
    from cloze.tasks.suggest import Suggestion, Suggestions
    from cloze.tasks.summarize import Summary
    from cloze.tasks.translate import Translation
    from cloze.text.alignment import TokenAlignment

COLORS = ("green", "cyan", "magenta", "yellow", "blue", "red")
NO_ANSWER = "(no answer)"
BAR_WIDTH = 20  # characters of the longest bar
SHOWN_LABELS = 12  # of a confusion matrix, or of a model


# a number, or an empty cell

Row: TypeAlias = Sequence[object]
Results: TypeAlias = Iterable[Any]  # results of one function, and failures


def print_json(value: object) -> None:
    """Print one line of JSON; NaN and infinity are null."""
    text = json.dumps(replace_non_finite(value), ensure_ascii=False, allow_nan=False)
    print(escape_json(text))


def print_json_lines(results: Results) -> None:
    """Print each result as one line of JSON."""
    for result in results:
        print_json(result.to_dict())


def print_text(text: str) -> None:
    """Print a text: unchanged in a pipe or file, with escapes on a terminal."""
    print(escape_control_characters(text, keep="\n\t") if sys.stdout.isatty() else text)


def format_probability(value: float) -> str:
    """Format a probability with four decimals, or two significant digits if it is small."""
    return f"{value:.4f}" if value >= 0.001 or not value else f"{value:.1e}"  # noqa: PLR2004


def _is_failure(result: object) -> bool:
    """Whether it is a `Failure`."""
    return hasattr(result, "error")


def _join_pair(text: object, second: object) -> str:
    return str(text) if second is None else f"{text} | {second}"


def print_fill(results: Results) -> None:
    """Print a table per mask on a terminal, or one table with the texts in a pipe or file."""
    found = (one for one in results if not _is_failure(one))
    columns = ("word", "probability", "text")
    if sys.stdout.isatty():
        for one in found:
            for number, mask in enumerate(one.masks, 1):
                which = f" (mask {number} of {len(one.masks)})" if len(one.masks) > 1 else ""
                print_table(columns, _mask_rows(mask), title=one.text + which)
        return
    first = list(islice(found, 2))
    several = len(first) > 1 or any(len(one.masks) > 1 for one in first)
    rows = (
        (*((one.text, number) if several else ()), *row)
        for one in chain(first, found)
        for number, mask in enumerate(one.masks, 1)
        for row in _mask_rows(mask)
    )
    begin = list(islice(rows, 1))
    if begin:
        print_table((*(("source", "mask") if several else ()), *columns), chain(begin, rows))


def print_joint(results: Results) -> None:
    """Print a row per completed text, best first; on a terminal, a table per text."""
    found = (one for one in results if not _is_failure(one))
    columns = ("source", "text", "log-probability")
    rows = ([(one.text, c.text, f"{c.log_probability:.4f}") for c in one.joint] for one in found)
    if not sys.stdout.isatty():
        print_table(columns, chain.from_iterable(rows))
        return
    for each in filter(None, rows):
        print_table(columns[1:], [row[1:] for row in each], title=each[0][0])


def _mask_rows(mask: Any) -> Iterator[Row]:  # noqa: ANN401 - a MaskResult
    return ((one.word, format_probability(one.score), one.text) for one in mask.predictions)


def print_classify(results: Results, *, number: bool, predicted_only: bool = False) -> None:
    """Print a row per label, or per predicted number of a regression model.

    With `predicted_only`, the labels of a multi-label model that are above their threshold.
    """
    columns = ("text", "number") if number else ("text", "label", "probability")
    print_table(columns, _classify_rows(results, number, predicted_only))


def _classify_rows(results: Results, number: bool, predicted_only: bool) -> Iterator[Row]:
    for one in results:
        if _is_failure(one):
            text = _join_pair(one.inputs["text"], one.inputs["pair"])
            yield (text, "") if number else (text, "", "")
            continue
        text = _join_pair(one.text, one.pair)
        if number:
            yield text, f"{one.score:.4f}"
        elif predicted_only:
            labels = one.labels or ()
            yield from ((text, name, format_probability(one.scores[name])) for name in labels)
            if not labels:
                yield text, "", ""
        else:
            yield from ((text, name, format_probability(p)) for name, p in one.scores.items())


def print_tag(results: Results, labels: Sequence[str]) -> None:
    """Print texts with colored spans on a terminal, or a row per span in a pipe or file."""
    if sys.stdout.isatty():
        _print_colored_spans(results, labels)
    else:
        columns = ("text", "start", "end", "label", "probability", "span")
        print_table(columns, _span_rows(results))


def _span_rows(results: Results) -> Iterator[Row]:
    for number, one in enumerate(results, 1):
        for span in () if _is_failure(one) else one.spans:
            score = format_probability(span.score)
            yield number, span.start, span.end, span.label, score, span.text


def _print_colored_spans(results: Results, labels: Sequence[str]) -> None:
    from rich.console import Console
    from rich.text import Text

    kinds = list(dict.fromkeys(label.split("-", 1)[-1] for label in labels))
    console = Console(highlight=False)
    for one in results:
        if _is_failure(one):
            continue
        line, end = Text(), 0
        for span in one.spans:
            # a label keeps its B- only if nothing was joined; geo-loc is a label without one
            kind = span.label if span.label in kinds else span.label.split("-", 1)[-1]
            color = COLORS[kinds.index(kind) % len(COLORS)]
            line.append(escape_control_characters(one.text[end : span.start]))
            line.append(escape_control_characters(span.text), f"bold {color}")
            line.append(
                f" {escape_control_characters(span.label)} {span.score:.2f}", f"dim {color}"
            )
            end = span.end
        line.append(escape_control_characters(one.text[end:]))
        console.print(line, soft_wrap=True)


def print_answer(results: Results) -> None:
    """Print a row per candidate."""
    columns = ("question", "answer", "probability", "start", "end")
    print_table(columns, _answer_rows(results))


def _answer_rows(results: Results) -> Iterator[Row]:
    for one in results:
        if _is_failure(one):
            yield one.inputs["question"], "", "", "", ""
            continue
        for answer in one.candidates:
            probability = format_probability(answer.probability)
            yield one.question, answer.text or NO_ANSWER, probability, answer.start, answer.end


def print_choose(results: Results, *, ranked: bool) -> None:
    """Print the best option of each text; if `ranked`, all options of a text, best first."""
    if not ranked:
        print_table(("text", "", "option", "probability"), _choice_rows(results))
        return
    for one in results:
        if not _is_failure(one):
            rows = [
                (index + 1, text, format_probability(score))
                for index, text, score in one.rank_options()
            ]
            print_table(("", "option", "probability"), rows)


def _choice_rows(results: Results) -> Iterator[Row]:
    for one in results:
        if _is_failure(one):
            yield _join_pair(one.inputs["text"], one.inputs["question"]), "", "", ""
        else:
            text = _join_pair(one.context, one.question)
            yield text, one.option + 1, one.text, format_probability(one.score)


def print_suggest(found: "Iterable[Suggestions | Failure]", *, numbered: bool = False) -> None:
    """Print one table; it has a column for the text if there are several, or for numbers."""
    results: list[Any] = [one for one in found if not _is_failure(one)]
    has_path = any(one.backoff_path for each in results for one in each.suggestions)
    bars = sys.stdout.isatty()  # other programs draw their own
    columns = ["word", "probability", *[""] * bars, *["order", "computation"] * has_path]
    rows = [(each.text, row) for each in results for row in _suggest_rows(each, bars, has_path)]
    if len(results) > 1:
        print_table(["after", *columns], [[text, *row] for text, row in rows])
    elif numbered and results:
        numbers = [[number, *row] for number, (_, row) in enumerate(rows, 1)]
        print_table(["", *columns], numbers, title=f"{results[0].text} …")
    elif results:
        print_table(columns, [row for _, row in rows], title=f"{results[0].text} …")


def _suggest_rows(result: "Suggestions", bars: bool, has_path: bool) -> Iterator[list[object]]:
    most = max((one.probability for one in result.suggestions), default=1.0)
    for one in result.suggestions:
        yield [
            one.word,
            format_probability(one.probability),
            *([format_bar(one.probability / most)] if bars else []),
            *([one.order, _format_backoff(one)] if has_path else []),
        ]


def format_bar(fraction: float) -> str:
    """A bar in eighths of a character, so that small differences are visible."""
    eighths = round(fraction * BAR_WIDTH * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _format_backoff(one: "Suggestion") -> str:
    """Back-off weights, then a probability: γ(thou shalt) 0.31 × p(· | shalt) 0.52."""
    *passed, last = one.backoff_path
    weights = [f"γ({' '.join(step.context)}) {step.weight:.3g}" for step in passed]
    given = f" | {' '.join(last.context)}" if last.context else ""
    return " × ".join([*weights, f"p(·{given}) {last.weight:.3g}"])


def print_generate(results: Results) -> None:
    """Print a line per continuation."""
    for one in results:
        if not _is_failure(one):
            for found in one:
                print_text(found.full_text)
                print_chunks(found.chunks)


def print_chunks(chunks: "Sequence[RetrievedChunk]") -> None:
    """Print the chunks of a text with their neighbors and what follows those."""
    rows = [
        (str(number), f"{found.score:.4f}", join_lines(found.text), join_lines(found.continuation))
        for number, chunk in enumerate(chunks, 1)
        for found in chunk.neighbors
    ]
    if rows:
        print_table(("chunk", "cosine", "neighbor", "continuation"), rows)


def print_music(results: Results, *, midi: str | None, piano_roll: str | None) -> None:
    """Write the events of one continuation to files, and print their names."""
    from cloze.data.midi import write_midi
    from cloze.tasks.music import plot_music

    for one in results:
        if not _is_failure(one):
            figure = plot_music(one[0].full_text, prompt=one.text)
            if midi is not None:
                print_text(f"{write_midi(one[0].full_text, midi)}: {figure.detail}")
            if piano_roll is not None:
                print_text(f"{figure.save(piano_roll)}: {figure.detail}")


def print_stream(text: str, stream: "GenerationStream") -> "Generations":
    """Print a text and the chunks of its continuation as they come; return the result."""
    for chunk in chain([text], stream):
        shown = escape_control_characters(chunk, keep="\n\t") if sys.stdout.isatty() else chunk
        print(shown, end="", flush=True)
    print()
    for found in stream.result:
        print_chunks(found.chunks)
    return stream.result


def print_translate(results: "Sequence[Translation]", *, table: bool) -> None:
    """Print a line per sentence, or a table with several translations of each."""
    if not table:
        for one in results:
            print_text(join_lines(one.text))
        return
    single = len(results) == 1
    rows = [
        ([] if single else [one.source]) + [candidate.text, f"{candidate.score:.4f}"]
        if one.source.strip()
        else []  # a blank line for a blank line
        for one in results
        for candidate in one.candidates
    ]
    columns = ["translation", "score"]
    if single:
        print_table(columns, rows, title=results[0].source)
    else:
        print_table(["source", *columns], rows)


def print_summarize(results: "Iterable[Summary]", *, table: bool) -> None:
    """Print a line per text, or a table with several summaries of each."""
    for number, one in enumerate(results, 1):
        if _is_failure(one):
            continue
        if table:
            rows = [(candidate.text, f"{candidate.score:.4f}") for candidate in one.candidates]
            print_table(("summary", "score"), rows, title=f"text {number:,}")
        else:
            print_text(join_lines(one.text))


def join_lines(text: str) -> str:
    """Join lines, so that line n of the output is the translation or summary of line n."""
    return " ".join(text.splitlines())


def print_similar(results: Sequence[Any]) -> None:
    """Print one table; it has a column for the query if there are several."""
    rows = [
        (one.query, near.word, f"{near.score:.4f}")
        for one in results
        if not _is_failure(one)
        for near in one.words
    ]
    if len(results) > 1:
        print_table(("query", "word", "score"), rows)
    elif rows:
        print_table(("word", "score"), [row[1:] for row in rows], title=rows[0][0])


def print_odd_one_out(result: "OddOneOut") -> None:
    rows = [(one.word, f"{one.score:.4f}") for one in result.fits]
    print_table(("word", "fits"), rows, title=f"the odd one out: {result.word}")


def print_tokenize(results: "Iterator[tuple[str, TokenAlignment]]") -> None:
    """Print a table per text on a terminal, or one table with text numbers in a pipe or file."""
    columns = ("token", "id", "characters", "word", "type")
    if sys.stdout.isatty():
        for text, alignment in results:
            print_table(columns, _token_rows(alignment), title=text)
        return
    first = list(islice(results, 2))
    rows = (
        (number, *row)
        for number, (_, alignment) in enumerate(chain(first, results), 1)
        for row in _token_rows(alignment)
    )
    if len(first) > 1:
        print_table(("text", *columns), rows)
    elif first:
        print_table(columns, (row[1:] for row in rows))


def _token_rows(alignment: "TokenAlignment") -> Iterator[Row]:
    found = alignment.to_dict()
    columns = (found[name] for name in ("tokens", "ids", "offsets", "words", "type_ids"))
    return (
        (token, _format_id(id_), *(("", "") if word is None else (f"{start}–{end}", word)), type_id)
        for token, id_, (start, end), word, type_id in zip(*columns, strict=True)
    )


def _format_id(id_: "int | tuple[int, ...]") -> str:
    """A number, or the characters of a word without their padding."""
    if isinstance(id_, int):
        return str(id_)
    from cloze.text.word_characters import PADDING

    return " ".join(str(one) for one in id_ if one != PADDING)


def print_info(found: "Info") -> None:
    """Print the configuration of a model, its parameters and the functions that work with it."""
    from cloze.plot.format import format_percent

    vocabulary, pooling = found.vocabulary, found.pooling
    case = "uncased" if vocabulary.lowercase else "cased"
    modes = "" if pooling is None else " + ".join(pooling.modes)
    settings = ", ".join(f"{name} {value}" for name, value in found.config.items())
    rows = [
        ("model", f"{found.architecture} ({found.family})"),
        ("configuration", settings),
        ("maximum length", "" if found.max_length is None else f"{found.max_length:,} tokens"),
        ("vocabulary", f"{vocabulary.size:,} tokens, {vocabulary.kind}, {case}"),
        ("heads", ", ".join(found.task_heads)),
        ("labels", _shorten_list(found.labels)),
        ("pooling", f"{modes}, normalized" if pooling and pooling.normalize else modes),
        ("features", _format_features(found.features or {})),
        ("size", f"{found.size_bytes / 1e6:,.1f} MB, {', '.join(found.dtypes)}"),
        ("--dtype auto", "\n".join(one.describe() for one in found.auto_dtype)),
    ]
    print_table(("", found.folder or ""), [row for row in rows if row[1]])
    total = found.total_parameters
    parts = [
        (part, count, format_percent(count / total)) for part, count in found.parameters.items()
    ]
    print_table(("part", "parameters", "fraction"), [*parts, ("total", total, "")])
    print_table(("function", "returns"), found.list_functions())


def _format_features(features: Mapping[str, Any]) -> str:
    """A classifier on frozen features in one line, with the weights of mixed layers."""
    if not features:
        return ""
    text = f"{features['kind']} on {features['layers']}"
    if features["contextual"] != "input":
        text += f" (contextual vectors: {features['contextual']})"
    for prefix, where in (("", ""), ("output_", " at the output")):
        if f"{prefix}layer_weights" in features:
            weights = ", ".join(
                f"{number} {w:.3f}" for number, w in enumerate(features[f"{prefix}layer_weights"])
            )
            scale = features[f"{prefix}scale"]
            text += f": weights of the layers{where} {weights}; scale {scale:.3f}"
    return text


def _shorten_list(labels: Sequence[str]) -> str:
    more = f" and {len(labels) - SHOWN_LABELS} more" if len(labels) > SHOWN_LABELS else ""
    return ", ".join(labels[:SHOWN_LABELS]) + more
