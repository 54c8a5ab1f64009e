import errno
import json
import os
import random
from pathlib import Path

import pytest
import safetensors.torch
from safetensors import SafetensorError

from cloze.checkpoint import state as room
from cloze.checkpoint.state import (
    MANIFEST,
    DamagedStateWarning,
    find_newest_state,
    read_state,
    save_state,
    verify_state,
)
from cloze.errors import FolderError
from helpers import files_of, raises
from saving_jobs import die_at_every_operation, kill_while_saving, numbered, step_of
from training import in_one_process


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_state_is_saved_and_read(tmp_path):
    path = save_state(tmp_path / "state", numbered(12))
    assert path.name == "000001-step-12"
    assert files_of(path) == {
        "model.safetensors",
        "optimizer.safetensors",
        "metadata.json",
        MANIFEST,
    }
    assert step_of(tmp_path / "state") == 12


def test_a_state_without_tensors(tmp_path):
    """As before the first step, when the optimiser has no moments yet."""
    empty = room.SavedState(step=0, tensors={"model": {}, "optimiser": {}}, metadata={})
    read = read_state(save_state(tmp_path, empty))
    assert read == empty


def test_only_the_newest_are_kept_and_none_replaces_another(tmp_path):
    for step in (1, 2, 3, 3):
        save_state(tmp_path, numbered(step), keep=3)
    assert names(tmp_path) == ["000002-step-2", "000003-step-3", "000004-step-3"]
    save_state(tmp_path, numbered(1), keep=1)
    assert names(tmp_path) == ["000005-step-1"], "what was saved last counts, not the highest step"
    save_state(tmp_path, numbered(2), keep=0)
    assert names(tmp_path) == ["000006-step-2"], "the last one always stays"


def test_without_a_state(tmp_path):
    assert find_newest_state(tmp_path / "absent") is None
    (tmp_path / "notes").mkdir()
    assert find_newest_state(tmp_path) is None


def flip_bit(content: bytes, offset: int, bit: int) -> bytes:
    return content[:offset] + bytes([content[offset] ^ 1 << bit]) + content[offset + 1 :]


