"""Texts and their outputs as examples of saliency, for every kind of model."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from cloze.checkpoint.model import Model
from cloze.checkpoint.task import TARGET_TASKS
from cloze.decode.config import BeamConfig, GenerationOptions
from cloze.decode.generator import TextGenerator
from cloze.decode.language import language_model
from cloze.decode.translators import SequenceTranslator
from cloze.errors import InputError
from cloze.interpret.examples import Example
from cloze.interpret.scores import HeadScore, NextTokenScore, Score
from cloze.models.language import LanguageModel
from cloze.tasks.explain.inputs import ExplainInput, encode_input, reads_prompts, show_token
from cloze.tasks.explain.targets import (
    Target,
    continue_ids,
    find_name,
    make_batch,
    resolve_targets,
)
from cloze.tasks.source_to_target import encode_sources, make_translator, search_targets
from cloze.text.joint_bpe import encode_plain
from cloze.text.word_characters import BOS_ROW, WordCharacterTokenizer, encode_word

NEW_TOKENS = 10


@dataclass(frozen=True, kw_only=True)
class SaliencyInput:
    """A text as a model reads it, and the outputs to explain."""

    text: str
    pair: str | None
    # as they are shown: of a translator the source, then bos and the target; the last token of a
    # generated text is an output only, which nothing reads
    tokens: list[str]
    examples: list[Example]  # of each output
    outputs: list[int | None]  # the token that each output is, or stands at
    groups: list[tuple[str, int]]  # parts of the tokens with their names
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """What follows the text: as many tokens as a language model generates, or a given text."""

    new_tokens: int = NEW_TOKENS
    target_text: str | None = None  # of a translator


def make_inputs(
    model: Model,
    texts: Sequence[str],
    pairs: Sequence[str | None],
    target: Target,
    continuation: Continuation,
) -> list[SaliencyInput]:
    """The examples of texts, or of pairs of texts."""
    if model.family.kind == "encoder" and model.task and model.task.name in TARGET_TASKS:
        return [_write_target(model, text, target, continuation) for text in texts]
    if model.family.kind == "translator":
        found = [encode_input(model, text, None, continuation.target_text) for text in texts]
        scores = resolve_targets(model, found, target)
        return [
            _make_translation(model, one, some) for one, some in zip(found, scores, strict=True)
        ]
    encoded = [encode_input(model, *both) for both in zip(texts, pairs, strict=True)]
    if reads_prompts(model):
        return _continue_prompts(model, encoded, target, continuation.new_tokens)
    scores = resolve_targets(model, encoded, target)
    return [_make_input(model, one, some) for one, some in zip(encoded, scores, strict=True)]


def make_options(
    model: Model, text: str, options: Sequence[str], question: str | None, target: Target
) -> list[SaliencyInput]:
    """The examples of the options of a text, one for each."""
    second = options if question is None else [f"{question} {option}" for option in options]
    encoded = [encode_input(model, text, one) for one in second]
    chosen = range(len(options))
    if target is not None:
        name = target if isinstance(target, str) else target[0]
        number = find_name(str(name), options, "option")
        chosen = range(number, number + 1)
    scores = resolve_targets(model, encoded)
    named = [
        [replace(score, name=option) for score in some if isinstance(score, HeadScore)]
        for option, some in zip(options, scores, strict=True)
    ]
    return [_make_input(model, encoded[number], named[number]) for number in chosen]


def _make_input(model: Model, input: ExplainInput, scores: Sequence[Score]) -> SaliencyInput:
    removable = _list_removable(model, input)
    examples = [
        Example(ids=input.ids, type_ids=input.type_ids, score=score, removable=removable)
        for score in scores
    ]
    return SaliencyInput(
        text=input.text,
        pair=input.pair,
        tokens=input.tokens,
        examples=examples,
        outputs=[_find_token(score) for score in scores],
        groups=[],
        note=input.note,
    )


def _find_token(score: Score) -> int | None:
    """The token that a head reads; None if it reads the sequence."""
    if isinstance(score, HeadScore) and score.head in ("mlm", "token", "span"):
        return int(score.position)
    return None


def _list_removable(model: Model, input: ExplainInput) -> list[bool]:
    """Tokens of the text, but no special tokens, such as a [MASK] that is written in it."""
    words, special = input.words, model.tokenizer.special_ids
    return [
        sequence is not None and id_ not in special
        for sequence, id_ in zip(words.sequence_ids, words.ids, strict=True)
    ]


def _make_translation(model: Model, input: ExplainInput, scores: Sequence[Score]) -> SaliencyInput:
    batch = make_batch(model, input)
    target = input.target
    assert target is not None
    ids = batch.ids[0].tolist()  # bos, and the target without its last token
    removable = [*_list_removable(model, input), False, *[True] * (len(ids) - 1)]
    examples = [
        Example(ids=ids, source_ids=input.ids, score=score, removable=removable) for score in scores
    ]
    size, bos = len(input), model.tokenizer.id_to_token(model.config.bos_id)
    return SaliencyInput(
        text=input.text,
        pair=None,
        tokens=[*input.tokens, bos, *target.tokens],
        examples=examples,
        outputs=[size + 1 + int(score.position) for score in scores],
        groups=[("source", size), ("target", 1 + len(target))],
        note=input.note,
    )


def _continue_prompts(
    model: Model, prompts: Sequence[ExplainInput], target: Target, new_tokens: int
) -> list[SaliencyInput]:
    """One output for each generated token, or for each token of the target."""
    lm = language_model(model)
    if target is None:
        generator = TextGenerator(
            model=lm,
            texts=[one.text for one in prompts],
            options=GenerationOptions(temperature=0.0),
            max_new_tokens=new_tokens,
        )
        new = [list(found[0].tokens) for found in generator.generate()]
    else:
        word = target if isinstance(target, str) else " ".join(target)
        ids = continue_ids(lm, word)
        if not ids or lm.unk_id in ids:
            raise InputError(
                f"the target {word!r} has words that are not in the vocabulary",
                fix="use words that the model can generate, such as those of `cloze suggest`",
            )
        new = [ids] * len(prompts)
    return [_make_continuation(model, lm, *both) for both in zip(prompts, new, strict=True)]


def _make_continuation(
    model: Model, lm: LanguageModel, prompt: ExplainInput, new: list[int]
) -> SaliencyInput:
    size, end = len(prompt), getattr(lm, "eos_id", None)
    if not new and end is not None:  # the model ends the text at once
        new = [end]
    new = new[: max(1, model.max_length - size + 1)]  # the last token is not read
    ids: list[Any] = [*prompt.ids, *new]
    if isinstance(model.tokenizer, WordCharacterTokenizer):
        rows: list[Any] = prompt.words.ids
        known = [BOS_ROW if isinstance(one, int) else one for one in rows]
        ids = [*known, *(encode_word(lm.vocabulary[id_]) for id_ in new)]
    names = [lm.decode_token(id_) for id_ in new]
    removable = [*_list_removable(model, prompt), *[True] * len(new)]
    examples = [
        Example(
            ids=ids[: size + number],  # what comes later changes nothing
            score=NextTokenScore(size + number - 1, id_, name),
            removable=removable[: size + number],
        )
        for number, (id_, name) in enumerate(zip(new, names, strict=True))
    ]
    return SaliencyInput(
        text=prompt.text,
        pair=None,
        tokens=[*prompt.tokens, *names],
        examples=examples,
        outputs=list(range(size, size + len(new))),
        groups=[("prompt", size), ("continuation", len(new))],
        note=prompt.note,
    )


def _write_target(
    model: Model, text: str, target: Target, continuation: Continuation
) -> SaliencyInput:
    """The target that a decoder-only translator writes after source and separator."""
    translator = make_translator(model)
    assert isinstance(translator, SequenceTranslator)
    sources, _ = encode_sources(translator, [text], "head", None)
    if not sources:
        raise InputError("the text is empty", fix="pass a text with at least one word")
    source = sources[0]
    if continuation.target_text is not None:
        new = encode_plain(model.tokenizer, [continuation.target_text])[0]
    else:
        found = search_targets(
            translator,
            sources,
            BeamConfig(beam=1, n_best=1),
            max_target_length=lambda ids: 2 * len(ids) + 10,
            batch_tokens=1 << 20,
        )
        new = list(found[0][0].tokens)
    new = (new or [translator.eos_id])[: max(1, model.max_length - len(source) + 1)]
    tokenizer, size = model.tokenizer, len(source)
    shown = [show_token(tokenizer.id_to_token(id_), tokenizer) for id_ in [*source, *new]]
    removable = [False, *[True] * (size - 2), False, *[True] * len(new)]
    numbers = range(len(new))
    if target is not None:
        word = target if isinstance(target, str) else target[0]
        number = find_name(str(word), shown[size:], "token of the target")
        numbers = range(number, number + 1)
    ids = [*source, *new]
    examples = [
        Example(
            ids=ids[: size + number],
            score=NextTokenScore(size + number - 1, new[number], shown[size + number]),
            removable=removable[: size + number],
        )
        for number in numbers
    ]
    return SaliencyInput(
        text=text,
        pair=None,
        tokens=shown,
        examples=examples,
        outputs=[size + number for number in numbers],
        groups=[("source", size), ("target", len(new))],
    )
