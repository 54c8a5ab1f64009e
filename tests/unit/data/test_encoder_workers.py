"""The protocol of the worker processes."""

import io
import subprocess
import sys

import pytest

from cloze.data.document_encoder import EncoderSettings
from cloze.data.encoder_workers import send_message, settings_to_json
from helpers import tiny_tokenizer


def messages(path) -> tuple[bytes, bytes]:
    """What a parent sends: the settings, and a chunk of two paragraphs."""
    settings, chunk = io.BytesIO(), io.BytesIO()
    send_message(
        settings, settings_to_json(EncoderSettings.from_tokenizer(tiny_tokenizer(), "lines", None))
    )
    header = {"path": str(path), "sizes": [[7, 7]], "continues": False}
    send_message(chunk, header, b"the cat" + b"the cat")
    return settings.getvalue(), chunk.getvalue()


def run_worker(sent: bytes) -> None:
    subprocess.run([sys.executable, "-m", "cloze.data.encoder_workers"], input=sent, check=True)


def test_a_complete_message_writes_a_shard(tmp_path):
    settings, chunk = messages(tmp_path / "shard")
    run_worker(settings + chunk)
    assert (tmp_path / "shard").is_file()


@pytest.mark.parametrize("cut", [0, 4, 9, 40, -8, -1])
def test_a_parent_that_dies_while_sending_leaves_no_shard(tmp_path, cut):
    settings, chunk = messages(tmp_path / "shard")
    run_worker(settings + chunk[:cut])
    assert list(tmp_path.iterdir()) == []
