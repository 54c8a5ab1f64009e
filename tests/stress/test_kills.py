"""200 kills over all phases of a run, and damage to every file of a state."""

import random
import shutil

import pytest

from cloze.checkpoint.state import find_newest_state, verify_state
from cloze.errors import FolderError
from cloze.make.pretrain.dispatch import pretrain
from cloze.make.recipe.complete import recipe
from helpers import files_of, raises
from run_kills import SETTINGS, kill_diffusion_runs, kill_runs
from smallruns import stories
from training import in_one_process

pytestmark = pytest.mark.stress


def test_200_kills_over_all_phases_of_a_run(tmp_path):
    in_one_process(kill_runs, tmp_path, 200)


def test_100_kills_over_both_stages_of_a_diffusion_model(tmp_path):
    in_one_process(kill_diffusion_runs, tmp_path, 100)


def test_a_changed_or_shortened_state_is_always_detected(tmp_path):
    out = pretrain(stories(tmp_path), tmp_path / "run", recipe(settings=SETTINGS)).folder
    good = find_newest_state(out / "state")
    rng, changes = random.Random(0), 0
    for name in sorted(files_of(good)):
        content = (good / name).read_bytes()
        for _ in range(200):
            bad = bytearray(content)
            bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
            check_detected(good, tmp_path / "copy", name, bytes(bad))
        for size in {0, 1, len(content) - 1, *rng.sample(range(len(content)), 50)}:
            check_detected(good, tmp_path / "copy", name, content[:size])
            changes += 1
        changes += 200
    print(f"{changes:,} changes, all detected")  # noqa: T201


def check_detected(good, copy, name, content):
    shutil.copytree(good, copy, copy_function=shutil.os.link)
    (copy / name).unlink()
    (copy / name).write_bytes(content)
    with raises(FolderError):
        verify_state(copy)
    shutil.rmtree(copy)
