"""`explain.attention`: the attention weights of every layer and head."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from cloze.checkpoint.model import Model
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.interpret.attention import (
    CROSS,
    AttentionWeights,
    ScoreProducts,
    attend_between,
    compute_attention,
    merge_tokens,
)
from cloze.plot.attention import MAX_VALUES, AttentionFigure, AttentionMap, TokenSide
from cloze.plot.format import format_number, format_percent
from cloze.plot.page import PagePart
from cloze.plot.vector_heatmap import VectorHeatmap
from cloze.plot.view import View
from cloze.tasks.explain.inputs import ExplainInput, TokenizedText, encode_input
from cloze.tasks.explain.open_model import open_model
from cloze.tasks.word_alignment import END

TEXTS = ("A", "B")  # names of the texts of a pair


def attention(
    model: Model | PathLike,
    text: str,
    pair: str | None = None,
    *,
    target_text: str | None = None,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    layer: int | None = None,
    head: int | None = None,
    token: str | int | None = None,
    key: str | int | None = None,
) -> View:
    """Show how much each token attends to each other token, in every layer and head.

    The page has lines from token to tokens, a matrix, a small picture of each head, and the
    products of a query and its keys. Layers and heads are numbered from 1.

    Args:
        model: a model, its folder, or the name of a built-in model.
        text: the text.
        pair: the second text of a pair.
        target_text: the translation, for a translator (default: its own).
        layers: numbers of the layers to include (default: all).
        heads: numbers of the heads to include (default: all).
        layer: the layer that is shown first (default: the middle one).
        head: the only head that is shown first (default: all).
        token: the token that is selected first: a token, a word or its index.
        key: with `token`, `layer` and `head`: shows how the score of `token` and this token is
            computed from the query of one and the key of the other.
    """
    opened = open_model(model, "attention")
    encoded = encode_input(opened, text, pair, target_text)
    target = encoded.target
    found = compute_attention(
        opened,
        encoded.ids,
        encoded.type_ids,
        target.ids if target else [getattr(opened.config, "eos_id", 0)],
        layers=layers,
        heads=heads,
    )
    maps = [_make_map(one, encoded) for one in found]
    first = maps[0]
    _check_shown("layer", layer, first.layers)
    _check_shown("head", head, first.heads)
    query = None if token is None else find_token(first.queries, token)
    figure = AttentionFigure(
        title="Attention weights", maps=maps, layer=layer, head=head, token=query
    )
    data: dict[str, Any] = {"text": text, "pair": pair}
    if target is not None:
        data["target_text"] = target.text
    data["attention"] = [_list_values(one) for one in maps]
    figures: list[PagePart] = [figure]
    if key is not None:
        score, part = _explain_pair(found[0], first, layer, head, query, key)
        figures.append(part)
        data["score"] = score
    return View(title="Attention", figures=figures, data=data, note=encoded.note)


def find_token(side: TokenSide, token: str | int) -> int:
    """The index of a token: given as such, or the first token with this text or of this word."""
    if isinstance(token, int):
        if not 0 <= token < len(side.tokens):
            raise InputError(
                f"token {token} does not exist: the text has {len(side.tokens)} tokens",
                fix=f"use an index from 0 to {len(side.tokens) - 1}",
            )
        return token
    for wanted in (token, token.lower()):
        if wanted in side.tokens:
            return list(side.tokens).index(wanted)
        for word, first, _ in side.words:
            if wanted in (word, word.lower()):
                return first
    raise InputError(
        f"the text has no token {token!r}", fix=f"use one of these: {' '.join(side.tokens[:40])}"
    )


def _check_shown(name: str, number: int | None, numbers: Sequence[int]) -> None:
    if number is not None and number not in numbers:
        raise InputError(
            f"there is no {name} {number} in this view",
            fix=f"use one of {', '.join(map(str, numbers))}",
        )


def _make_map(one: AttentionWeights, encoded: ExplainInput) -> AttentionMap:
    """The weights with the tokens that attend and that are attended to."""
    source = _describe_side(encoded)
    target = _describe_side(encoded.target) if encoded.target else TokenSide(tokens=[END])
    queries = keys = source
    if one.name == "decoder":  # its inputs: each target token is read to predict the next
        queries = keys = _shift_side(target)
    elif one.name in (CROSS, "alignment"):
        queries = target
    return AttentionMap(
        name=one.name,
        queries=queries,
        keys=keys,
        weights=one.weights,
        layers=one.layers,
        heads=one.heads,
        vectors=one.vectors,
    )


def _describe_side(encoded: TokenizedText) -> TokenSide:
    return TokenSide(
        tokens=encoded.tokens,
        words=list(_list_words(encoded)),
        sequences=encoded.words.sequence_ids,
    )


def _list_words(encoded: TokenizedText) -> Iterator[tuple[str, int, int]]:
    """Text, first token and the one after the last of each word; special tokens are words, too."""
    aligned = encoded.words
    texts = (encoded.text, encoded.pair or "")

    def word(token: int) -> tuple[object, ...]:
        sequence, number = aligned.sequence_ids[token], aligned.words[token]
        return (token,) if sequence is None or number is None else (sequence, number)

    for _, group in groupby(range(len(encoded.ids)), word):
        tokens = list(group)
        first, last = tokens[0], tokens[-1]
        sequence = aligned.sequence_ids[first]
        start, end = aligned.offsets[first][0], aligned.offsets[last][1]
        shown = "" if sequence is None else texts[sequence][start:end].strip()
        yield shown or encoded.tokens[first], first, last + 1


def _shift_side(side: TokenSide) -> TokenSide:
    """The inputs of a decoder: a begin token, and all tokens but the last."""
    words = [(word, first + 1, last + 1) for word, first, last in side.words]
    return replace(
        side,
        tokens=["⏵", *side.tokens[:-1]],
        words=[("⏵", 0, 1), *words[:-1]] if words else (),
        sequences=[None, *side.sequences[:-1]],
    )


def _list_values(one: AttentionMap) -> dict[str, Any]:
    """The exact values of one kind of attention: by token, by word, and between two texts."""
    found = one.data
    sides = (one.queries, one.keys)
    rows, columns = ([(first, last) for _, first, last in side.words] for side in sides)
    if rows and columns and (len(rows), len(columns)) != one.weights.shape[2:]:
        size = one.weights.shape[0] * one.weights.shape[1] * len(rows) * len(columns)
        if size <= MAX_VALUES:
            merged = merge_tokens(one.weights, rows, columns)
            found = found | {"word_weights": merged.tolist()}
    if 1 in one.queries.sequences:
        between = attend_between(one.weights, one.queries.sequences, one.keys.sequences)
        found = found | {
            "between_texts": {
                f"{TEXTS[query]} → {TEXTS[key]}": values.tolist()
                for (query, key), values in between.items()
            }
        }
    return found


def _explain_pair(
    found: AttentionWeights,
    one: AttentionMap,
    layer: int | None,
    head: int | None,
    query: int | None,
    key: str | int,
) -> tuple[dict[str, Any], VectorHeatmap]:
    if layer is None or head is None or query is None:
        raise InputError(
            "key needs the options layer, head and token, too",
            fix="name the head and the token that attends: layer=4, head=2, token='it'",
        )
    other = find_token(one.keys, key)
    terms = found.explain_score(layer, head, query, other)
    names = one.queries.tokens[query], one.keys.tokens[other]
    score = {
        "layer": layer,
        "head": head,
        "query": query,
        "key": other,
        "query_vector": terms.query.tolist(),
        "key_vector": terms.key.tolist(),
        "products": terms.products.tolist(),
        "score": terms.score,
        "weight": terms.weight,
    }
    return score, _draw_terms(terms, names, f"layer {layer}, head {head}")


def _draw_terms(terms: ScoreProducts, names: tuple[str, str], where: str) -> VectorHeatmap:
    query, key = names
    rows = (terms.query, terms.key, terms.products)
    scaled = [row / max(float(abs(row).max()), 1e-9) for row in rows]
    return VectorHeatmap(
        title=f"{query} → {key}, {where}: the products add up to {format_number(terms.score)}, "
        f"after the softmax {format_percent(terms.weight)}",
        rows=[f"query {query}", f"key {key}", "product / √d"],
        values=[row.tolist() for row in scaled],
        limit=1.0,
        unit=" × the largest of each row",
    )
