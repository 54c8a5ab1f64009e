"""Ray at full scale: 200,000 rows, and a worker that is killed while they are embedded."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.stress


def test_two_hundred_thousand_rows_with_a_worker_killed(tmp_path):
    """Every row once, in order, equal to one process: the checks are in `ray_checks.py`."""
    pytest.importorskip("ray")
    checks = Path(__file__).parents[1] / "ray_checks.py"
    ran = subprocess.run(
        [sys.executable, checks, tmp_path, "200000", "4096"],
        capture_output=True,
        text=True,
        timeout=1800,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(checks.parent), *sys.path])},
    )
    assert ran.returncode == 0, ran.stderr
    assert {"a worker killed while embedding", "one file"} <= set(ran.stdout.splitlines())
