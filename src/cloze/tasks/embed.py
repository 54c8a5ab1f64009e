"""`embed`: embeddings of texts or of tokens.

n tokens of a packed batch, b sequences, t tokens of one, d size of the selected layers.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Literal, TypedDict, Unpack, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from cloze.checkpoint.model import Model
from cloze.config import in_range, one_of
from cloze.contention import MONITOR
from cloze.data.batch import batch_by_tokens
from cloze.data.vector_files import EmbeddingRecord
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.interop.sentence_transformers import POOLINGS
from cloze.nn.layout import Packed
from cloze.progress import ProgressCallback, ProgressOption, with_progress
from cloze.tasks.embed_windows import ComputeVectors, merge_windows, pool_windows
from cloze.tasks.features import (
    LayerChoice,
    LayerSelection,
    check_pooling,
    make_id_tensor,
    measure_features,
    pool,
    prepare_source,
    select_layers,
    skips_zeros,
)
from cloze.tasks.inference import BATCH_TOKENS, EncodedText, OnTruncated, encode_texts
from cloze.tasks.inputs import OnError, Texts, check_texts, open_model, warn_truncated
from cloze.text.alignment import TokenAlignment
from cloze.text.truncation import find_max_context_windows
from cloze.text.windows import Windows

Vectors = NDArray[np.float32]
CHUNK = 20_000  # number of texts of a stream that are sorted by length and embedded together


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenVectors:
    """Token vectors of a text, special tokens included, and the alignment of the tokens."""

    vectors: Vectors  # t d
    encoding: TokenAlignment


class EmbedOptions(TypedDict, total=False):
    """The options of `embed` except its pooling."""

    layers: LayerChoice
    normalize: bool | None
    truncation: str | None
    overlap: int | None
    text_column: str | int | None
    batch_tokens: int
    progress: ProgressOption
    on_error: OnError | None
    on_truncated: OnTruncated | None


@overload
def embed(  # type: ignore[overload-overlap]  # the first that fits is taken
    model: Model | PathLike,
    texts: str,
    *,
    pooling: Literal["none"],
    **options: Unpack[EmbedOptions],
) -> TokenVectors: ...
@overload
def embed(  # type: ignore[overload-overlap]  # "none" is a str too
    model: Model | PathLike,
    texts: Texts,
    *,
    pooling: Literal["none"],
    **options: Unpack[EmbedOptions],
) -> list[TokenVectors | None]: ...
@overload
def embed(
    model: Model | PathLike,
    texts: str | Texts,
    *,
    pooling: str | None = None,
    **options: Unpack[EmbedOptions],
) -> Vectors: ...
@torch.inference_mode()
@with_progress
def embed(
    model: Model | PathLike,
    texts: str | Texts,
    *,
    pooling: str | None = None,
    layers: LayerChoice = "last",
    normalize: bool | None = None,
    truncation: str | None = None,
    overlap: int | None = None,
    text_column: str | int | None = None,
    batch_tokens: int = BATCH_TOKENS,
    progress: ProgressCallback | None = None,
    on_error: OnError | None = None,
    on_truncated: OnTruncated | None = None,
) -> Vectors | TokenVectors | list[TokenVectors | None]:
    """Compute the vector of a text (d), or of several (b d); with `pooling="none"` one per token.

    Args:
        model: an encoder or another model with vectors of tokens, or its folder.
        texts: a text, or several: a list, a column, or a table (data frame, `datasets`, mappings).
        pooling: cls, mean, max or none; sentence-transformers folders also use
            mean_sqrt_len_tokens, weightedmean and lasttoken. Default: the setting of the folder,
            else mean.
        layers: embeddings, second-to-last, last, sum-last-4, concat-last-4, sum-all, layer numbers
            to concatenate, or layers with weights to add: {0: 0.2, 1: 0.5, 2: 0.3}.
        normalize: whether to L2-normalize the vectors. Default: the setting of the folder, else no.
        truncation: for texts that are too long: head, tail, head+tail, window (overlapping
            windows; each token is taken from the window with the most context; with pooling none up
            to a million characters) or error. Default: head; then a warning says how much was not
            read.
        overlap: number of tokens that two windows share. Default: a quarter of the window.
        text_column: column of the text, if the texts are in a table: name or 1-based number
            (default: auto-detected).
        batch_tokens: maximum number of tokens in a batch.
        progress: show a progress bar, or not; a function is called with stage, done and total
            (default: a bar for work that takes seconds, on a terminal or in a notebook).
        on_error: called with the index and the error of one of several texts that fails; its row is
            NaN (None with pooling none). Default: the error is raised.
        on_truncated: called with the index of a truncated text and the number of characters that
            were not read, in place of the warning.
    """
    model, is_single = prepare_source(open_model(model, "embed")), isinstance(texts, str)
    rows = check_texts(texts, text_column=text_column)
    own = model.pooling
    modes = own.modes if pooling is None and own else (pooling or "mean",)
    by_token = [one_of("pooling", mode, (*POOLINGS, "none")) for mode in modes] == ["none"]
    unit = bool(own and own.normalize and not by_token) if normalize is None else normalize
    in_range("batch_tokens", batch_tokens, 1, 1 << 30)
    check_pooling(model, modes)
    chosen = select_layers(layers, model.module.num_layers)
    if own and own.prompt and not by_token:
        rows = [own.prompt + text for text in rows]
    encoded = encode_texts(
        model,
        rows,
        truncation=truncation,
        overlap=overlap,
        aligned=by_token,
        on_error=None if is_single else on_error,
    )
    _report_truncated(encoded, on_truncated, None if truncation else model.max_length)
    batches = _embed_batches(model, encoded, chosen, batch_tokens, progress)
    stream = _StreamOptions(
        compute=partial(_compute_vectors, model, chosen, batch_tokens),
        batch=max(1, batch_tokens // model.max_length),
        progress=progress,
    )
    if by_token:
        kept = {
            key: one
            for keys, vectors in batches
            for key, one in zip(keys, vectors.float().cpu(), strict=True)
        }
        found = [_make_token_vectors(row, encoded, kept, unit, stream) for row in range(len(rows))]
        return found[0] if is_single and found[0] else found
    pooled = _pool_batches(
        encoded,
        batches,
        partial(pool, modes=modes, normalize=unit, skip_zeros=skips_zeros(model)),
        partial(pool_windows, modes=modes, normalize=unit, **stream),
    )
    # without texts, or if all have failed, there are no vectors whose size is known
    size = next(iter(pooled.values())).shape[-1] if pooled else None
    out = torch.full((len(rows), size or len(modes) * measure_features(model, chosen)), torch.nan)
    if pooled:
        out[list(pooled)] = torch.stack(list(pooled.values()))
    return out[0].numpy() if is_single else out.numpy()


def _pool_batches(
    encoded: dict[int, EncodedText],
    batches: Iterable[tuple[list["_Key"], Tensor]],
    pool_rows: Callable[[Tensor], Tensor],
    pool_stream: Callable[[Windows], Tensor],
) -> dict[int, Tensor]:
    """The vector of each text by its index; the windows of a text are merged first."""
    pooled: dict[int, Tensor] = {}
    kept: dict[_Key, Tensor] = {}  # token vectors of windows
    for keys, vectors in batches:
        whole = [n for n, (row, _) in enumerate(keys) if not encoded[row].windows]
        if whole:
            found = pool_rows(vectors[whole]).cpu()
            pooled.update(zip((keys[n][0] for n in whole), found, strict=True))
        if len(whole) < len(keys):
            kept.update(zip(keys, vectors.float().cpu(), strict=True))
    for row, one in encoded.items():
        if one.stream is not None:
            pooled[row] = pool_stream(one.stream)
        elif one.windows:
            pooled[row] = pool_rows(_merge_windows(row, one, kept)[None])[0]
    return pooled


def embed_stream(
    model: Model,
    texts: Iterable[str],
    *,
    pooling: str | None = None,
    chunk: int = CHUNK,
    **options: Unpack[EmbedOptions],
) -> Iterator[list[EmbeddingRecord]]:
    """Embed more texts than fit into memory; yields chunks of records, in order.

    The record of a text that fails contains its error.
    """
    waiting = iter(texts)
    while batch := list(islice(waiting, chunk)):
        errors: dict[int, InputError] = {}
        truncated: dict[int, int] = {}
        options["on_error"] = errors.__setitem__
        options["on_truncated"] = truncated.__setitem__
        found = embed(model, batch, pooling=pooling, **options)
        yield [
            EmbeddingRecord(text=text, error=errors[number])
            if number in errors
            else _make_record(text, found[number], truncated.get(number, 0))
            for number, text in enumerate(batch)
        ]


def _make_record(
    text: str, found: Vectors | TokenVectors | None, truncated_chars: int
) -> EmbeddingRecord:
    if isinstance(found, TokenVectors):
        return EmbeddingRecord(
            text=text,
            vectors=found.vectors,
            encoding=found.encoding,
            truncated_chars=truncated_chars,
        )
    return EmbeddingRecord(text=text, vectors=found, truncated_chars=truncated_chars)


_Key = tuple[int, int]  # index of the text, index of the window in it


def _report_truncated(
    encoded: dict[int, EncodedText], on_truncated: OnTruncated | None, max_length: int | None
) -> None:
    """Call `on_truncated`, or warn unless `max_length` is None."""
    counts = {row: one.truncated_chars for row, one in encoded.items()}
    if on_truncated is None and max_length is not None:
        warn_truncated([*counts.values()], max_length)
    for row, count in counts.items():
        if on_truncated is not None and count:
            on_truncated(row, count)


def _embed_batches(
    model: Model,
    encoded: dict[int, EncodedText],
    layers: LayerSelection,
    batch_tokens: int,
    progress: ProgressCallback | None,
) -> Iterator[tuple[list[_Key], Tensor]]:
    """Yield sequences of equal length and their token vectors (b t d)."""
    keys = [(row, n) for row, one in encoded.items() for n in range(len(one.sequences))]
    sequences = [encoded[row].sequences[n] for row, n in keys]
    done = 0
    for batch in batch_by_tokens([len(ids) for ids in sequences], batch_tokens):
        MONITOR.check()
        packed = Packed.from_lengths((len(sequences[n]) for n in batch), model.device)
        flat = make_id_tensor([sequences[n] for n in batch], model.device)
        combined = layers.combine(model.module.hidden_states(flat, packed))  # n d
        first = 0
        for start, count, length in packed.runs:
            vectors = combined[start : start + count * length].unflatten(0, (count, length))
            yield [keys[n] for n in batch[first : first + count]], vectors
            first += count
        done += len(batch)
        if progress:
            progress("sequences", done, len(keys))


def _compute_vectors(
    model: Model, layers: LayerSelection, batch_tokens: int, sequences: Sequence[Sequence[int]]
) -> list[Tensor]:
    """The token vectors of sequences, in order (t d each)."""
    encoded = {n: EncodedText(sequences=(list(ids),)) for n, ids in enumerate(sequences)}
    found: dict[int, Tensor] = {}
    for keys, vectors in _embed_batches(model, encoded, layers, batch_tokens, None):
        found.update(zip([row for row, _ in keys], vectors.float().cpu(), strict=True))
    return [found[n] for n in range(len(sequences))]


class _StreamOptions(TypedDict):
    """How the windows of a long text are computed."""

    compute: ComputeVectors
    batch: int  # windows at a time
    progress: ProgressCallback | None


def _make_token_vectors(
    row: int,
    encoded: dict[int, EncodedText],
    kept: dict[_Key, Tensor],
    unit: bool,
    stream: _StreamOptions,
) -> TokenVectors | None:
    if row not in encoded:
        return None
    one = encoded[row]
    if one.stream is not None:
        vectors, encoding = merge_windows(one.stream, **stream)
    else:
        assert one.encoding is not None
        encoding = one.encoding
        vectors = _merge_windows(row, one, kept) if one.windows else kept[row, 0]
    if unit:
        F.normalize(vectors, dim=-1, out=vectors)  # without a copy
    return TokenVectors(vectors=vectors.numpy(), encoding=encoding)


def _merge_windows(row: int, encoded: EncodedText, kept: dict[_Key, Tensor]) -> Tensor:
    """Merge the token vectors of the windows of a text (t d).

    Each token is taken from the window with the most context around it; special tokens, which are
    in every window, are averaged.
    """
    assert encoded.encoding is not None
    parts = [kept[row, n] for n in range(len(encoded.windows))]
    spans = [window.kept_ranges[0][0] for window in encoded.windows]
    special = torch.tensor(encoded.encoding.special_tokens_mask)
    merged = parts[0].new_empty(len(encoded.encoding), parts[0].shape[-1])
    merged[special] = torch.stack(
        [
            part[torch.tensor(w.special_tokens_mask)]
            for part, w in zip(parts, encoded.windows, strict=True)
        ]
    ).mean(0)
    tokens = [
        part[~torch.tensor(w.special_tokens_mask)]
        for part, w in zip(parts, encoded.windows, strict=True)
    ]
    merged[~special] = torch.stack(
        [
            tokens[n][token - spans[n].start]
            for token, n in enumerate(find_max_context_windows(spans))
        ]
    )
    return merged
