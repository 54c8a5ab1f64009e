"""Evaluate a translator during training: BLEU and loss on dev sentences."""

import math
from collections.abc import Sequence
from pathlib import Path

from cloze.checkpoint.model import Model
from cloze.data.parallel_text import LOSS_NAME, ParallelText, TranslationBatches
from cloze.files import write_json
from cloze.make.recipe.language_models import TranslationRecipe
from cloze.metrics.bleu import compute_bleu
from cloze.metrics.perplexity import perplexity
from cloze.nn.utils import eval_mode
from cloze.tasks.translate import translate
from cloze.text.joint_bpe import encode_sentences
from cloze.train.loop import evaluate_objective
from cloze.train.run_files import SAMPLES
from cloze.train.state import TrainState

_NUM_SAMPLES = 10  # dev sentences whose translations are saved


class TranslationEvaluation:
    """BLEU of the dev sentences, and loss and accuracy of their reference translations."""

    def __init__(
        self,
        model: Model,
        dev: ParallelText,
        recipe: TranslationRecipe,
        state: TrainState,
    ) -> None:
        self._model, self._dev, self._run, self._state = model, dev, recipe.run, state
        source, target = (
            encode_sentences(model.tokenizer, side) for side in (dev.source, dev.target)
        )
        fits = [n for n in range(len(dev)) if _fits(model, source[n], target[n])]
        self._batches = (
            TranslationBatches(
                [source[n] for n in fits],
                [target[n] for n in fits],
                batch_tokens=recipe.run.batch_tokens,
            ).batches()
            if fits
            else []
        )
        self._samples: list[dict[str, str]] = []

    def __call__(self) -> dict[str, float]:
        means = evaluate_objective(self._state, self._batches) if self._batches else {}
        with eval_mode(self._model.module):
            found = translate(
                self._model,
                list(self._dev.source),
                beam=self._run.beam_size,
                on_error=lambda *_: None,  # counts as an empty translation
                batch_tokens=4 * self._run.batch_tokens,
            )
        texts = [one.text for one in found]
        self._samples = [
            {"source": source, "reference": reference, "translation": text}
            for source, reference, text in zip(
                self._dev.source[:_NUM_SAMPLES],
                self._dev.target[:_NUM_SAMPLES],
                texts,
                strict=False,
            )
        ]
        score = compute_bleu(texts, self._dev.target, tokenize=self._run.bleu_tokenizer).score
        nats = means.get(f"{LOSS_NAME}.nats", math.nan)
        return {
            "bleu": score,
            "loss": nats,
            "perplexity": perplexity(nats),
            "accuracy": means.get(f"{LOSS_NAME}.accuracy", math.nan),
            "score": score,
        }

    def save_model(self, out: Path) -> None:
        """Save the model and some of its translations."""
        self._model.save_into(out)
        if self._samples:  # a run that is stopped early was not evaluated
            write_json(out / SAMPLES, self._samples)


def _fits(model: Model, source: Sequence[int], target: Sequence[int]) -> bool:
    limit = model.module.max_positions
    return limit is None or max(len(source), len(target)) <= limit
