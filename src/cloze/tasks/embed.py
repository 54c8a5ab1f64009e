"""`embed`: vectors of texts, or of their tokens.

n tokens of a packed batch, b sequences, t tokens of one, d width of the joined layers.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict, Unpack, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from cloze.checkpoint.model import Model
from cloze.config import in_range, one_of
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.interop.sentence_transformers import POOLINGS
from cloze.nn.layout import Packed
from cloze.progress import ProgressCallback
from cloze.tasks.batches import batch_by_tokens
from cloze.tasks.door import open_model
from cloze.tasks.layers import LayerSelection, select_layers
from cloze.tasks.reading import EncodedText, OnTruncated, encode_texts
from cloze.tasks.texts import OnError, check_texts
from cloze.text.alignment import TokenAlignment
from cloze.text.truncation import max_context_windows

Vectors = NDArray[np.float32]

BATCH_TOKENS = 2048  # on a CPU the activations of so many tokens still fit its caches


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenVectors:
    """The vectors of one text's tokens, special ones included, and where each token stands."""

    vectors: Vectors  # t d
    encoding: TokenAlignment


class EmbedOptions(TypedDict, total=False):
    """The choices of `embed` beside its pooling."""

    layers: str | int | Sequence[int]
    normalize: bool | None
    policy: str | None
    stride: int | None
    batch_tokens: int
    progress: ProgressCallback | None
    on_error: OnError | None
    on_cut: OnTruncated | None


@overload
def embed(  # type: ignore[overload-overlap]  # "none" is a str too; the first one that fits counts
    model: Model | PathLike,
    texts: str | Sequence[str],
    *,
    pooling: Literal["none"],
    **options: Unpack[EmbedOptions],
) -> list[TokenVectors | None]: ...
@overload
def embed(
    model: Model | PathLike,
    texts: str | Sequence[str],
    *,
    pooling: str | None = None,
    **options: Unpack[EmbedOptions],
) -> Vectors: ...
@torch.inference_mode()
def embed(
    model: Model | PathLike,
    texts: str | Sequence[str],
    *,
    pooling: str | None = None,
    layers: str | int | Sequence[int] = "last",
    normalize: bool | None = None,
    policy: str | None = None,
    stride: int | None = None,
    batch_tokens: int = BATCH_TOKENS,
    progress: ProgressCallback | None = None,
    on_error: OnError | None = None,
    on_cut: OnTruncated | None = None,
) -> Vectors | list[TokenVectors | None]:
    """One vector per text (b d); with `pooling="none"` one per token.

    `layers`: embeddings, second-to-last, last, sum-last-4, concat-last-4, sum-all, or numbers to
    lay side by side. `pooling`: cls, mean, max or none; or what some folders ask for:
    mean_sqrt_len_tokens, weightedmean, lasttoken. Pooling and normalising that are unsaid are the
    folder's own, else mean and none.
    `policy` says what happens to a text longer than the model reads: head, tail, head+tail, or
    window (overlapping windows, each token taken where it has the most context). Unsaid, such a
    text is cut as its folder says, else is an error; with `on_error` it is reported, its row is
    NaN (None with "none"), and the others go on. `on_cut` is told the number of each text that was
    cut, and how many of its pieces were left out.
    """
    model = open_model(model, "embed", Model)
    rows = check_texts(texts)
    own = model.pooling
    modes = own.modes if pooling is None and own else (pooling or "mean",)
    by_token = [one_of("pooling", mode, (*POOLINGS, "none")) for mode in modes] == ["none"]
    unit = bool(own and own.normalize and not by_token) if normalize is None else normalize
    in_range("batch_tokens", batch_tokens, 1, 1 << 30)
    check_pooling(model, modes)
    chosen = select_layers(layers, len(model.module.blocks))
    if own and own.prompt and not by_token:
        rows = [own.prompt + text for text in rows]
    readings = encode_texts(
        model, rows, policy=policy, stride=stride, aligned=by_token, on_error=on_error
    )
    _tell_cuts(readings, on_cut)
    out = torch.full((len(rows), len(modes) * chosen.parts * model.config.hidden_size), torch.nan)
    kept: dict[Key, Tensor] = {}  # token by token, where a text's vector cannot be made yet
    for keys, vectors in _rectangles(model, readings, chosen, batch_tokens, progress):
        whole = [n for n, (row, _) in enumerate(keys) if not (by_token or readings[row].windows)]
        if whole:
            out[[keys[n][0] for n in whole]] = pool(vectors[whole], modes, unit).cpu()
        if len(whole) < len(keys):
            kept.update(zip(keys, vectors.float().cpu(), strict=True))
    if by_token:
        return [_token_vectors(row, readings, kept, unit) for row in range(len(rows))]
    for row, reading in readings.items():
        if reading.windows:
            out[row] = pool(_merge(row, reading, kept)[None], modes, unit)
    return out.numpy()


