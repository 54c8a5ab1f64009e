"""Targets: which output of a model is explained, by name, or what it predicts.

t tokens, c outputs of a head, v vocabulary.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from cloze.checkpoint.model import Model, unsupported_function_error
from cloze.checkpoint.task import NSP_LABELS, TARGET_TASKS
from cloze.config import suggest
from cloze.data.labelled.batch import EncodedExample
from cloze.data.labelled.examples import Origin, QuestionExample
from cloze.data.labelled.tag_schemes import OUTSIDE
from cloze.decode.language import language_model
from cloze.errors import InputError
from cloze.interpret.scores import (
    Activation,
    Batch,
    HeadScore,
    NextTokenScore,
    Score,
    TranslationScore,
)
from cloze.models.configs.encoder import MULTI_LABEL
from cloze.models.language import LanguageModel
from cloze.tasks.answer import predict as predict_answers
from cloze.tasks.inference import compute_logits
from cloze.tasks.masked_text import decode_token, top_tokens
from cloze.text.alignment import TokenAlignment
from cloze.text.music import EVENT_WORDS
from cloze.text.word_characters import BOS_ROW, WordCharacterTokenizer

Target = str | Sequence[str] | None
HEADS = ("sequence", "token", "span", "choice")  # of fine-tuned models
MAX_LISTED = 20  # possible targets in an error


class Tokens(Protocol):
    """The tokens of a text (`cloze.tasks.explain.inputs.TokenizedText`)."""

    @property
    def ids(self) -> Sequence[int]:
        """The model's own ids."""
        ...

    @property
    def tokens(self) -> Sequence[str]:
        """The tokens as they are shown."""
        ...


class TargetInput(Tokens, Protocol):
    """A text or a pair as a model reads it (`cloze.tasks.explain.inputs.ExplainInput`)."""

    @property
    def text(self) -> str: ...
    @property
    def pair(self) -> str | None: ...
    @property
    def type_ids(self) -> Sequence[int]: ...
    @property
    def words(self) -> TokenAlignment:
        """Words and offsets; its ids are those of the tokenizer."""
        ...

    @property
    def target(self) -> Tokens | None:
        """What a translator writes, with its end token."""
        ...


def resolve_target(model: Model, input: TargetInput, target: str | None = None) -> Score:
    """The score that `target` names; without one, that of what the model predicts first."""
    return resolve_targets(model, [input], target)[0][0]


def resolve_targets(
    model: Model, inputs: Sequence[TargetInput], target: Target = None
) -> list[list[Score]]:
    """All scores to explain, for each input.

    | model | without a target | targets |
    |---|---|---|
    | masked LM | the best token of every mask | a token for the first mask, or one for each |
    | classifier | the predicted class | a label |
    | tagger | the tag of every word that has one | WORD, or WORD=TAG |
    | question answering | start and end of the answer | start, end, or a part of the context |
    | multiple choice | the option (the second text) | |
    | language model | the best next token | a word or several, which continue the text |
    | translator | every token of the target | a word of the target |
    """
    kind = find_kind(model, inputs)
    if kind == "translate":
        return [_translation_scores(model, one, target) for one in inputs]
    if kind == "next":
        return _next_token_scores(model, inputs, target)
    resolve = {
        "mlm": _mask_scores,
        "nsp": _class_scores,
        "sequence": _class_scores,
        "token": _tag_scores,
        "span": _answer_scores,
        "choice": _choice_scores,
    }[kind]
    return resolve(model, inputs, target)


