"""How far "no answer" must lead to be the answer: chosen on the dev data, once, at the end.

Devlin et al. 2018, §4.3.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from cloze.checkpoint.model import Model
from cloze.data.labelled.examples import QuestionExample
from cloze.metrics import squad
from cloze.tasks.answer import predict


def with_threshold(model: Model, dev: Sequence[QuestionExample], *, batch_tokens: int) -> Model:
    """The model with the threshold under which it scores best on the dev data."""
    assert model.task is not None
    told = predict(model, dev, allow_no_answer=False, batch_tokens=batch_tokens)
    rows = [
        (one.no_answer_margin, one.text, [answer.text for answer in example.answers or ()])
        for one, example in zip(told, dev, strict=True)
        if math.isfinite(one.no_answer_margin)  # where there is no span, nothing else can be said
    ]
    if not rows:
        return model
    leads, texts, gold = zip(*rows, strict=True)
    chinese = squad.is_chinese(example.context for example in dev)
    spoken = [score.f1 for score in squad.score_answers(gold, texts, chinese=chinese)]
    silent = [float(not answers) for answers in gold]
    found = squad.best_threshold(leads, spoken, silent)
    return replace(model, task=replace(model.task, threshold=found.threshold))
