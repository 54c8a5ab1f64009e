"""The tokens of a text as a model reads them, for every view: `encode_input`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from cloze.checkpoint.model import Model
from cloze.errors import InputError
from cloze.tasks.inputs import MAX_CHARS, warn_truncated
from cloze.text.alignment import TokenAlignment
from cloze.text.tokenizer import Tokenizer

_SPACES = ("Ġ", "▁")  # that byte-level BPE and SentencePiece write before a word


@dataclass(frozen=True, kw_only=True)
class TokenizedText:
    """Tokens of a text as they are shown, with their ids and their alignment to the text."""

    text: str
    pair: str | None
    tokens: list[str]
    ids: list[int]  # of the model; `words.ids` are those of the tokenizer
    words: TokenAlignment

    @property
    def type_ids(self) -> list[int]:
        return self.words.type_ids

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """Character positions in the text, or in its pair; (0, 0) of special tokens."""
        return self.words.offsets

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, kw_only=True)
class ExplainInput(TokenizedText):
    """The input of a view; of a translator these are the tokens of the source."""

    target: TokenizedText | None = None  # of a translator: the translation, and its end token
    truncated_chars: int = 0  # characters left out because the text is too long

    @property
    def note(self) -> str:
        """What a view says about a text that was truncated; empty for others."""
        if not self.truncated_chars:
            return ""
        return (
            f"The text is too long for this model: {self.truncated_chars:,} characters were not "
            f"read ({len(self):,} tokens are shown)."
        )


def encode_input(
    model: Model, text: str, pair: str | None = None, target_text: str | None = None
) -> ExplainInput:
    """Encode a text or a pair as the model reads it; a text that is too long is truncated.

    An encoder reads its special tokens, a language model what `suggest` reads: the begin symbol, if
    it has one, and the last tokens of a text that is too long. For a translator, the target is
    `target_text`, or else the greedy translation.
    """
    check_text("text", text)
    if pair is not None:
        check_text("pair", pair)
        _check_pair(model)
    if target_text is not None and model.family.kind != "translator":
        raise InputError(
            f"this model ({model.family.description}) writes no target text",
            fix="leave out the target text, or use a translator",
        )
    if model.family.kind == "translator":
        return _encode_translation(model, text, target_text)
    if reads_prompts(model):
        found = _encode_prompt(model, text)
    else:
        most = model.max_length
        aligned = model.tokenizer.encode(text, pair, max_length=most, truncation="head")
        found = _make_input(text, aligned, aligned.ids, model.tokenizer, pair)
    if found.truncated_chars:
        fix = "the view shows the tokens that were read"
        warn_truncated([found.truncated_chars], model.max_length, fix=fix)
    return found


def check_text(name: str, text: object) -> None:
    """Raise unless a text is a string that is neither empty nor too long to show."""
    if not isinstance(text, str):
        raise InputError(
            f"{name} is of type {type(text).__name__}, not a text",
            fix="pass one text; views show one text at a time",
        )
    if not text.strip():
        raise InputError(f"the {name} is empty", fix="pass a text with at least one word")
    if len(text) > MAX_CHARS:
        raise InputError(
            f"the {name} has {len(text):,} characters; views accept {MAX_CHARS:,}",
            fix="pass a part of it, such as a paragraph",
        )


def reads_prompts(model: Model) -> bool:
    """Whether the model predicts the next token of a text, without a head for another task."""
    if model.family.kind == "language_model":
        return not model.task_heads or "lm" in model.task_heads
    lm_only = set(model.task_heads) <= {"lm", "mlm"} and bool(model.task_heads)
    return model.family.kind == "encoder" and model.is_causal and lm_only


def _check_pair(model: Model) -> None:
    if model.family.kind != "encoder" or reads_prompts(model):
        raise InputError(
            f"this model ({model.family.description}) reads one text, not a pair",
            fix="leave out the second text, or join both texts to one",
        )
    from cloze.tasks.inference import check_pair_support

    check_pair_support(model)


def _encode_prompt(model: Model, text: str) -> ExplainInput:
    """The tokens that a language model reads before it predicts the next one."""
    from cloze.decode.language import language_model

    adapter = language_model(model)
    tokenizer = model.tokenizer
    begins = (
        adapter.encode_prompt("")[:1]
        if _adds_begin(adapter.encode_prompt(text), text, tokenizer)
        else []
    )
    most = model.max_length - len(begins)
    aligned = tokenizer.encode(text, max_length=most, truncation="tail", add_special_tokens=False)
    if not aligned.ids:
        raise InputError("the text has no tokens", fix="pass a text with at least one word")
    own = adapter.encode_prompt(text)[-len(aligned.ids) :]
    begin_tokens = [adapter.vocabulary[id_] for id_ in begins]
    return _make_input(
        text, _add_special(aligned, begins, begin_tokens), [*begins, *own], tokenizer
    )


def _adds_begin(prompt: Sequence[int], text: str, tokenizer: Tokenizer) -> bool:
    (plain,) = tokenizer.encode_ids([text], add_special_tokens=False)
    return len(prompt) > len(plain)


def _encode_translation(model: Model, text: str, target_text: str | None) -> ExplainInput:
    from cloze.tasks.source_to_target import make_translator

    if target_text is not None:
        check_text("target text", target_text)
    translator = make_translator(model)
    source = _encode_sentence(model, text, translator.max_source_length)
    if target_text is None:
        target = _translate(model, translator, source.ids)
    else:
        most = translator.limit_target(source.ids, 1 << 30)
        target = _encode_sentence(model, target_text, most)
    if source.truncated_chars:
        fix = "the view shows the tokens that were read"
        warn_truncated([source.truncated_chars], translator.max_source_length, fix=fix)
    return replace(source, target=target)


def _translate(model: Model, translator: Any, source: Sequence[int]) -> ExplainInput:  # noqa: ANN401
    """The greedy translation, as the model generates it."""
    from cloze.decode.config import BeamConfig
    from cloze.tasks.source_to_target import search_targets
    from cloze.text.joint_bpe import decode_sentence

    found = search_targets(
        translator,
        {0: source},
        BeamConfig(beam=1, n_best=1),
        max_target_length=lambda ids: 2 * len(ids) + 10,
        batch_tokens=1 << 20,
    )[0][0]
    tokenizer, ids = model.tokenizer, list(found.tokens)
    text = decode_sentence(tokenizer, ids)
    aligned = _align_generated(tokenizer, ids, text)
    if found.finished:
        eos = tokenizer.id_to_token(translator.eos_id)
        aligned = _add_special(aligned, [translator.eos_id], [eos], after=True)
    return _make_input(text, aligned, aligned.ids, tokenizer)


def _align_generated(tokenizer: Tokenizer, ids: list[int], text: str) -> TokenAlignment:
    """The alignment of generated tokens, which may not be those that the text is encoded as."""
    from cloze.tasks.word_alignment import join_words

    words: list[int | None] = [None] * len(ids)
    offsets = [(0, 0)] * len(ids)
    end = 0
    for number, (word, first, last) in enumerate(join_words(tokenizer, ids)):
        start = max(text.find(word, end), end)
        end = min(start + len(word), len(text))
        words[first:last] = [number] * (last - first)
        offsets[first:last] = [(start, end)] * (last - first)
    return TokenAlignment(
        ids=ids,
        tokens=[tokenizer.id_to_token(id_) for id_ in ids],
        offsets=offsets,
        words=words,
        type_ids=[0] * len(ids),
        sequence_ids=[0] * len(ids),
        kept_ranges=((range(len(ids)),) if ids else (), ()),
    )


def _encode_sentence(model: Model, text: str, max_length: int) -> ExplainInput:
    """The tokens of a sentence and the end token, as translators read them."""
    from cloze.text.joint_bpe import add_prefix_space

    tokenizer = model.tokenizer
    assert tokenizer.eos_id is not None
    aligned = add_prefix_space(tokenizer).encode(
        text, max_length=max_length - 1, truncation="head", add_special_tokens=False
    )
    eos = tokenizer.id_to_token(tokenizer.eos_id)
    whole = _add_special(aligned, [tokenizer.eos_id], [eos], after=True)
    return _make_input(text, whole, whole.ids, tokenizer)


def _add_special(
    aligned: TokenAlignment, ids: Sequence[int], tokens: Sequence[str], *, after: bool = False
) -> TokenAlignment:
    """The alignment with special tokens before or after the text."""

    def add(special: Sequence[object], others: Sequence[object]) -> list[object]:
        return [*others, *special] if after else [*special, *others]

    count = len(ids)
    return replace(
        aligned,
        ids=add(ids, aligned.ids),  # type: ignore[arg-type]
        tokens=add(tokens, aligned.tokens),  # type: ignore[arg-type]
        offsets=add([(0, 0)] * count, aligned.offsets),  # type: ignore[arg-type]
        words=add([None] * count, aligned.words),  # type: ignore[arg-type]
        type_ids=add([0] * count, aligned.type_ids),  # type: ignore[arg-type]
        sequence_ids=add([None] * count, aligned.sequence_ids),  # type: ignore[arg-type]
    )


def _make_input(
    text: str,
    aligned: TokenAlignment,
    ids: Sequence[int],
    tokenizer: Tokenizer,
    pair: str | None = None,
) -> ExplainInput:
    return ExplainInput(
        text=text,
        pair=pair,
        tokens=[show_token(token, tokenizer) for token in aligned.tokens],
        ids=list(ids),
        words=aligned,
        truncated_chars=aligned.truncated_chars,
    )


def show_token(token: str, tokenizer: Tokenizer) -> str:
    """A token as it is shown: without the sign for the space before a word, bytes decoded."""
    if tokenizer.kind in ("wordpiece", "word", "char", "midi"):
        return token
    id_ = tokenizer.token_to_id(token)
    text = "" if id_ is None else tokenizer.decode([id_], skip_special_tokens=False).strip()
    if text and "\N{REPLACEMENT CHARACTER}" not in text:
        return text
    shown = token
    for space in _SPACES:
        shown = shown.removeprefix(space)
    return shown or "␣"
