"""The predictions of the best model of a run on its dev data, for the report."""

from pathlib import Path

from cloze.checkpoint.load import load
from cloze.files import write_json
from cloze.make.finetune.labelled import Labelled
from cloze.tasks.evaluate_labelled import score_predictions
from cloze.tasks.evaluation import MAX_MATRIX_LABELS, Evaluation
from cloze.tasks.example_cards import describe_outcome
from cloze.tasks.scored_predictions import ScoredPredictions
from cloze.train.run_files import EXAMPLES


class BestPredictions:
    """Keeps the predictions of the best evaluation of this process."""

    def __init__(self) -> None:
        self._score: float | None = None
        self._scored: ScoredPredictions | None = None
        self.start = 0  # step at which the run starts or resumes

    def add(self, scored: ScoredPredictions, score: float) -> None:
        """Keep the predictions if they are better than those before."""
        if self._score is None or score > self._score:
            self._score, self._scored = score, scored

    def get(self, best_step: int) -> ScoredPredictions | None:
        """The predictions of the best step; None if it is one before the run was resumed."""
        return self._scored if best_step > self.start else None


def write_outcome(
    out: Path, data: Labelled, scored: ScoredPredictions | None, *, batch_tokens: int
) -> None:
    """Write confusion matrix and examples of the model in `out`; predict if `scored` is None."""
    if scored is None:
        scored = score_predictions(load(out, quiet=True), data.dev, batch_tokens=batch_tokens)
    evaluation = Evaluation(result=scored, labels=data.labels)
    matrix, confusion = evaluation.confusion, None
    if matrix is not None and len(matrix.labels) <= MAX_MATRIX_LABELS:
        confusion = {"labels": list(matrix.labels), "counts": matrix.counts.tolist()}
    table = evaluation.label_table().data if evaluation.label_scores else None
    write_json(out / EXAMPLES, describe_outcome(scored, confusion, table))
