"""Save a training state whose tensors are distributed: each process writes the rows that it has.

The first process makes a temporary folder, all write their files into it, and the first adds the
manifest and renames the folder. Until then the older states are the newest, whatever was killed.
"""

from contextlib import ExitStack
from pathlib import Path

from safetensors import SafetensorError

from cloze.checkpoint.state import (
    FileEntry,
    NewState,
    SavedState,
    make_save_error,
    open_new_state,
    remove_old_states,
    verify_state,
    write_manifest,
    write_tensor_files,
)
from cloze.errors import FolderError
from cloze.train.distributed import DistributedContext, exit_after_first


def save_sharded_state(
    folder: Path, shard: SavedState, distributed: DistributedContext, *, keep: int
) -> Path | None:
    """Save a state as the newest in `folder`; all processes must call it, each with its shard.

    The first process returns the path. All of them need the folder: on several machines it is on a
    file system that they share.
    """
    new: NewState | None = None
    with ExitStack() as stack:

        def begin() -> None:
            nonlocal new
            new = stack.enter_context(open_new_state(folder, shard.step))

        distributed.run_on_first(begin)
        work = distributed.gather_objects(new.work if new else None)[0]
        assert work is not None
        files = _write_all(folder, work, shard, distributed)

        def finish() -> None:
            assert new is not None
            write_manifest(new.work, shard, files)
            stack.close()  # the folder gets its name
            verify_state(new.target)
            remove_old_states(folder, keep=keep)

        distributed.run_on_first(finish)
    return new.target if new else None


def _write_all(
    folder: Path, work: Path, shard: SavedState, distributed: DistributedContext
) -> dict[str, FileEntry]:
    """Write the files of this process; returns those of all, or raises if one failed."""
    files: dict[str, FileEntry] = {}
    problem: str | None = None
    try:
        if not work.is_dir():
            raise OSError(f"{folder} is not the same folder on all machines")
        number = (distributed.rank, distributed.world_size)
        # what only the first process has is in files of its own
        own = {kind: one for kind, one in shard.tensors.items() if one or distributed.is_first}
        files = write_tensor_files(work, own, number)
    except (OSError, SafetensorError) as error:
        problem = make_save_error(folder, shard.step, error).problem
    found = distributed.gather_objects((files, problem))
    failed = [(rank, text) for rank, (_, text) in enumerate(found) if text is not None]
    if failed and distributed.is_first:
        rank, text = failed[0]
        raise FolderError(
            f"process {rank}: {text}",
            fix="solve this problem (on several machines all need the same folder, on a file "
            f"system that they share), then resume the run with --resume --out {folder.parent}",
        )
    if failed:
        exit_after_first()
    return {name: entry for one, _ in found for name, entry in one.items()}