@pytest.mark.parametrize(
    "name", ["model.safetensors", "optimizer.safetensors", "metadata.json", MANIFEST]
)
def test_any_damage_to_any_file_is_detected(tmp_path, name):
    old, new = (save_state(tmp_path, numbered(step)) for step in (1, 2))
    file = new / name
    sound = file.read_bytes()
    rng = random.Random(0)
    offsets = [0, 7, 8, len(sound) // 2, len(sound) - 1, *rng.sample(range(len(sound)), 50)]
    damaged = [
        *(flip_bit(sound, offset, rng.randrange(8)) for offset in offsets),
        *(sound[:size] for size in (0, 1, 8, len(sound) // 2, len(sound) - 1)),
        sound + b"\0",
        sound + b" ",
        bytes(len(sound)),
    ]
    for content in damaged:
        file.write_bytes(content)
        with raises(FolderError, name, fix=(new, "--resume")):
            verify_state(new)
        with pytest.warns(DamagedStateWarning, match=name):
            assert find_newest_state(tmp_path) == old
    file.unlink()
    with raises(FolderError, name, name):
        read_state(new)
    file.write_bytes(sound)
    assert find_newest_state(tmp_path) == new


def test_any_changed_bit_of_the_manifest_is_detected(tmp_path):
    path = save_state(tmp_path, numbered(1, size=1))
    sound = (path / MANIFEST).read_bytes()
    for offset in range(len(sound)):
        for bit in range(8):
            (path / MANIFEST).write_bytes(flip_bit(sound, offset, bit))
            with pytest.raises(FolderError):
                verify_state(path)
    (path / MANIFEST).write_bytes(sound)
    assert find_newest_state(tmp_path) == path


@pytest.mark.parametrize(
    "files", [{"metadata.json": 3}, {"../../x": [1, "a"]}, {"metadata.json": [1]}]
)
def test_an_invalid_manifest_is_an_error(tmp_path, files):
    path = save_state(tmp_path, numbered(1))
    (path / MANIFEST).write_bytes(room._encode_json(room._make_manifest(files)))
    with raises(FolderError, MANIFEST):
        verify_state(path)


def test_a_state_of_another_version_is_an_error(tmp_path):
    path = save_state(tmp_path, numbered(1))
    manifest = json.loads((path / MANIFEST).read_text())
    (path / MANIFEST).write_text(json.dumps(manifest | {"format_version": 99}))
    with raises(FolderError, "version"):
        read_state(path)


def test_if_all_states_are_damaged_none_is_used_or_removed(tmp_path):
    for step in (1, 2):
        (save_state(tmp_path, numbered(step)) / "model.safetensors").write_bytes(b"")
    with pytest.warns(DamagedStateWarning):
        assert find_newest_state(tmp_path) is None
    assert len(names(tmp_path)) == 2


def test_the_last_good_state_is_kept_until_a_newer_one_is_verified(tmp_path, monkeypatch):
    """A disk that lies: what was just written reads back as something else."""
    good = save_state(tmp_path, numbered(1), keep=1)
    write = room.write_manifest

    def lying(work, state, files):
        write(work, state, files)
        (work / "model.safetensors").write_bytes(b"something else")

    monkeypatch.setattr(room, "write_manifest", lying)
    with raises(FolderError, "model.safetensors", "14"):
        save_state(tmp_path, numbered(2), keep=1)
    with pytest.warns(DamagedStateWarning):
        assert find_newest_state(tmp_path) == good


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc to name open files")
def test_a_state_is_flushed_before_it_is_renamed(tmp_path, monkeypatch):
    """Every file flushed, the manifest last; then the name; then the folder that holds the name."""
    done = []
    fsync, rename = os.fsync, Path.rename

    def flushed(handle):
        done.append(Path(f"/proc/self/fd/{handle}").readlink().name)
        fsync(handle)

    def renamed(path, target):
        done.append(f"-> {target.name}")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(Path, "rename", renamed)
    path = save_state(tmp_path, numbered(1))
    name = done.index("-> 000001-step-1")
    contents = files_of(path) - {MANIFEST}
    assert contents < set(done[:name])
    assert max(done.index(file) for file in contents) < done.index(MANIFEST) < name
    assert done[name - 1].startswith(".000001-step-1."), "the folder's own list of names"
    assert done[name + 1 :] == [tmp_path.name]


def full(*_args, **_kwargs):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full_for_safetensors(*_args, **_kwargs):
    raise SafetensorError("Error while serializing: I/O error: No space left (os error 28)")


@pytest.mark.parametrize(
    ("where", "what"),
    [
        ("cloze.checkpoint.state.save_file", full_for_safetensors),
        ("cloze.checkpoint.state.sync_to_disk", full),
        ("cloze.checkpoint.atomic.sync_to_disk", full),
        ("pathlib.Path.write_bytes", full),
        ("pathlib.Path.rename", full),
        ("pathlib.Path.mkdir", full),
    ],
)
def test_a_full_disk_is_reported_and_older_states_stay(tmp_path, monkeypatch, where, what):
    save_state(tmp_path, numbered(1))
    save_state(tmp_path, numbered(2))
    with monkeypatch.context() as patch:
        patch.setattr(where, what)
        with raises(FolderError, "disk", "step 3"):
            save_state(tmp_path, numbered(3))
    assert names(tmp_path) == ["000001-step-1", "000002-step-2"]
    assert step_of(tmp_path) == 2
    save_state(tmp_path, numbered(3))
    assert step_of(tmp_path) == 3


def test_the_fix_says_whether_there_is_a_state_to_resume_from(tmp_path, monkeypatch):
    monkeypatch.setattr(room, "save_file", full_for_safetensors)
    with raises(FolderError, "step 1", fix=("space", "start")):
        save_state(tmp_path / "state", numbered(1))
    monkeypatch.undo()
    save_state(tmp_path / "state", numbered(1))
    monkeypatch.setattr(room, "save_file", full_for_safetensors)
    with raises(FolderError, "step 2", fix=("space", "resume")):
        save_state(tmp_path / "state", numbered(2))


def test_the_disk_may_be_full_at_the_second_file(tmp_path, monkeypatch):
    def second(tensors, path):
        full_for_safetensors() if path.name.startswith("opt") else safetensors.torch.save_file(
            tensors, path
        )

    monkeypatch.setattr(room, "save_file", second)
    with raises(FolderError, "disk"):
        save_state(tmp_path, numbered(1))
    assert names(tmp_path) == []


def test_the_reason_of_a_write_error_is_reported(tmp_path):
    (tmp_path / "state").write_text("a file in the way")
    with raises(FolderError, "step 1", "exists"):
        save_state(tmp_path / "state", numbered(1))


def test_leftovers_of_a_killed_process_are_removed(tmp_path):
    left = tmp_path / ".000001-step-9.abc"
    left.mkdir()
    (left / "model.safetensors").write_bytes(b"half")
    (tmp_path / ".keep").write_text("not ours")
    assert find_newest_state(tmp_path) is None
    save_state(tmp_path, numbered(1))
    assert names(tmp_path) == [".keep", "000001-step-1"]


def test_a_crash_at_any_operation_leaves_the_old_state_or_the_new_one(tmp_path):
    in_one_process(die_at_every_operation, tmp_path)


def test_20_kills_while_saving(tmp_path):
    in_one_process(kill_while_saving, tmp_path, 20)


@pytest.mark.stress
def test_200_kills_while_saving(tmp_path):
    in_one_process(kill_while_saving, tmp_path, 200)
