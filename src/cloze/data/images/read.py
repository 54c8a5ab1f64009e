"""Images with captions from folders, tar files, tables and data sets.

    emoji/heart.png  emoji/metadata.jsonl {"file_name": "heart.png", "text": "a red heart"}
    emoji/heart.png  emoji/heart.txt      a caption beside the image
    emoji/red-heart.png                   without either, the name of the file
    emoji.tar.xz                          the same inside of an archive
    table.csv                             a column with paths (or bytes), a column with captions

`captions` names a table of captions for images that lie elsewhere, by file name.
"""

import os
import re
import tarfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloze.data.images.decode import MAX_BYTES, Resize, convert_image, decode_image
from cloze.data.input_files import find_files, open_binary, split_endings
from cloze.data.labelled.records import TABLE_FORMATS, find_inputs, read_mappings
from cloze.data.sources import OnError, Source, as_list, get_error_handler
from cloze.errors import InputError
from cloze.files import PathLike

IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm")
TABLE_ENDINGS = (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".parquet")
FORMATS: Mapping[str, str] = {
    **dict.fromkeys(IMAGE_ENDINGS, "image"),
    ".tar": "tar",
    ".txt": "caption",
    **dict.fromkeys(TABLE_ENDINGS, "table"),
}
METADATA = "metadata"  # stem of the table of a folder
IMAGE_COLUMNS = ("image", "file_name", "filename", "file", "path", "hexcode")
CAPTION_COLUMNS = ("caption", "text", "annotation", "description", "title", "name", "label")
GROUP_COLUMNS = ("group_id", "skintone_base_hexcode")
KEYWORD_COLUMNS = ("keywords", "tags", "openmoji_tags", "subgroups", "group")
_MAX_MEMBERS = 10_000_000
_TAR_ERRORS = (tarfile.TarError, OSError, EOFError)

Content: TypeAlias = bytes | Path | NDArray[np.uint8] | Any  # Any: an image object of Pillow


@dataclass(frozen=True, eq=False)
class ImageExample:
    """An image that is not decoded yet, and its caption."""

    name: str  # in errors, and the id of the image
    content: Content
    caption: str
    group: str  # examples of one group are in the same part of a split
    keywords: tuple[str, ...] = ()  # more words for it, in the order of the table
    metadata: Mapping[str, Any] = field(default_factory=dict)  # the other columns of a table

    def read_content(self) -> bytes | NDArray[np.uint8] | Any:  # noqa: ANN401
        """The bytes of the file, or the image itself."""
        if not isinstance(self.content, Path):
            return self.content
        try:
            with open_binary(self.content) as stream:
                return stream.read(MAX_BYTES + 1)
        except OSError as error:
            raise InputError(
                f"{self.name}: cannot be read: {error.strerror or error}", fix="check the file"
            ) from None

    def load(self, size: int | None = None, *, resize: Resize = "pad") -> NDArray[np.uint8]:
        """The pixels, y x 3; see `decode_image`."""
        content = self.read_content()
        if isinstance(content, bytes):
            return decode_image(content, self.name, size=size, resize=resize)
        return convert_image(content, size=size, resize=resize)


@dataclass(frozen=True)
class Caption:
    """The caption of an image, its group, its keywords and its other columns."""

    text: str
    group: str | None = None
    keywords: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CaptionColumns:
    """Columns of tables; None: the first known name."""

    image: str | None = None
    caption: str | None = None
    group: str | None = None
    is_caption_needed: bool = True  # False: a table without captions is read, too


def read_images(
    sources: Source | list[Source],
    *,
    captions: PathLike | None = None,
    columns: CaptionColumns | None = None,
    on_error: OnError = "raise",
) -> Iterator[ImageExample]:
    """Read the examples of all sources lazily, in order; pixels are decoded by `load`.

    Args:
        sources: folders, globs, images, tar files, tables, data sets, or lists of mappings.
        captions: a table of captions by file name, with or without its ending.
        columns: names of the columns of tables.
        on_error: "raise", or a function that is called with the error of each broken example.
    """
    chosen = columns or CaptionColumns()
    report = get_error_handler(on_error)
    table = {} if captions is None else _read_captions(captions, chosen)
    for source in as_list(sources):
        for found in _read_source(source, table, chosen):
            if isinstance(found, InputError):
                report(found)
            else:
                yield found


def _read_source(
    source: Any,  # noqa: ANN401
    table: Mapping[str, Caption],
    columns: CaptionColumns,
) -> Iterator[ImageExample | InputError]:
    if isinstance(source, ImageExample):
        yield source
        return
    if not isinstance(source, str | os.PathLike):
        yield from _read_table(source, columns, Path())
        return
    for folder, kinds in _group_files(source).items():
        known = dict(table)
        for path in kinds.get(METADATA, []):
            known |= _read_captions(path, columns)
        for path in kinds.get("image", []):
            yield _caption_image(str(path), path, known, _read_sidecar(path))
        for path in kinds.get("tar", []):
            yield from _read_tar(path, known)
        for path in kinds.get("table", []):
            yield from _read_table(path, columns, folder)


def _group_files(source: PathLike) -> dict[Path, dict[str, list[Path]]]:
    """The files of a source by folder and by kind."""
    found: dict[Path, dict[str, list[Path]]] = {}
    for path in find_files(source, FORMATS):
        kind = FORMATS[split_endings(path)[0]]
        if kind == "table" and path.name.split(".")[0] == METADATA:
            kind = METADATA
        found.setdefault(path.parent, {}).setdefault(kind, []).append(path)
    return found


def _read_sidecar(path: Path) -> str | None:
    beside = path.with_suffix(".txt")
    return beside.read_text(encoding="utf-8").strip() if beside.is_file() else None