def find_kind(model: Model, inputs: Sequence[TargetInput]) -> str:
    """What is explained: `translate`, `next` (the next token), or the name of a task head."""
    if model.family.kind == "translator":
        return "translate"
    heads, mask_id = model.task_heads, getattr(model.tokenizer, "mask_id", None)
    is_causal = bool(getattr(model.module, "is_causal", False))
    if "mlm" in heads and not is_causal and any(mask_id in one.ids for one in inputs):
        return "mlm"
    own = model.task.head if model.task and model.task.head in heads else None
    head = own or next((name for name in heads if name in HEADS), None)
    if head in HEADS:
        return str(head)
    if model.family.language_model is not None and "suggest" in model.capabilities:
        return "next"
    if model.task and model.task.name in TARGET_TASKS:
        return "next"
    if "nsp" in heads and all(one.pair is not None for one in inputs):
        return "nsp"
    if "mlm" in heads:
        mask = model.tokenizer.mask_token or "[MASK]"
        raise InputError(
            f"there is no {mask} in the text, so this model predicts nothing",
            fix=f"write {mask} in place of a word, or use a fine-tuned model",
        )
    raise unsupported_function_error(model, "explain", "it has no output to explain")


def make_batch(model: Model, input: TargetInput) -> Batch:
    """A text as a batch of one row on the model's device."""
    device = model.device
    if model.family.kind == "translator":
        inputs = [model.config.bos_id, *_target_ids(input)[:-1]]
        return Batch(
            ids=torch.tensor([inputs], device=device),
            source_ids=torch.tensor([list(input.ids)], device=device),
        )
    ids: Sequence[Any] = input.ids
    if isinstance(model.tokenizer, WordCharacterTokenizer):  # the rows of characters
        rows: list[Any] = input.words.ids
        ids = [BOS_ROW if isinstance(one, int) else one for one in rows]
    types = torch.tensor([list(input.type_ids)], device=device)
    return Batch(ids=torch.tensor([list(ids)], device=device), type_ids=types)


def _target_ids(input: TargetInput) -> list[int]:
    if input.target is None:
        raise InputError(
            "the translation is empty, so there is nothing to explain",
            fix="give the translation as target text",
        )
    return list(input.target.ids)


def _compute(
    model: Model, inputs: Sequence[TargetInput], head: str, positions: Iterable[Sequence[int]]
) -> list[Tensor]:
    """The logits of a head at positions of each input (p c)."""
    items = [
        EncodedExample(ids=list(one.ids), type_ids=list(one.type_ids), positions=list(some))
        for one, some in zip(inputs, positions, strict=True)
    ]
    return compute_logits(model, items, head=head)


def _mask_scores(model: Model, inputs: Sequence[TargetInput], target: Target) -> list[list[Score]]:
    mask_id = model.tokenizer.mask_id
    masks = [[n for n, id_ in enumerate(one.ids) if id_ == mask_id] for one in inputs]
    if target is not None:
        ids = [_find_token(model, word) for word in _as_list(target)]
        return [
            [
                HeadScore("mlm", position, id_, decode_token(model, id_) or "")
                for position, id_ in zip(some, ids, strict=False)
            ]
            for some in masks
        ]
    found: list[list[Score]] = []
    for some, logits in zip(masks, _compute(model, inputs, "mlm", masks), strict=True):
        best = [top_tokens(model, row[: model.tokenizer.vocab_size], 1)[0][0] for row in logits]
        found.append(
            [
                HeadScore("mlm", position, id_, decode_token(model, id_) or "")
                for position, id_ in zip(some, best, strict=True)
            ]
        )
    return found


def _find_token(model: Model, word: str) -> int:
    """The id of a word that is one token; `##` tokens are found by their own name."""
    tokenizer = model.tokenizer
    if (own := tokenizer.token_to_id(word)) is not None and own not in tokenizer.special_ids:
        return own
    (ids,) = tokenizer.encode_ids([word], add_special_tokens=False)
    if len(ids) == 1 and ids[0] != tokenizer.unk_id:
        return ids[0]
    tokens = ", ".join(tokenizer.id_to_token(id_) for id_ in ids)
    raise InputError(
        f"the target {word!r} is not one token of the vocabulary"
        + (f", but {len(ids)}: {tokens}" if len(ids) > 1 else ""),
        fix="use a word that is one token, such as one that `cloze fill` predicts for this text",
    )


