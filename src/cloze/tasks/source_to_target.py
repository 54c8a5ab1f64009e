"""What `translate` and `summarize` share: encode sources, search for targets, decode them.

b sources, k hypotheses of each.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from cloze.checkpoint.model import Model, not_a_model_error, unsupported_function_error
from cloze.checkpoint.task import TARGET_TASKS
from cloze.config import one_of
from cloze.data.batch import batch_by_tokens
from cloze.decode.beam import beam_search
from cloze.decode.causal_encoder import make_causal_encoder
from cloze.decode.config import BeamConfig
from cloze.decode.core import Hypothesis
from cloze.decode.translators import EncoderDecoder, SequenceTranslator, Translator
from cloze.errors import FolderError, InputError
from cloze.progress import ProgressCallback
from cloze.results import Result
from cloze.tasks.inputs import OnError, resolve_model
from cloze.text.long_texts import is_long
from cloze.text.truncation import TRUNCATIONS

BATCH_TOKENS = 4096  # source tokens in a batch, times the beam size
GPU_BATCH_TOKENS = 65_536


@dataclass(frozen=True, kw_only=True)
class TargetCandidate:
    """One target: a translation or a summary."""

    text: str
    score: float  # the log-probability divided by the length penalty
    log_probability: float
    finished: bool  # False: it reached the maximum length

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the target."""
        return {
            "text": self.text,
            "score": self.score,
            "log_probability": self.log_probability,
            "finished": self.finished,
        }


C = TypeVar("C", bound=TargetCandidate)


@dataclass(frozen=True, kw_only=True, repr=False)
class TargetResult(Result, Generic[C]):
    """A source and its targets, best first; no candidates if it is too long."""

    target_name: ClassVar[str]  # of a target in tables
    targets_name: ClassVar[str]  # of all of them in JSON

    source: str
    candidates: tuple[C, ...]
    truncated_chars: int = 0  # characters of the source left out by truncation

    @property
    def text(self) -> str:
        """The best target."""
        return self.candidates[0].text if self.candidates else ""

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the source."""
        return {
            "source": self.source,
            self.targets_name: [one.to_dict() for one in self.candidates],
            "truncated_chars": self.truncated_chars,
        }

    def to_records(self) -> list[dict[str, Any]]:
        """A row per target, best first."""
        return [
            {
                "source": self.source,
                self.target_name: one.text,
                "score": one.score,
                "log_probability": one.log_probability,
                "finished": one.finished,
            }
            for one in self.candidates
        ]


def open_target_model(model: object, function: str) -> Model:
    """Load a model for `translate` or `summarize`, and check that it was trained for it."""
    found = resolve_model(model)
    if not isinstance(found, Model):
        raise not_a_model_error(model)
    if function not in found.capabilities:
        trained = found.task.name if found.task else ""
        reason = f"it was trained to {trained}" if trained in TARGET_TASKS else ""
        raise unsupported_function_error(found, function, reason)
    return found


def make_translator(model: Model) -> Translator[Any]:
    """The interface of a model that writes a target for each source."""
    task = model.task
    if model.family.kind == "translator":
        return EncoderDecoder(
            model=model, max_trained_source=task.max_source_length if task else None
        )
    assert task is not None
    tokenizer = model.tokenizer
    separator = task.separator or tokenizer.sep_token
    separator_id = None if separator is None else tokenizer.token_to_id(separator)
    if separator_id is None:
        raise FolderError(
            f"the separator {separator!r} is not in the vocabulary",
            fix="use tokenizer and cloze.json of the same model",
        )
    half = model.max_length // 2
    return SequenceTranslator(
        decoder=make_causal_encoder(model),
        separator_id=separator_id,
        max_source_length=min(task.max_source_length or half, model.max_length),
    )


def encode_sources(
    translator: Translator[Any],
    texts: Sequence[str],
    truncation: str,
    on_error: OnError | None,
    name: str = "sentence",
) -> tuple[dict[int, list[int]], dict[int, int]]:
    """The ids of the texts that are not blank, and the characters left out, by index."""
    one_of("truncation", truncation, TRUNCATIONS)
    filled = [row for row, text in enumerate(texts) if text.strip()]
    most = translator.max_source_length
    encoded = translator.encode_sources([texts[row] for row in filled])
    found = dict(zip(filled, encoded, strict=True))
    truncated: dict[int, int] = {}
    for row, ids in list(found.items()):
        if len(ids) <= most:
            continue
        if truncation != "error":
            found[row], truncated[row] = translator.truncate_source(texts[row], truncation)
            continue
        count = f"{'over ' if is_long(texts[row]) else ''}{len(ids):,} tokens"
        limit = "the model has {} positions" if translator.has_positions else "the limit is {}"
        if isinstance(translator, SequenceTranslator):
            limit = "the model reads at most {} of a source"
        error = InputError(
            f"{name} {row + 1:,} has {count} (with the end token), but "
            + limit.format(f"{most:,}"),
            fix=f"split the {name}, or choose a truncation: head, tail, head+tail",
        )
        if on_error is None:
            raise error
        on_error(row, error)
        del found[row]
    return found, truncated


def search_targets(
    translator: Translator[Any],
    sources: Mapping[int, Sequence[int]],
    search: BeamConfig,
    *,
    max_target_length: Callable[[Sequence[int]], int],
    batch_tokens: int,
    stage: str = "sentences",
    progress: ProgressCallback | None = None,
) -> dict[int, list[Hypothesis]]:
    """The best targets of each source, by the same keys.

    `max_target_length` is called with a source and returns the number of tokens of its target, at
    most; the positions of the model may allow fewer. A batch has at most `batch_tokens` source
    tokens, times the beam size.
    """
    found: dict[int, list[Hypothesis]] = {}
    order, done = list(sources), 0
    sizes = [search.beam * len(ids) for ids in sources.values()]
    for batch in batch_by_tokens(sizes, batch_tokens):
        rows = [order[n] for n in batch]
        some = [sources[row] for row in rows]
        tokens, state = translator.start(some)
        limits = [translator.limit_target(ids, max_target_length(ids)) for ids in some]
        if isinstance(translator, SequenceTranslator):
            state = translator.reserve(state, max(limits))
        hypotheses = beam_search(
            translator, state, tokens, search, eos_id=translator.eos_id, max_lengths=limits
        )
        found.update(zip(rows, hypotheses, strict=True))
        done += len(batch)
        if progress:
            progress(stage, done, len(sources))
    return found
