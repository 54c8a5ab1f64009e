"""Images to index: each is a document with an id, a caption, metadata, and the image itself."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

from cloze.data.documents import Document, DocumentColumns, check_id, check_metadata
from cloze.data.images.read import CaptionColumns, ImageExample, read_images
from cloze.data.labelled.columns import find_column
from cloze.data.readers import parse_text
from cloze.data.sources import OnError, Sources, as_list, get_error_handler
from cloze.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDocument(Document):
    """An image; its text is the caption, its id the path unless a column has one."""

    image: ImageExample
    content_digest: str  # of the image


def read_image_documents(
    sources: Sources, *, columns: DocumentColumns | None = None, on_error: OnError = "raise"
) -> Iterator[ImageDocument]:
    """Read the images of all sources lazily, in order; pixels are not decoded yet.

    Args:
        sources: as for `read_images`: folders, images, tar files, tables.
        columns: columns of tables: `text` is that of the captions.
        on_error: "raise", or a function that is called with each error; reading then continues.
    """
    chosen, report = columns or DocumentColumns(), get_error_handler(on_error)
    caption = None if chosen.text is None else str(chosen.text)
    examples = read_images(
        as_list(sources),
        columns=CaptionColumns(caption=caption, is_caption_needed=False),
        on_error=on_error,
    )
    for example in examples:
        try:
            yield _make_document(example, chosen)
        except InputError as error:
            report(error)


def _make_document(example: ImageExample, columns: DocumentColumns) -> ImageDocument:
    where, metadata = example.name, dict(example.metadata)
    content = example.read_content()
    data = content if isinstance(content, bytes) else example.load().tobytes()
    id_: object = where
    if columns.id is not None:
        id_ = _pop_column(metadata, columns.id, where)
        if isinstance(example.content, Path):
            metadata["file"] = where
    title = None
    if columns.title is not None:
        title = str(_pop_column(metadata, columns.title, where) or "")
    return ImageDocument(
        id=check_id(id_, where),
        text=parse_text(example.caption, where),
        title=parse_text(title, where) if title else None,
        metadata=check_metadata(metadata, where),
        where=where,
        image=replace(example, metadata={}),
        content_digest=blake2b(data, digest_size=16).hexdigest(),
    )


def _pop_column(metadata: dict[str, object], column: str | int, where: str) -> object:
    name = find_column([*metadata], str(column), where)
    return None if name is None else metadata.pop(name)