def _class_scores(model: Model, inputs: Sequence[TargetInput], target: Target) -> list[list[Score]]:
    head = "sequence" if "sequence" in model.task_heads else "nsp"
    labels = model.labels if head == "sequence" else NSP_LABELS
    activation: Activation = "softmax"
    if head == "sequence" and (model.problem_type == MULTI_LABEL or len(labels) == 1):
        activation = "sigmoid"
    if head == "sequence" and model.problem_type == "regression":
        activation = "none"

    def make(index: int) -> Score:
        return HeadScore(head, 0, index, labels[index], activation)

    if target is not None:
        chosen = [make(find_name(one, labels, "label")) for one in _as_list(target)]
        return [list(chosen) for _ in inputs]
    logits = _compute(model, inputs, head, [[0]] * len(inputs))
    return [[make(int(one[0].argmax()))] for one in logits]


def _choice_scores(
    model: Model, inputs: Sequence[TargetInput], target: Target
) -> list[list[Score]]:
    if target is not None:
        raise InputError(
            "a model for multiple choice has no targets: it scores the option that it reads",
            fix="leave out the target, and give the text and one option as a pair",
        )
    computed = _compute(model, inputs, "choice", [[0]] * len(inputs))
    logits = [float(one.flatten()[0]) for one in computed]
    found: list[list[Score]] = []
    for number, one in enumerate(inputs):
        others = [logits[n] for n, two in enumerate(inputs) if two.text == one.text and n != number]
        found.append(
            [
                HeadScore(
                    "choice",
                    0,
                    0,
                    one.pair or "",
                    "softmax" if others else "none",
                    torch.tensor(others) if others else None,
                )
            ]
        )
    return found


def _tag_scores(model: Model, inputs: Sequence[TargetInput], target: Target) -> list[list[Score]]:
    words = [list_words(one) for one in inputs]
    positions = [[first for _, first in some] for some in words]
    logits = _compute(model, inputs, "token", positions)
    found: list[list[Score]] = []
    for some, scores in zip(words, logits, strict=True):
        tags = scores.argmax(-1).tolist() if some else []
        every = [_tag_score(model, *word, tag) for word, tag in zip(some, tags, strict=True)]
        if target is None:
            pairs = zip(every, tags, strict=True)
            tagged = [one for one, tag in pairs if model.labels[tag] != OUTSIDE]
            found.append(tagged or every[:1])
        else:
            found.append([_find_tag(model, one, some, tags) for one in _as_list(target)])
    return found


def _find_tag(
    model: Model, target: str, words: Sequence[tuple[str, int]], tags: Sequence[int]
) -> Score:
    word, _, tag = target.partition("=")
    number = find_name(word, [text for text, _ in words], "word")
    index = find_name(tag, model.labels, "tag") if tag else tags[number]
    return _tag_score(model, *words[number], index)


def _tag_score(model: Model, word: str, position: int, tag: int) -> Score:
    return HeadScore("token", position, tag, f"{word}: {model.labels[tag]}")


def list_words(input: TargetInput) -> list[tuple[str, int]]:
    """The words of the text, each with its first token."""
    alignment = input.words
    found: dict[int | None, tuple[str, int]] = {}
    spans = alignment.word_spans()
    for token in alignment.token_range():
        word = alignment.words[token]
        if word not in found:
            start, end = spans[len(found)]
            found[word] = input.text[start:end], token
    return list(found.values())


def _answer_scores(
    model: Model, inputs: Sequence[TargetInput], target: Target
) -> list[list[Score]]:
    if any(one.pair is None for one in inputs):
        raise InputError(
            "a model for question answering reads a question and its context",
            fix="give the question as the text and the context as the pair",
        )
    sides = ("start", "end")
    named = target if isinstance(target, str) and target not in sides else None
    chosen = [side for side in sides if target in (None, named, side)]
    if named is None:
        examples = [
            QuestionExample(question=one.text, context=one.pair or "", origin=Origin(line=number))
            for number, one in enumerate(inputs, 1)
        ]
        predicted = predict_answers(model, examples, whole_words=False)
        spans = [(one.start, one.end) for one in predicted]
    else:
        spans = [_find_in_context(named, one.pair or "") for one in inputs]
    found: list[list[Score]] = []
    for one, (start, end) in zip(inputs, spans, strict=True):
        alignment = one.words
        inside = alignment.tokens_in_span(start, end, 1) or range(1)  # [CLS]: no answer
        tokens = {"start": inside.start, "end": inside.stop - 1}
        found.append(
            [
                HeadScore("span", token, sides.index(side), f"{side}: {alignment.tokens[token]}")
                for side, token in tokens.items()
                if side in chosen
            ]
        )
    return found


