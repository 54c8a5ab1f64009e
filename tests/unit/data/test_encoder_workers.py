"""The protocol of the worker processes."""

import io
import subprocess
import sys

import pytest

from cloze.data.document_encoder import EncoderSettings
from cloze.data.encoder_workers import send_message, settings_to_json
from helpers import tiny_tokenizer


def frames(path) -> tuple[bytes, bytes]:
    """What a parent sends: the recipe, and a job of two paragraphs."""
    recipe, job = io.BytesIO(), io.BytesIO()
    send_message(
        recipe, settings_to_json(EncoderSettings.from_tokenizer(tiny_tokenizer(), "lines", None))
    )
    send_message(job, {"path": str(path), "sizes": [[7, 7]]}, b"the cat" + b"the cat")
    return recipe.getvalue(), job.getvalue()


def work(sent: bytes) -> None:
    subprocess.run([sys.executable, "-m", "cloze.data.encoder_workers"], input=sent, check=True)


def test_a_complete_message_writes_a_shard(tmp_path):
    recipe, job = frames(tmp_path / "shard")
    work(recipe + job)
    assert (tmp_path / "shard").is_file()


@pytest.mark.parametrize("cut", [0, 4, 9, 40, -8, -1])
def test_a_parent_that_dies_while_sending_leaves_no_shard(tmp_path, cut):
    recipe, job = frames(tmp_path / "shard")
    work(recipe + job[:cut])
    assert list(tmp_path.iterdir()) == []
