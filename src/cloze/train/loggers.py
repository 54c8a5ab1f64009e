"""Callbacks that send the metrics of a run to TensorBoard and Weights & Biases."""

import importlib
from collections.abc import Mapping
from typing import Any

from cloze.errors import MissingExtraError
from cloze.files import PathLike
from cloze.train.callbacks import Callback, TrainingRun
from cloze.train.result import RunResult

TENSORBOARD = "tensorboard"  # folder inside the run's folder


class TensorBoard(Callback):
    """Writes the metrics as TensorBoard scalars, such as train/lr and eval/mlm_loss.

    Args:
        folder: the folder of the event files (default: `tensorboard` in the folder of the run).
    """

    every = None

    def __init__(self, folder: PathLike | None = None) -> None:
        require_tensorboard()
        self._folder = folder
        self._writer: Any = None

    def on_train_begin(self, run: TrainingRun) -> None:
        """Open the event file; the steps that a resumed run repeats are hidden."""
        from torch.utils.tensorboard import SummaryWriter

        self.close()
        folder = run.folder / TENSORBOARD if self._folder is None else self._folder
        self._writer = SummaryWriter(str(folder), purge_step=run.step + 1)

    def on_step(self, metrics: Mapping[str, Any]) -> None:
        """Write the metrics of a step."""
        self._add("train", metrics["step"], metrics)

    def on_evaluate(self, step: int, scores: Mapping[str, float]) -> None:
        """Write the scores of an evaluation."""
        self._add("eval", step, scores)

    def _add(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if name != "step" and isinstance(value, int | float):
                self._writer.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class WandB(Callback):
    """Logs a run to Weights & Biases: its settings, metrics such as train/loss, and scores.

    Args:
        project: the project of Weights & Biases.
        name: the name of the run (default: that of its folder).
        options: other arguments of `wandb.init`, such as `mode="offline"`, `tags`, `dir`.
    """

    every = None

    def __init__(
        self,
        project: str = "cloze",
        name: str | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        try:
            self._wandb: Any = importlib.import_module("wandb")
        except ImportError:
            raise MissingExtraError("logging to Weights & Biases", extra="wandb") from None
        self._options = {"project": project, "name": name, **options}
        self._run: Any = None

    def on_train_begin(self, run: TrainingRun) -> None:
        """Start a run of Weights & Biases."""
        self.close()
        self._run = self._wandb.init(
            **{
                "config": dict(run.settings),
                **self._options,
                "name": self._options["name"] or run.folder.name,
            }
        )

    def on_step(self, metrics: Mapping[str, Any]) -> None:
        """Log the metrics of a step."""
        self._log("train", metrics["step"], metrics)

    def on_evaluate(self, step: int, scores: Mapping[str, float]) -> None:
        """Log the scores of an evaluation."""
        self._log("eval", step, scores)

    def on_train_end(self, result: RunResult) -> None:
        """Write the summary, and finish the run."""
        if self._run is None:
            return
        self._run.summary.update(dict(result.scores))
        self._run.finish()
        self._run = None

    def _log(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        named = {
            f"{kind}/{name}": value
            for name, value in values.items()
            if name != "step" and isinstance(value, int | float)
        }
        self._run.log(named, step=step)

    def close(self) -> None:
        """Finish a run that did not end normally."""
        if self._run is not None:
            self._run.finish(exit_code=1)
            self._run = None


def require_tensorboard() -> None:
    """Raise early if TensorBoard is not installed."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        raise MissingExtraError("writing TensorBoard logs", extra="tensorboard") from None