def _find_in_context(target: str, context: str) -> tuple[int, int]:
    start = context.find(target)
    if start < 0:
        raise InputError(
            f"the target {target!r} is not in the context",
            fix="use start, end, or a part of the context that could be the answer",
        )
    return start, start + len(target)


def _next_token_scores(
    model: Model, inputs: Sequence[TargetInput], target: Target
) -> list[list[Score]]:
    lm = language_model(model)
    found: list[list[Score]] = []
    for one in inputs:
        last = len(one.ids) - 1
        if target is None:
            id_ = int(lm.next_log_probs(lm.encode_prompt(one.text)).argmax())
        else:
            id_ = find_next_token(lm, _as_list(target)[0])
        found.append([NextTokenScore(last, id_, lm.decode_token(id_))])
    return found


def find_next_token(lm: LanguageModel, word: str) -> int:
    """The first token of a word that continues a text."""
    ids = continue_ids(lm, word)
    if not ids or ids[0] == lm.unk_id:
        raise InputError(
            f"the target {word!r} is not in the vocabulary",
            fix=suggest(word, [token for token in lm.vocabulary if token[:1] == word[:1]][:10_000]),
        )
    return ids[0]


def continue_ids(lm: LanguageModel, text: str) -> list[int]:
    """The tokens of a text that continues another; a space is before its first word."""
    # any word that can be encoded; a model of music reads nothing but events
    before = EVENT_WORDS[0] if EVENT_WORDS[0] in lm.vocabulary else "a"
    whole = lm.encode_prompt(f"{before} {text.strip()}")
    return whole[len(lm.encode_prompt(before)) :]


def _translation_scores(model: Model, input: TargetInput, target: Target) -> list[Score]:
    ids = _target_ids(input)
    assert input.target is not None
    shown = enumerate(zip(ids, input.target.tokens, strict=True))
    every = [TranslationScore(n, id_, name) for n, (id_, name) in shown]
    if target is None:
        return list(every)
    chosen: list[Score] = []
    names = [model.tokenizer.decode([id_], skip_special_tokens=False) for id_ in ids]
    for word in _as_list(target):
        span = _find_word(names, word)
        if span is None:
            text = model.tokenizer.decode(ids)
            raise InputError(
                f"the target {word!r} is not in the translation: {text}",
                fix=f"use one of {_list_names(text.split())}, or give the translation yourself",
            )
        chosen += every[span.start : span.stop]
    return chosen


def _find_word(names: Sequence[str], word: str) -> range | None:
    """The tokens that are a word, without the spaces around it."""
    for start in range(len(names)):
        text = ""
        for stop in range(start, len(names)):
            text += names[stop]
            if text.strip() == word.strip():
                return range(start, stop + 1)
            if len(text.strip()) > len(word):
                break
    return None


def find_name(name: str, names: Sequence[str], kind: str) -> int:
    """The index of a label, tag or word."""
    exact = [n for n, one in enumerate(names) if one == name]
    same = exact or [n for n, one in enumerate(names) if one.lower() == name.lower()]
    if not same:
        raise InputError(
            f"the target {name!r} is not a {kind}",
            fix=f"use one of {_list_names(list(dict.fromkeys(names)))}",
        )
    return same[0]


def _list_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_LISTED:,} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more


def _as_list(target: Any) -> list[str]:  # noqa: ANN401
    return [target] if isinstance(target, str) else [str(one) for one in target]
