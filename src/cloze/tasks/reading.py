"""Texts as a model reads them: one sequence each, or several windows where a text is too long."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cloze.checkpoint.model import Model
from cloze.checkpoint.task import Task
from cloze.config import one_of
from cloze.errors import ConfigError, InputError
from cloze.tasks.texts import OnError
from cloze.text.alignment import TokenAlignment
from cloze.text.truncation import TRUNCATIONS

OnTruncated = Callable[
    [int, int], None
]  # the number of the text, and how many pieces were left out


@dataclass(frozen=True, kw_only=True)
class EncodedText:
    """One text: its sequences of ids, and the alignment where someone will ask for it."""

    sequences: tuple[list[int], ...]
    encoding: TokenAlignment | None = None  # of the whole text, or of what a policy left of it
    windows: tuple[
        TokenAlignment, ...
    ] = ()  # one for each sequence, when the text was read in windows

    @property
    def truncated(self) -> int:
        """Pieces that a policy left out."""
        return sum(self.encoding.num_truncated) if self.encoding else 0


def encode_texts(
    model: Model,
    texts: Sequence[str],
    *,
    policy: str | None = None,
    stride: int | None = None,
    aligned: bool = False,
    on_error: OnError | None = None,
) -> dict[int, EncodedText]:
    """The readings by number of the text; those too long for the model by `policy`.

    A sentence-transformers folder has its texts cut at its limit (`head`) when none is given.
    Otherwise a text too long is an error: raised, or handed to `on_error` while the others go on.
    """
    policy = _policy(model, policy, stride)
    readings: dict[int, EncodedText] = {}
    for number, ids in enumerate(model.tokenizer.encode_ids(texts)):
        try:
            if len(ids) > model.limit:
                readings[number] = _long(model, texts[number], policy, stride)
            elif aligned:
                encoding = model.tokenizer.encode(texts[number])
                readings[number] = EncodedText(sequences=(encoding.ids,), encoding=encoding)
            else:  # most texts of most calls: no alignment is made for them
                readings[number] = EncodedText(sequences=(ids,))
        except InputError as error:
            if on_error is None:
                raise InputError(f"text {number + 1}: {error.problem}", fix=error.fix) from None
            on_error(number, error)
    return readings


def _policy(model: Model, policy: str | None, stride: int | None) -> str | None:
    if policy is not None:
        one_of("length policy", policy, TRUNCATIONS)
    if stride is not None and policy != "window":
        raise InputError(
            "there is no stride to choose where texts are not read in windows",
            fix="choose the length policy window, or leave the stride out",
        )
    return "head" if policy is None and model.pooling else policy


def _long(model: Model, text: str, policy: str | None, stride: int | None) -> EncodedText:
    tokenizer = model.tokenizer
    if policy != "window":
        encoding = tokenizer.encode(text, max_length=model.limit, truncation=policy)
        return EncodedText(sequences=(encoding.ids,), encoding=encoding)
    # a quarter of the window is shared with the one before, so that no token lacks context
    overlap = model.limit // 4 if stride is None else stride
    windows = tuple(tokenizer.encode_windows(text, max_length=model.limit, overlap=overlap))
    return EncodedText(
        sequences=tuple(window.ids for window in windows),
        encoding=tokenizer.encode(text),
        windows=windows,
    )


def check_pair_support(model: Model) -> None:
    """Raise, before any work, where the model does not know the second text of a pair."""
    known = getattr(model.config, "type_vocab_size", 0)
    if known and max(model.tokenizer.encode("a", "a").type_ids, default=0) >= known:
        raise ConfigError(
            f"this model cannot read pairs of texts: it knows {known} segment, and a pair has two",
            fix="use a model whose type_vocab_size is 2, or one made for pairs",
        )


def encode_long(
    model: Model, text: str, pair: str | None = None, *, task: Task, name: object
) -> list[TokenAlignment]:
    """A text or pair too long for the model as its task reads it: in one piece, or in windows.

    Windows share `task.stride` tokens, or a quarter of what slides by. Of a pair the text stands
    in every window. As in `read`, a sentence-transformers folder cuts where no policy is given.
    """
    tokenizer = model.tokenizer
    policy = "head" if task.policy is None and model.pooling else task.policy
    try:
        if policy != "window":
            return [tokenizer.encode(text, pair, max_length=model.limit, truncation=policy)]
        stride = task.stride
        if stride is None:
            fixed = 0 if pair is None else len(tokenizer.encode(text, add_special_tokens=False))
            room = model.limit - fixed - tokenizer.num_special_tokens(pair=pair is not None)
            stride = max(0, room // 4)
        return tokenizer.encode_windows(text, pair, max_length=model.limit, overlap=stride)
    except InputError as error:
        raise InputError(f"{name}: {error.problem}", fix=error.fix) from None