Key = tuple[int, int]  # number of the text, number of the window in it


def _tell_cuts(readings: dict[int, EncodedText], on_cut: OnTruncated | None) -> None:
    for row, reading in readings.items():
        if on_cut and reading.truncated:
            on_cut(row, reading.truncated)


def check_pooling(model: Model, modes: Sequence[str]) -> None:
    """Raise where a text's vector would say nothing of the text."""
    if model.module.is_causal and "cls" in modes:
        raise InputError(
            "this model reads left to right: its [CLS] comes first and sees nothing of the text",
            fix="pool by mean or max",
        )


def pool(vectors: Tensor, modes: Sequence[str], unit: bool) -> Tensor:
    """One vector from those of a sequence's tokens: b t d -> b (modes·d)."""
    length = vectors.shape[1]
    made: dict[str, Callable[[], Tensor]] = {
        "cls": lambda: vectors[:, 0].float(),
        "max": lambda: vectors.amax(1).float(),
        "mean": lambda: vectors.mean(1, dtype=torch.float32),
        "mean_sqrt_len_tokens": lambda: vectors.sum(1, dtype=torch.float32) / length**0.5,
        "weightedmean": lambda: _rising(length, vectors.device) @ vectors.float(),
        "lasttoken": lambda: vectors[:, -1].float(),
    }
    pooled = torch.cat([made[mode]() for mode in modes], dim=-1)
    return F.normalize(pooled, dim=-1) if unit else pooled


def _rising(length: int, device: torch.device) -> Tensor:
    """Shares of tokens of which a later one has more: 1, 2, 3 … by their sum (t)."""
    places = torch.arange(1, length + 1, dtype=torch.float32, device=device)
    return places / places.sum()


def _rectangles(
    model: Model,
    readings: dict[int, EncodedText],
    layers: LayerSelection,
    batch_tokens: int,
    progress: ProgressCallback | None,
) -> Iterator[tuple[list[Key], Tensor]]:
    """Sequences of one length and their token vectors (b t d), until all are done."""
    keys = [(row, n) for row, reading in readings.items() for n in range(len(reading.sequences))]
    sequences = [readings[row].sequences[n] for row, n in keys]
    done = 0
    for batch in batch_by_tokens([len(ids) for ids in sequences], batch_tokens):
        packed = Packed.of((len(sequences[n]) for n in batch), model.device)
        flat = torch.tensor([id_ for n in batch for id_ in sequences[n]], device=model.device)
        joined = layers.join(model.module.hidden_states(flat, packed))  # n d
        first = 0
        for start, count, length in packed.runs:
            rectangle = joined[start : start + count * length].unflatten(0, (count, length))
            yield [keys[n] for n in batch[first : first + count]], rectangle
            first += count
        done += len(batch)
        if progress:
            progress("sequences", done, len(keys))


def _token_vectors(
    row: int, readings: dict[int, EncodedText], kept: dict[Key, Tensor], unit: bool
) -> TokenVectors | None:
    if row not in readings:
        return None
    reading = readings[row]
    assert reading.encoding is not None
    vectors = _merge(row, reading, kept) if reading.windows else kept[row, 0]
    if unit:
        vectors = F.normalize(vectors, dim=-1)
    return TokenVectors(vectors=vectors.numpy(), encoding=reading.encoding)


def _merge(row: int, reading: EncodedText, kept: dict[Key, Tensor]) -> Tensor:
    """A text's token vectors from those of its windows (t d).

    Each piece is taken from the window that shows the most around it; the special tokens, which
    stand in every window, are averaged.
    """
    assert reading.encoding is not None
    parts = [kept[row, n] for n in range(len(reading.windows))]
    spans = [window.kept_ranges[0][0] for window in reading.windows]
    special = torch.tensor(reading.encoding.special_tokens_mask)
    merged = parts[0].new_empty(len(reading.encoding), parts[0].shape[-1])
    merged[special] = torch.stack(
        [
            part[torch.tensor(w.special_tokens_mask)]
            for part, w in zip(parts, reading.windows, strict=True)
        ]
    ).mean(0)
    pieces = [
        part[~torch.tensor(w.special_tokens_mask)]
        for part, w in zip(parts, reading.windows, strict=True)
    ]
    merged[~special] = torch.stack(
        [pieces[n][piece - spans[n].start] for piece, n in enumerate(max_context_windows(spans))]
    )
    return merged