def _caption_image(
    name: str, content: Content, known: Mapping[str, Caption], sidecar: str | None
) -> ImageExample:
    """An example with the caption of the table, of the file beside it, or of its own name."""
    path = PurePosixPath(name)
    found = known.get(path.name) or known.get(path.stem)
    text = found.text if found else sidecar or re.sub(r"[-_\s]+", " ", path.stem).strip()
    group = found.group if found and found.group else path.stem
    return ImageExample(
        name=name,
        content=content,
        caption=text,
        group=group,
        keywords=found.keywords if found else (),
        metadata=found.metadata if found else {},
    )


def _read_tar(path: Path, known: Mapping[str, Caption]) -> Iterator[ImageExample | InputError]:
    """The images of an archive in order; nothing is extracted, links and folders are ignored.

    It is read twice, the first time for the texts, which may come after their images; so only one
    image is in memory.
    """
    sidecars: dict[str, str] = {}
    with suppress(*_TAR_ERRORS):  # the second time they are reported
        for name, content in _read_members(path, (".txt",)):
            if not isinstance(content, InputError):
                sidecars[_remove_ending(name)] = content.decode("utf-8", "replace").strip()
    try:
        for name, content in _read_members(path, IMAGE_ENDINGS):
            if isinstance(content, InputError):
                yield content
            else:
                text = sidecars.get(_remove_ending(name))
                yield _caption_image(f"{path}/{name}", content, known, text)
    except _TAR_ERRORS as error:
        yield InputError(
            f"{path}: not a readable tar file: {error}", fix="download or write it again"
        )


def _read_members(path: Path, endings: Collection[str]) -> Iterator[tuple[str, bytes | InputError]]:
    """Name and content of the files of an archive that have one of these endings."""
    with open_binary(path) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in islice(archive, _MAX_MEMBERS):
            ending = PurePosixPath(member.name).suffix.lower()
            if not member.isfile() or ending not in endings:
                continue
            if member.size > MAX_BYTES:
                yield (
                    member.name,
                    InputError(
                        f"{path}/{member.name}: the file is larger than {MAX_BYTES >> 20} MiB",
                        fix="leave it out",
                    ),
                )
                continue
            file = archive.extractfile(member)
            yield member.name, b"" if file is None else file.read()


def _remove_ending(name: str) -> str:
    return str(PurePosixPath(name).with_suffix(""))


def _read_captions(path: PathLike, columns: CaptionColumns) -> dict[str, Caption]:
    """Captions by the file names of their images."""
    found: dict[str, Caption] = {}
    for record in _read_records(path):
        if isinstance(record, InputError):
            raise record
        image = _choose(record.value, columns.image, IMAGE_COLUMNS, record.where)
        caption = _choose(record.value, columns.caption, CAPTION_COLUMNS, record.where)
        name = str(record.value[image])
        group = _find_group(record.value, columns.group)
        found[PurePosixPath(name).name] = Caption(
            str(record.value[caption]),
            group or name,
            _find_keywords(record.value),
            _find_metadata(record.value, (image, caption)),
        )
    return found


def _read_table(
    source: Any,  # noqa: ANN401
    columns: CaptionColumns,
    folder: Path,
) -> Iterator[ImageExample | InputError]:
    """Rows with a path, bytes or an image object, and a caption; paths are relative to `folder`."""
    for record in _read_records(source):
        if isinstance(record, InputError):
            yield record
            continue
        try:
            image = _choose(record.value, columns.image, IMAGE_COLUMNS, record.where)
            caption = _choose_caption(record.value, columns, record.where)
            content = record.value[image]
            if isinstance(content, Mapping):  # of `datasets` without decoding
                content = content.get("bytes") or content.get("path")
            is_path = isinstance(content, str)
            name = str(folder / content) if is_path else record.where
            yield ImageExample(
                name=name,
                content=folder / content if is_path else content,
                caption=str(record.value.get(caption) or ""),
                group=_find_group(record.value, columns.group) or name,
                keywords=_find_keywords(record.value),
                metadata=_find_metadata(record.value, (image, caption)),
            )
        except InputError as error:
            yield error


def _read_records(source: Any) -> Iterable[Any]:  # noqa: ANN401
    for part in find_inputs(source, TABLE_FORMATS):
        yield from read_mappings(part, TABLE_FORMATS)


def _find_group(values: Mapping[str, Any], column: str | None) -> str | None:
    names = GROUP_COLUMNS if column is None else (column,)
    return next((str(values[name]) for name in names if values.get(name)), None)


def _find_keywords(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Keywords of all columns that have some, separated by commas there, each once."""
    cells = (str(values.get(name) or "") for name in KEYWORD_COLUMNS)
    words = (word.strip() for cell in cells for word in cell.split(","))
    return tuple(dict.fromkeys(word for word in words if word))


def _find_metadata(values: Mapping[str, Any], without: tuple[str | None, ...]) -> Mapping[str, Any]:
    return {str(name): one for name, one in values.items() if name not in without}


def _choose_caption(values: Mapping[str, Any], columns: CaptionColumns, where: str) -> str | None:
    is_missing = columns.caption is None and not any(one in values for one in CAPTION_COLUMNS)
    if is_missing and not columns.is_caption_needed:
        return None
    return _choose(values, columns.caption, CAPTION_COLUMNS, where)


def _choose(
    values: Mapping[str, Any], wanted: str | None, known: tuple[str, ...], where: str
) -> str:
    """The requested column, or the first known name."""
    names = known if wanted is None else (wanted,)
    for name in names:
        if name in values:
            return name
    raise InputError(
        f"{where}: there is no column {' or '.join(names)}",
        fix=f"name one of its columns: {', '.join(map(str, values))}",
    )
