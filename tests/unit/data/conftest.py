"""Fixtures of the tests of prepared corpora."""

from functools import partial

import pytest

from cloze.data import prepare as preparing
from cloze.data.document_chunks import DocumentChunks


@pytest.fixture
def many_shards(monkeypatch):
    """Chunks so small that a few documents fill several."""
    monkeypatch.setattr(preparing, "DocumentChunks", partial(DocumentChunks, min_bytes=1000))
