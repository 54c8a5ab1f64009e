"""The record of a text and its embedding, as it is printed and written to files."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.errors import InputError
from cloze.text.alignment import TokenAlignment

Vectors = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class EmbeddingRecord:
    """A text or an image with its embedding or those of its tokens, or the error."""

    text: str | None  # None: the text could not be read, or it is an image
    image: str | None = None  # the name of an image
    vectors: Vectors | None = None  # d; t d with an encoding
    encoding: TokenAlignment | None = None
    error: InputError | None = None
    truncated_chars: int = 0  # characters left out by truncation

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the text: a line of a .jsonl file and of `--json`."""
        if self.image is not None:
            found = {} if self.vectors is None else {"embedding": self.vectors.tolist()}
            return {"image": self.image, **found, **self._status()}
        if self.vectors is None:
            return {"text": self.text, **self._status()}
        if self.encoding is None:
            return {"text": self.text, "embedding": self.vectors.tolist(), **self._status()}
        columns = (self.encoding.tokens, self.encoding.offsets, self.encoding.words, self.vectors)
        return {
            "text": self.text,
            "tokens": [
                {
                    "token": token,
                    "start": start,
                    "end": end,
                    "word": word,
                    "embedding": row.tolist(),
                }
                for token, (start, end), word, row in zip(*columns, strict=True)
            ],
            **self._status(),
        }

    def to_columns(self) -> dict[str, Any]:
        """The token embeddings as columns of a table."""
        if self.vectors is None or self.encoding is None:
            return {"text": self.text, **self._status()}
        starts, ends = zip(*self.encoding.offsets, strict=True)
        return {
            "text": self.text,
            "tokens": self.encoding.tokens,
            "starts": starts,
            "ends": ends,
            "words": self.encoding.words,
            "embeddings": self.vectors.tolist(),
            **self._status(),
        }

    def _status(self) -> dict[str, Any]:
        if self.error:
            return {"error": self.error.problem}
        return {"truncated_chars": self.truncated_chars}
