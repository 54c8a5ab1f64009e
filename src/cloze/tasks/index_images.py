"""The images of an index: each has one chunk, with its caption and its own vector."""

import time
from collections.abc import Sequence

from cloze.checkpoint.model import Model
from cloze.data.documents import Document
from cloze.data.images.documents import ImageDocument
from cloze.retrieval.store import Chunk
from cloze.tasks.chunk_embedder import ChunkEmbedder, EmbeddedBlock, normalize_vectors
from cloze.tasks.embed_images import embed_images


class ImageEmbedder(ChunkEmbedder):
    """Embeds documents that are images; their captions are not split."""

    def embed(self, model: Model, documents: Sequence[Document]) -> EmbeddedBlock:
        """The captions, and the vectors of the images."""
        start = time.perf_counter()
        images = [one.image for one in documents if isinstance(one, ImageDocument)]
        vectors = normalize_vectors(embed_images(model, images, progress=self.progress))
        chunks = [
            [Chunk(document=0, number=0, start=0, end=len(one.text), text=one.text)]
            for one in documents
        ]
        return EmbeddedBlock(chunks, vectors, time.perf_counter() - start)
