"""`explain.layers`: what the model would predict after each layer.

t tokens, m positions, l layers, k predictions, n candidates.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from cloze.checkpoint.model import Model
from cloze.checkpoint.task import NSP_LABELS
from cloze.config import in_range
from cloze.decode.language import language_model
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.interpret.layers import predict_layers, read_layers
from cloze.interpret.scores import Batch
from cloze.nn.utils import log_softmax
from cloze.plot.view import View
from cloze.tasks.explain.inputs import ExplainInput, encode_input, show_token
from cloze.tasks.explain.layer_figures import (
    LayerTable,
    draw_answer_ends,
    draw_classes,
    draw_tokens,
)
from cloze.tasks.explain.open_model import open_model
from cloze.tasks.explain.targets import find_kind, list_words, make_batch, resolve_target
from cloze.text.word_characters import WordCharacterTokenizer

DEFAULT_TOP = 5
DEFAULT_CANDIDATES = 3  # of the last layer, if none are given
MAX_GENERATED = 256


def layers(
    model: Model | PathLike,
    text: str,
    pair: str | None = None,
    *,
    candidates: str | Sequence[str] = (),
    top: int = DEFAULT_TOP,
    generate: int = 0,
    target_text: str | None = None,
) -> View:
    """Show what the model would predict if its output layer read each layer (logit lens).

    For a mask, the next token or a class: rank and probability of candidates after each layer. For
    texts without a mask, generated text and translations: the prediction at each position, and the
    rank of the actual token. Layer 0 are the embeddings.

    Args:
        model: an encoder with a task head, a language model or a Transformer translator, or its
            folder.
        text: the text, for a masked language model usually with a mask.
        pair: the second text of a pair.
        candidates: tokens or labels whose ranks are shown, in a list or separated by commas
            (default: the best three of the last layer).
        top: number of predictions for each layer.
        generate: number of tokens that a language model adds to the text, by greedy search; the
            ranks of these tokens are shown.
        target_text: the translation (translators only; default: the greedy one).
    """
    opened = open_model(model, "layers")
    in_range("top", top, 1, 100)
    in_range("generate", generate, 0, MAX_GENERATED)
    input = encode_input(opened, text, pair, target_text)
    kind = _find_kind(opened, input)
    if isinstance(candidates, str):
        candidates = [word.strip() for word in candidates.split(",") if word.strip()]
    if generate and kind != "next":
        raise InputError(
            f"this model ({opened.family.description}) generates no text",
            fix="leave out generate, or use a language model",
        )
    if candidates and kind not in ("mlm", "next", "sequence", "nsp"):
        raise InputError(
            "candidates are tokens for a mask or the next token, or labels of a classifier",
            fix="leave them out; the view shows the predictions at every position",
        )
    if kind in ("sequence", "nsp", "choice"):
        return _view_classes(opened, input, kind, candidates)
    if kind == "span":
        return _view_answer(opened, input)
    if kind == "token":
        return _view_tags(opened, input, top)
    return _view_tokens(opened, input, kind, candidates, top, generate)


def _find_kind(model: Model, input: ExplainInput) -> str:
    """As for other views, or `tokens`: those of a text without a mask."""
    heads = set(model.task_heads)
    is_masked = "mlm" in heads and not getattr(model.module, "is_causal", False)
    if is_masked and not heads - {"mlm", "nsp"} and model.tokenizer.mask_id not in input.ids:
        return "tokens"
    return find_kind(model, [input])


@dataclass(frozen=True, kw_only=True)
class _TokenTask:
    """Positions that are read, the tokens that follow or stand there, and names of ids."""

    batch: Batch
    head: str | None
    positions: list[int]
    names: list[str]  # of the positions
    actual: list[int | None]  # ids whose ranks are shown; None: the best of the last layer
    decode: Callable[[int], str]
    vocab_size: int


def _view_tokens(
    model: Model,
    input: ExplainInput,
    kind: str,
    candidates: Sequence[str],
    top: int,
    generate: int,
) -> View:
    task = _make_token_task(model, input, kind, generate)
    states = read_layers(model.module, task.batch, task.positions, task.head)
    states = replace(states, compute_logits=_limit(states.compute_logits, task.vocab_size))
    # one position: several candidates; many: the actual token of each
    is_focused = kind == "mlm" or (kind == "next" and not generate)
    best = states.predict_last(DEFAULT_CANDIDATES)
    chosen = _choose_candidates(model, input, task, best, candidates, is_focused=is_focused)
    found = predict_layers(states, chosen, k=top)
    table = LayerTable(
        layers=found.layers,
        names=task.names,
        outputs=[
            [[task.decode(id_) for id_ in row] for row in layer] for layer in found.top_ids.tolist()
        ],
        probabilities=found.top_probabilities.tolist(),
        candidates=[[task.decode(id_) for id_ in row] for row in chosen.tolist()],
        ranks=found.ranks.tolist(),
        candidate_probabilities=found.probabilities.tolist(),
    )
    shown = len(task.positions) - 1 if kind == "next" and not generate else None
    return draw_tokens(
        table,
        focus=list(range(len(task.positions)))
        if kind == "mlm"
        else []
        if shown is None
        else [shown],
        is_actual=kind != "mlm",
        note=input.note,
    )


def _make_token_task(model: Model, input: ExplainInput, kind: str, generate: int) -> _TokenTask:
    batch, tokenizer = make_batch(model, input), model.tokenizer

    def decode(id_: int) -> str:
        return show_token(tokenizer.id_to_token(id_), tokenizer)

    if kind in ("mlm", "tokens"):
        masks = [n for n, id_ in enumerate(input.ids) if id_ == tokenizer.mask_id]
        inside = [n for n, one in enumerate(input.words.sequence_ids) if one is not None]
        positions = masks or inside
        return _TokenTask(
            batch=batch,
            head="mlm",
            positions=positions,
            names=[input.tokens[n] for n in positions],
            actual=[None if masks else input.ids[n] for n in positions],
            decode=decode,
            vocab_size=tokenizer.vocab_size,
        )
    if kind == "translate":
        assert input.target is not None
        ids = input.target.ids
        return _TokenTask(
            batch=batch,
            head=None,
            positions=list(range(len(ids))),
            names=list(input.target.tokens),
            actual=list(ids),
            decode=decode,
            vocab_size=tokenizer.vocab_size,
        )
    adapter = language_model(model)
    head = getattr(model.module, "lm_head", None)
    count = len(input.ids)
    if generate:
        ids = _generate(model, input, generate)
        return _TokenTask(
            batch=Batch(torch.tensor([ids], device=model.device)),
            head=head,
            positions=list(range(count - 1, len(ids) - 1)),
            names=[adapter.decode_token(id_) for id_ in ids[count:]],
            actual=list(ids[count:]),
            decode=adapter.decode_token,
            vocab_size=len(adapter.vocabulary),
        )
    known = [id_ if id_ < len(adapter.vocabulary) else adapter.unk_id for id_ in input.ids[1:]]
    return _TokenTask(
        batch=batch,
        head=head,
        positions=list(range(count)),
        names=list(input.tokens),
        actual=[*known, None],
        decode=adapter.decode_token,
        vocab_size=len(adapter.vocabulary),
    )


def _generate(model: Model, input: ExplainInput, count: int) -> list[int]:
    """The ids of the text and of the most probable continuation, token by token."""
    if isinstance(model.tokenizer, WordCharacterTokenizer):
        raise InputError(
            "an ELMo reads the characters of a text, and generates none",
            fix="leave out generate, or use a GPT or an LSTM",
        )
    most = model.max_length - len(input.ids)
    if count > most:
        raise InputError(
            f"generate is {count}, but there are {most} positions after the text",
            fix="generate fewer tokens, or use a shorter text",
        )
    adapter, ids = language_model(model), list(input.ids)
    for _ in range(count):
        ids.append(int(adapter.next_log_probs(ids).argmax()))
    return ids


def _choose_candidates(
    model: Model,
    input: ExplainInput,
    task: _TokenTask,
    best: Tensor,
    candidates: Sequence[str],
    *,
    is_focused: bool,
) -> Tensor:
    """The ids whose ranks are shown at each position: m n."""
    if is_focused and candidates:
        scores: list[Any] = [resolve_target(model, input, word) for word in candidates]
        ids = [one.index if hasattr(one, "index") else one.id for one in scores]
        chosen = torch.tensor(ids).expand(len(task.positions), -1).clone()
    elif is_focused:
        chosen = best.clone()
    else:
        chosen = best[:, :1].clone()
    for row, id_ in enumerate(task.actual):
        if id_ is not None:  # the first candidate is the token that stands there
            chosen[row, 0] = id_
    return chosen


def _limit(compute: Callable[[Tensor], Tensor], size: int) -> Callable[[Tensor], Tensor]:
    """Logits of the tokens of the vocabulary; a model may have rows without a token."""
    return lambda vectors: compute(vectors)[..., :size]


def _view_tags(model: Model, input: ExplainInput, top: int) -> View:
    words = list_words(input)
    positions = [first for _, first in words]
    states = read_layers(model.module, make_batch(model, input), positions, "token")
    best = states.predict_last(1)
    found = predict_layers(states, best, k=min(top, len(model.labels)))
    labels = model.labels
    return draw_tokens(
        LayerTable(
            layers=found.layers,
            names=[word for word, _ in words],
            outputs=[
                [[labels[n] for n in row] for row in layer] for layer in found.top_ids.tolist()
            ],
            probabilities=found.top_probabilities.tolist(),
            candidates=[[labels[n] for n in row] for row in best.tolist()],
            ranks=found.ranks.tolist(),
            candidate_probabilities=found.probabilities.tolist(),
        ),
        focus=[],
        is_actual=False,
        note=input.note,
    )


def _view_classes(model: Model, input: ExplainInput, kind: str, candidates: Sequence[str]) -> View:
    states = read_layers(model.module, make_batch(model, input), [0], kind)
    labels: Sequence[str] = {"nsp": NSP_LABELS, "choice": (input.pair or "option",)}.get(
        kind, model.labels
    )
    activation, is_probability = _find_activation(model, kind, len(labels))
    with torch.inference_mode():
        values = torch.cat(
            [activation(states.compute_logits(one).float()) for one in states.vectors]
        )
    if candidates:
        chosen = [resolve_target(model, input, label).index for label in candidates]  # type: ignore[attr-defined]
    else:
        chosen = list(range(len(labels)))
    return draw_classes(
        states.numbers,
        [labels[n] for n in chosen],
        values[:, chosen].cpu().tolist(),
        is_probability=is_probability,
        note=input.note,
    )


def _find_activation(
    model: Model, kind: str, count: int
) -> tuple[Callable[[Tensor], Tensor], bool]:
    """What turns the logits of a head into the values that are shown, and are these fractions."""
    if kind == "choice" or (kind == "sequence" and model.problem_type == "regression"):
        return (lambda logits: logits), False
    if kind == "sequence" and (model.problem_type == "multi_label_classification" or count == 1):
        return (lambda logits: F.logsigmoid(logits).exp()), True
    return (lambda logits: log_softmax(logits).exp()), True


def _view_answer(model: Model, input: ExplainInput) -> View:
    if input.pair is None:
        raise InputError(
            "a model for question answering reads a question and its context",
            fix="give the question as the text and the context as the pair",
        )
    inside = list(input.words.token_range(1))
    positions = [0, *inside]  # the first token: no answer
    states = read_layers(model.module, make_batch(model, input), positions, "span")
    with torch.inference_mode():
        logits = torch.stack([states.compute_logits(one).float() for one in states.vectors])
    probabilities = logits.softmax(1).permute(2, 1, 0)  # 2 m l
    return draw_answer_ends(
        states.numbers,
        [input.tokens[n] for n in positions],
        probabilities.cpu().tolist(),
        note=input.note,
    )
