"""Decoded images of one size on disk, with their captions, and batches of them.

b batch, y x positions, s tokens.
"""

import io
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from cloze.data.images.augment import Augmentation, Changes
from cloze.data.images.decode import Resize
from cloze.data.images.read import ImageExample
from cloze.data.randomness import Purpose, make_generator
from cloze.data.sources import OnError, get_error_handler
from cloze.errors import InputError
from cloze.files import atomic_file, read_json, write_json
from cloze.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

PIXELS_FILE, CAPTIONS_FILE = "images.npy", "captions.json"
_CHUNK = 256  # images decoded at a time
_MAX_KEYWORDS = 3  # that are added to a caption
_BUCKETS = 1000  # of groups, for the split
_TRUNCATION = "head"  # of captions that are too long
_MULTIPLE = 8  # of the number of tokens: few shapes, of which each has its CUDA graph


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images of one size with captions and keywords."""

    pixels: NDArray[np.uint8]  # n y x 3
    captions: list[str]
    groups: list[str]
    keywords: list[list[str]]

    def __len__(self) -> int:
        return len(self.captions)

    @classmethod
    def prepare(
        cls,
        examples: Iterable[ImageExample],
        size: int,
        folder: Path,
        *,
        resize: Resize = "pad",
        on_error: OnError = "raise",
        progress: Callable[[str, int, int | None], object] = lambda *_: None,
    ) -> "ImageSet":
        """Decode images into a folder, several at a time, and open it.

        Args:
            examples: what `read_images` gives.
            size: width and height.
            folder: for the pixels and captions; it is complete when the captions are written.
            resize: see `decode_image`.
            on_error: "raise", or a function for the error of each image that cannot be decoded.
            progress: called with the stage, and the number of images.
        """
        report = get_error_handler(on_error)
        folder.mkdir(parents=True, exist_ok=True)
        kept: list[ImageExample] = []
        stream = iter(examples)
        with (
            atomic_file(folder / PIXELS_FILE) as file,
            ThreadPoolExecutor() as pool,
        ):
            header = np.lib.format.header_data_from_array_1_0(
                np.zeros((0, size, size, 3), np.uint8)
            )
            file.write(_make_header(header, 0, size))
            while chunk := list(islice(stream, _CHUNK)):
                for example, found in zip(
                    chunk, pool.map(lambda one: _load(one, size, resize), chunk), strict=True
                ):
                    if isinstance(found, InputError):
                        report(found)
                    else:
                        file.write(found.tobytes())
                        kept.append(replace(example, content=b""))
                progress("images", len(kept), None)
            file.seek(0)
            file.write(_make_header(header, len(kept), size))
        if not kept:
            raise InputError("there are no images in the data", fix="check the paths")
        write_json(
            folder / CAPTIONS_FILE,
            {
                "captions": [one.caption for one in kept],
                "groups": [one.group for one in kept],
                "keywords": [list(one.keywords) for one in kept],
            },
        )
        return cls.open(folder)

    @classmethod
    def open(cls, folder: Path) -> "ImageSet":
        """The images of a folder; pixels are mapped into memory."""
        texts = read_json(folder / CAPTIONS_FILE, max_bytes=1 << 32)
        pixels = np.load(folder / PIXELS_FILE, mmap_mode="r", allow_pickle=False)
        return cls(pixels, texts["captions"], texts["groups"], texts["keywords"])

    @cached_property
    def fingerprint(self) -> list[int]:
        """Identifies the images and captions."""
        texts = "\n".join([*self.captions, *self.groups]).encode()
        step = max(1, len(self) // 64)
        return [len(self), zlib.crc32(texts), zlib.crc32(self.pixels[::step].tobytes())]

    def split(self, fraction: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Indices of the images to train on and of those held out, by a hash of their groups."""
        buckets = np.array([zlib.crc32(group.encode()) % _BUCKETS for group in self.groups])
        held_out = buckets < round(fraction * _BUCKETS)
        return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def _make_header(described: Mapping[str, Any], count: int, size: int) -> bytes:
    """The header of a .npy file, of the same length for every count."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream,
        {**described, "shape": (count, size, size, 3)},
    )
    return stream.getvalue()


def _load(example: ImageExample, size: int, resize: Resize) -> NDArray[np.uint8] | InputError:
    try:
        return example.load(size, resize=resize)
    except InputError as error:
        return error


@dataclass(frozen=True, eq=False)
class BatchShare:
    """What one of several processes computes of a batch.

    All draw the random numbers of the whole batch, with the same seed, and use their own rows. So
    they are those of a single process.
    """

    rows: NDArray[np.int64]  # b: of each image in the whole batch
    batch_size: int  # of the whole batch
    seed: int


@dataclass(frozen=True, eq=False)
class StoredTexts:
    """Each different caption of a run, as the text encoder reads it, on the device."""

    rows: Mapping[str, int]  # of each caption
    states: "Tensor"  # n s d
    mask: "Tensor"  # n s


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageBatch:
    """Images with their captions as tokens.

    The images are here, or in `stored`, a tensor of all images of the set. With `texts` there are
    no tokens, but the row of each caption.
    """

    images: NDArray[np.uint8] | None  # b y x 3
    input_ids: NDArray[np.int64]  # b s
    attention_mask: NDArray[np.bool_]  # b s
    sample_ids: NDArray[np.int64]  # b
    loss: str  # the name of the objective's loss
    changes: Changes | None = None  # of the images, which the objective applies on the device
    stored: "Tensor | None" = None  # n y x 3, or latents (n c y x), on the device
    texts: StoredTexts | None = None
    text_rows: NDArray[np.int64] | None = None  # b: of each caption in `texts`
    share: BatchShare | None = None  # if several processes divide the batch

    @property
    def size(self) -> int:
        """Number of images."""
        return len(self.sample_ids)

    @property
    def counts(self) -> Mapping[str, int]:
        """Every image is a target."""
        return {self.loss: self.size}

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Every image counts as one."""
        return np.ones(self.size, np.int64)

    def split(self, parts: int) -> Sequence[Self]:
        """Up to `parts` batches with about equally many images."""
        borders = np.unique(np.linspace(0, self.size, parts + 1).round().astype(int))
        return [self.select(slice(first, last)) for first, last in pairwise(borders)]

    def divide(self, rank: int, world_size: int, seed: int) -> Self:
        """The images of one of several processes, which draw random numbers with one seed."""
        whole = BatchShare(np.arange(self.size), self.size, seed)
        return replace(self, share=whole).select(slice(rank, None, world_size))

    def select(self, chosen: slice) -> Self:
        """The batch with some of its images."""
        share = self.share
        return replace(
            self,
            images=None if self.images is None else self.images[chosen],
            input_ids=self.input_ids[chosen],
            attention_mask=self.attention_mask[chosen],
            sample_ids=self.sample_ids[chosen],
            text_rows=None if self.text_rows is None else self.text_rows[chosen],
            changes=None if self.changes is None else self.changes[chosen],
            share=None if share is None else replace(share, rows=share.rows[chosen]),
        )

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """What the objectives read; of stored images, their indices."""
        images = {"indices": self.sample_ids} if self.images is None else {"images": self.images}
        return {
            **images,
            "input_ids": self.input_ids,
            "attention_mask": self.attention_mask,
            **({} if self.text_rows is None else {"text_rows": self.text_rows}),
            **({} if self.changes is None else {"changes": self.changes}),
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageBatches:
    """Batches of a set in a random order, by their index, the same after resuming."""

    data: ImageSet
    indices: NDArray[np.int64]
    tokenizer: Tokenizer | None
    batch_size: int
    max_length: int
    loss: str
    seed: int = 0
    caption_dropout: float = 0.0  # probability that a caption is empty
    keyword_prob: float = 0.0  # probability that keywords are added to a caption
    augmentation: Augmentation = field(default_factory=Augmentation)
    stored: "Tensor | None" = None  # all images, or their latents, on the device
    texts: StoredTexts | None = None  # all captions, which then have no keywords
    text_width: int = 0  # fewest tokens of a batch; one shape for all is compiled once

    @property
    def per_epoch(self) -> int:
        return max(1, len(self.indices) // self.batch_size)

    def batch(self, number: int) -> ImageBatch:
        """Batch `number` of the run; epochs follow one another."""
        first = number * self.batch_size
        places = np.arange(first, first + self.batch_size)
        epochs, offsets = np.divmod(places, len(self.indices))
        chosen = np.concatenate(
            [self._order(int(epoch))[offsets[epochs == epoch]] for epoch in np.unique(epochs)]
        )
        rng = make_generator(self.seed, number, Purpose.IMAGES)
        captions = [self._write_caption(n, rng) for n in chosen]
        tokens, mask = encode_captions(
            self.tokenizer if self.texts is None else None,
            captions,
            self.max_length,
            width=self.text_width,
            truncation=_TRUNCATION,
        )
        rows = None if self.texts is None else [self.texts.rows[one] for one in captions]
        return ImageBatch(
            images=None if self.stored is not None else self._read_pixels(chosen),
            input_ids=tokens,
            attention_mask=mask,
            sample_ids=chosen,
            loss=self.loss,
            changes=self._draw_changes(len(chosen), number),
            stored=self.stored,
            texts=self.texts,
            text_rows=None if rows is None else np.array(rows),
        )

    def _read_pixels(self, chosen: NDArray[np.int64]) -> NDArray[np.uint8]:
        """In the order of the file, then in that of the batch: b y x 3."""
        return self.data.pixels[np.sort(chosen)][np.argsort(np.argsort(chosen))]

    def _draw_changes(self, count: int, number: int) -> Changes | None:
        if not self.augmentation.is_active:
            return None
        size = self.data.pixels.shape[1]
        return self.augmentation.draw_changes(count, self.seed, number, size)

    @cached_property
    def distinct_captions(self) -> list[str] | None:
        """The different captions of batches, the empty one first; None if keywords are added."""
        if self.keyword_prob and any(self.data.keywords):
            return None
        return list(dict.fromkeys(["", *self.data.captions]))

    def find_text_width(self) -> int:
        """The number of tokens of the longest caption with its longest keywords, rounded up."""
        longest = (
            sorted(words, key=len)[-_MAX_KEYWORDS:] if self.keyword_prob else []
            for words in self.data.keywords
        )
        texts = [
            ", ".join([caption, *words])
            for caption, words in zip(self.data.captions, longest, strict=True)
        ]
        found, _ = encode_captions(self.tokenizer, texts, self.max_length, truncation=_TRUNCATION)
        return found.shape[1]

    def _order(self, epoch: int) -> NDArray[np.int64]:
        return make_generator(self.seed, epoch, Purpose.ORDER).permutation(self.indices)

    def _write_caption(self, index: int, rng: np.random.Generator) -> str:
        caption, keywords = self.data.captions[index], self.data.keywords[index]
        if rng.random() < self.caption_dropout:
            return ""
        if keywords and rng.random() < self.keyword_prob:
            count = int(rng.integers(1, _MAX_KEYWORDS + 1))
            caption = ", ".join([caption, *rng.permutation(keywords)[:count].tolist()])
        return caption


def encode_captions(
    tokenizer: Tokenizer | None,
    captions: Sequence[str],
    max_length: int,
    *,
    width: int = 0,
    truncation: str | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Padded token ids and their mask, b s each; without a tokenizer there are no tokens.

    Rows have at least `width` tokens, and at most `max_length`; without a `truncation` a longer
    caption is an error.
    """
    if tokenizer is None:
        return np.zeros((len(captions), 0), np.int64), np.zeros((len(captions), 0), bool)
    encoded = tokenizer.encode_batch(captions, max_length=max_length, truncation=truncation)
    return pad_captions(tokenizer, [one.ids for one in encoded], max_length, width)


def pad_captions(
    tokenizer: Tokenizer, rows: Sequence[Sequence[int]], max_length: int, width: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Token ids of one width, from `width` to `max_length`, and their mask, b s each."""
    width = min(max_length, max(width, -(-max(map(len, rows)) // _MULTIPLE) * _MULTIPLE))
    ids = np.full((len(rows), width), tokenizer.pad_id or 0, np.int64)
    mask = np.zeros((len(rows), width), bool)
    for n, row in enumerate(rows):
        ids[n, : len(row)], mask[n, : len(row)] = row, True
    return ids, mask
