"""`embed`: embeddings of texts or of tokens.

n tokens of a packed batch, b sequences, t tokens of one, d size of the selected layers.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Literal, TypedDict, TypeVar, Unpack, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from cloze.checkpoint.model import Model
from cloze.config import one_of
from cloze.contention import MONITOR
from cloze.data.embedding_records import EmbeddingRecord
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.interop.sentence_transformers import POOLINGS
from cloze.nn.engine import compute_layers, lock_engine
from cloze.nn.layout import Packed
from cloze.nn.pooling import pool, pool_packed
from cloze.nn.utils import HostCopy, eval_mode
from cloze.progress import ProgressCallback, ProgressOption, with_progress
from cloze.tasks.embed_images import embed_in_shared_space
from cloze.tasks.embed_windows import (
    ComputeVectors,
    merge_all_windows,
    merge_windows,
    pool_windows,
)
from cloze.tasks.features import (
    LayerChoice,
    LayerSelection,
    check_pooling,
    make_id_tensor,
    measure_features,
    prepare_source,
    select_layers,
    skips_zeros,
)
from cloze.tasks.image_inputs import ImageInputs, reads_images
from cloze.tasks.inference import (
    carry_states,
    choose_batch_tokens,
    delay,
    divide_batches,
    map_batches,
)
from cloze.tasks.inputs import OnError, Texts, check_texts, open_model, resolve_model
from cloze.tasks.text_encoding import (
    EncodedText,
    OnTruncated,
    encode_ahead,
    encode_texts,
    report_truncated,
)
from cloze.text.alignment import TokenAlignment

Vectors = NDArray[np.float32]
R = TypeVar("R")
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
    batch_tokens: int | None
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
    texts: str | Texts | None = None,
    *,
    images: ImageInputs | None = None,
    pooling: str | None = None,
    **options: Unpack[EmbedOptions],
) -> Vectors: ...
@torch.inference_mode()
@with_progress
def embed(
    model: Model | PathLike,
    texts: str | Texts | None = None,
    *,
    images: ImageInputs | None = None,
    pooling: str | None = None,
    layers: LayerChoice = "last",
    normalize: bool | None = None,
    truncation: str | None = None,
    overlap: int | None = None,
    text_column: str | int | None = None,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
    on_error: OnError | None = None,
    on_truncated: OnTruncated | None = None,
) -> Vectors | TokenVectors | list[TokenVectors | None]:
    """Compute the vector of a text (d), or of several (b d); with `pooling="none"` one per token.

    A model of texts and images (CLIP) has vectors of both in one space; they are not normalized
    unless `normalize` is given, as those of `get_image_features` of transformers.

    Args:
        model: an encoder or another model with vectors of tokens, or its folder.
        texts: a text, or several: a list, a column, or a table (data frame, `datasets`, mappings).
        images: in place of texts, an image or several: paths, folders, tar files, bytes, Pillow
            images, arrays (height × width × 3, uint8), or a table with a column of images.
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
        batch_tokens: maximum number of tokens in a batch; the default depends on the device.
        progress: show a progress bar, or not; a function is called with stage, done and total
            (default: a bar for work that takes seconds, on a terminal or in a notebook).
        on_error: called with the index and the error of one of several texts that fails; its row is
            NaN (None with pooling none). Default: the error is raised.
        on_truncated: called with the index of a truncated text and the number of characters that
            were not read, in place of the warning.
    """
    if images is not None or reads_images(model := resolve_model(model)):
        return embed_in_shared_space(
            model,
            texts,
            images,
            unsupported={"pooling": pooling, "layers": layers != "last", "overlap": overlap},
            normalize=bool(normalize),
            truncation=truncation,
            text_column=text_column,
            on_error=on_error,
            on_truncated=on_truncated,
            progress=progress,
        )
    model, is_single = prepare_source(open_model(model, "embed")), isinstance(texts, str)
    rows = check_texts(texts, text_column=text_column)
    own = model.pooling
    modes = own.modes if pooling is None and own else (pooling or "mean",)
    by_token = [one_of("pooling", mode, (*POOLINGS, "none")) for mode in modes] == ["none"]
    unit = bool(own and own.normalize and not by_token) if normalize is None else normalize
    most = choose_batch_tokens(model, batch_tokens)
    check_pooling(model, modes)
    chosen = select_layers(layers, model.module.num_layers)
    if own and own.prompt and not by_token:
        rows = [own.prompt + text for text in rows]
    stream = _StreamOptions(
        compute=partial(_compute_vectors, model, chosen, most),
        batch=max(1, most // model.max_length),
        progress=progress,
    )
    encode = partial(
        encode_texts,
        model,
        truncation=truncation,
        overlap=overlap,
        aligned=by_token,
        on_error=None if is_single else on_error,
    )
    pool_options = PoolOptions(modes=modes, normalize=unit, skip_zeros=skips_zeros(model))
    truncated: dict[int, int] = {}
    parts = _note_truncated(encode_ahead(model, rows, encode), truncated)
    compute = partial(
        _embed_batches, model, layers=chosen, batch_tokens=batch_tokens, progress=progress
    )
    if by_token:
        found: list[TokenVectors | None] = [None] * len(rows)
        with carry_states(model):
            for encoded in parts:
                kept = dict(chain.from_iterable(compute(encoded, len(rows), _split_tokens)))
                for row in encoded:
                    found[row] = _make_token_vectors(row, encoded, kept, unit, stream)
        report_truncated(truncated, on_truncated, None if truncation else model.max_length)
        return found[0] if is_single and found[0] else found
    pooled = (
        vectors
        for encoded in parts
        for vectors in _pool_batches(
            encoded,
            compute(encoded, len(rows), _make_pooling(encoded, pool_options)),
            pool_options,
            stream,
        )
    )
    with carry_states(model):
        out = _collect_vectors(pooled, len(rows))
    report_truncated(truncated, on_truncated, None if truncation else model.max_length)
    if out is None:  # no text, or all have failed: there is no vector whose size is known
        out = torch.full((len(rows), len(modes) * measure_features(model, chosen)), torch.nan)
    return out[0].numpy() if is_single else out.numpy()


def _note_truncated(
    parts: Iterable[dict[int, EncodedText]], truncated: dict[int, int]
) -> Iterator[dict[int, EncodedText]]:
    """The same parts; the characters left out of each text are noted."""
    for encoded in parts:
        truncated |= dict.fromkeys(encoded, 0)
        truncated |= {
            row: one.truncated_chars for row, one in encoded.items() if one.encoding is not None
        }
        yield encoded


def _collect_vectors(parts: Iterable[tuple[list[int], Tensor]], count: int) -> Tensor | None:
    """The vectors of all texts, NaN for those that failed; None if all have."""
    out: Tensor | None = None
    for numbers, vectors in parts:
        if out is None:
            out = torch.full((count, vectors.shape[-1]), torch.nan)
        out[numbers] = vectors
    return out


class PoolOptions(TypedDict):
    """How token vectors are pooled."""

    modes: Sequence[str]
    normalize: bool
    skip_zeros: bool


_Pooled = tuple[list["_Key"], HostCopy, dict["_Key", Tensor]]  # b d, and vectors of windows


def _make_pooling(
    encoded: dict[int, EncodedText], options: PoolOptions
) -> Callable[[list["_Key"], Tensor, Packed], _Pooled]:
    """What starts to pool the vectors of a batch, and copies those of windows."""
    has_windows = any(one.windows for one in encoded.values())

    def launch(keys: list[_Key], hidden: Tensor, packed: Packed) -> _Pooled:
        windows = _copy_windows(encoded, keys, hidden, packed) if has_windows else {}
        return keys, HostCopy(pool_packed(hidden, packed, **options)), windows

    return launch


def _pool_batches(
    encoded: dict[int, EncodedText],
    batches: Iterable[_Pooled],
    options: PoolOptions,
    stream: "_StreamOptions",
) -> Iterator[tuple[list[int], Tensor]]:
    """Yield indices of texts and their vectors (b d); the windows of a text are merged first."""
    kept: dict[_Key, Tensor] = {}  # token vectors of windows
    for keys, pooled, windows in batches:
        kept.update(windows)
        if not windows:  # the usual case
            yield [row for row, _ in keys], pooled.wait()
            continue
        whole = [n for n, (row, _) in enumerate(keys) if not encoded[row].windows]
        if whole:
            yield [keys[n][0] for n in whole], pooled.wait()[whole]
    for row, one in encoded.items():
        if one.stream is not None:
            pooled_stream = pool_windows(
                one.stream, modes=options["modes"], normalize=options["normalize"], **stream
            )
            yield [row], pooled_stream[None]
        elif one.windows:
            merged = merge_all_windows(one, [kept[row, n] for n in range(len(one.windows))])
            yield [row], pool(merged[None], **options)


def _copy_windows(
    encoded: dict[int, EncodedText], keys: Sequence["_Key"], hidden: Tensor, packed: Packed
) -> dict["_Key", Tensor]:
    """The token vectors of the windows in a batch."""
    if not any(encoded[row].windows for row, _ in keys):
        return {}
    tokens = dict(_split_tokens(keys, hidden, packed))
    return {key: one for key, one in tokens.items() if encoded[key[0]].windows}


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


def _embed_batches(
    model: Model,
    encoded: dict[int, EncodedText],
    total: int,
    finish: Callable[[list[_Key], Tensor, Packed], R],
    *,
    layers: LayerSelection,
    batch_tokens: int | None,
    progress: ProgressCallback | None = None,
) -> Iterator[R]:
    """Yield what `finish` makes of the token vectors of each batch, n d.

    It must read them before it returns: they may be overwritten by those of the next batch.
    """
    keys = [(row, n) for row, one in encoded.items() for n in range(len(one.sequences))]
    sequences = [encoded[row].sequences[n] for row, n in keys]
    batches = divide_batches(model, [len(ids) for ids in sequences], batch_tokens)

    def compute(batch: list[int]) -> R:
        MONITOR.check()
        packed = Packed.from_lengths((len(sequences[n]) for n in batch), model.device)
        flat = make_id_tensor([sequences[n] for n in batch])
        with lock_engine(model.module):
            hidden = compute_layers(model.module, flat, packed, layers=layers)
            return finish([keys[n] for n in batch], hidden, packed)

    done = min(encoded, default=0)
    with eval_mode(model.module):
        computed = zip(batches, map_batches(model, compute, batches), strict=True)
        for batch, found in delay(computed, 0 if model.device.type == "cpu" else 1):
            yield found
            done += len(batch)
            if progress:
                progress("sequences", done, max(total, done, len(keys)))


def _split_tokens(
    keys: Sequence[_Key], hidden: Tensor, packed: Packed
) -> list[tuple[_Key, Tensor]]:
    """The token vectors of each sequence (t d), in main memory."""
    host = HostCopy(hidden.float()).wait()
    return list(zip(keys, host.split(list(packed.lengths)), strict=True))


def _compute_vectors(
    model: Model, layers: LayerSelection, batch_tokens: int, sequences: Sequence[Sequence[int]]
) -> list[Tensor]:
    """The token vectors of sequences, in order (t d each)."""
    encoded = {n: EncodedText(sequences=(list(ids),)) for n, ids in enumerate(sequences)}
    batches = _embed_batches(
        model, encoded, len(encoded), _split_tokens, layers=layers, batch_tokens=batch_tokens
    )
    found = {row: one for part in batches for (row, _), one in part}
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
        parts = [kept[row, n] for n in range(len(one.sequences))]
        vectors = merge_all_windows(one, parts) if one.windows else parts[0]
    if unit:
        F.normalize(vectors, dim=-1, out=vectors)  # without a copy
    return TokenVectors(vectors=vectors.numpy(), encoding=encoding)
