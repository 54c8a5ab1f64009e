"""Callbacks of the functions that train: `cloze.finetune(…, callbacks=[TensorBoard()])`."""

from cloze.train.callbacks import Callback, TrainingRun
from cloze.train.loggers import TensorBoard, WandB

__all__ = ["Callback", "TensorBoard", "TrainingRun", "WandB"]
