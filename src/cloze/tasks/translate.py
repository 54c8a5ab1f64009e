"""`translate`: sentences in another language.  b sentences, s source tokens, t target tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypedDict, Unpack, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.checkpoint.translator import Translator
from cloze.config import in_range, number, one_of
from cloze.decode.beam import BeamConfig, beam_search
from cloze.decode.core import Hypothesis
from cloze.errors import InputError
from cloze.explain.capture import capture
from cloze.files import PathLike
from cloze.models.seq2seq import Seq2Seq
from cloze.nn.attention import CrossAttention
from cloze.progress import ProgressCallback
from cloze.tasks.batches import batch_by_tokens
from cloze.tasks.door import open_model
from cloze.tasks.pieces import join_words
from cloze.tasks.texts import OnError, check_texts
from cloze.text.truncation import TRUNCATIONS, truncate

BATCH_TOKENS = 4096  # of source, with all hypotheses: read at once
END = "⏎"  # how the end of a sentence is shown
# Tokens of a source where the model itself sets no end. Far beyond any sentence: what is longer is
# a line that was never split, and would be searched for minutes.
MAX_SOURCE_TOKENS = 1024


@dataclass(frozen=True, kw_only=True, eq=False)
class Alignment:
    """How much of each source word went into each word of the translation."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: NDArray[np.float32]  # target words × source words; a row sums to 1

    @property
    def hard(self) -> tuple[int, ...]:
        """For each target word the source word it looks at most."""
        return tuple(int(n) for n in self.weights.argmax(1))


@dataclass(frozen=True, kw_only=True)
class TranslationCandidate:
    """One translation."""

    text: str
    score: float  # the log-probability by the length penalty
    log_probability: float
    finished: bool  # False: it was cut off at the most tokens a translation may have
    alignment: Alignment | None = None


@dataclass(frozen=True, kw_only=True)
class Translation:
    """A sentence and its translations, best first; none where it could not be translated."""

    source: str
    candidates: tuple[TranslationCandidate, ...]
    truncated: int = 0  # tokens of the source that a length policy left out

    @property
    def text(self) -> str:
        """The best one."""
        return self.candidates[0].text if self.candidates else ""


class Options(TypedDict, total=False):
    """The choices of `translate`."""

    beam: int
    best: int
    penalty: str
    alpha: float
    no_repeat: int
    ratio: float
    align: bool
    policy: str | None
    batch_tokens: int
    on_error: OnError | None
    progress: ProgressCallback | None


@overload
def translate(  # type: ignore[overload-overlap]  # a str is a sequence of str, too
    model: Translator | PathLike, texts: str, **options: Unpack[Options]
) -> Translation: ...
@overload
def translate(
    model: Translator | PathLike, texts: Sequence[str], **options: Unpack[Options]
) -> list[Translation]: ...
@torch.inference_mode()
def translate(
    model: Translator | PathLike,
    texts: str | Sequence[str],
    *,
    beam: int = 4,
    best: int = 1,
    penalty: str = "wu",
    alpha: float = 0.6,
    no_repeat: int = 0,
    ratio: float = 2.0,
    align: bool = False,
    policy: str | None = None,
    batch_tokens: int = BATCH_TOKENS,
    on_error: OnError | None = None,
    progress: ProgressCallback | None = None,
) -> Translation | list[Translation]:
    """The likeliest translations of a sentence, or of each of several.

    As many come back as were given: a blank line gives a blank translation. Characters that were
    never seen are spelled in bytes. A sentence longer than learned positions reach is an error, or
    is cut by `policy` (head, tail, head+tail); with `on_error` it is reported, has no candidates,
    and the others go on. For sinusoidal positions and recurrent nets, which have no end of their
    own, it is `LONGEST`, or the longest sentence that the model learned from.

    Args:
        model: a translator, of either kind, or its folder.
        texts: a sentence, or several.
        beam: hypotheses that are followed; 1 is greedy.
        best: translations to give back, at most `beam`.
        penalty: of length: wu or average.
        alpha: its strength; 0: none.
        no_repeat: no n-gram of so many pieces comes twice; 0: any may.
        ratio: a translation has at most this many times its source's tokens, and 10 more.
        align: say which words each word came from.
        policy: for sentences that are too long.
        batch_tokens: source tokens, with all hypotheses, that are read at once.
        on_error: who is told of a sentence that is too long.
        progress: who is told how many are done.
    """
    search = BeamConfig(
        size=beam,
        n_best=best,
        length_normalization=penalty,  # type: ignore[arg-type]
        length_penalty=alpha,
        no_repeat_ngram_size=no_repeat,
    )
    number("ratio", ratio, 0.0, 1e3)
    in_range("batch_tokens", batch_tokens, 1, 1 << 30)
    model = open_model(model, "translate", Translator)
    if align and isinstance(model.module, Seq2Seq) and model.module.score is None:
        raise InputError("this model has no attention to align by", fix="train one with attention")
    alone = isinstance(texts, str)
    rows = check_texts(texts)
    sources, cut = _read(model, rows, policy, None if alone else on_error)
    found: dict[int, tuple[TranslationCandidate, ...]] = {}
    said, done = list(sources), 0
    for batch in batch_by_tokens([beam * len(ids) for ids in sources.values()], batch_tokens):
        numbers = [said[n] for n in batch]
        some = _searched(model, [sources[n] for n in numbers], search, ratio)
        for row, hypotheses in zip(numbers, some, strict=True):
            found[row] = tuple(
                _candidate(model, sources[row], one, align=align) for one in hypotheses
            )
        done += len(batch)
        if progress:
            progress("sentences", done, len(sources))
    blank = TranslationCandidate(text="", score=0.0, log_probability=0.0, finished=True)
    made = [
        Translation(
            source=text,
            candidates=found.get(row, () if text.strip() else (blank,)),
            truncated=cut.get(row, 0),
        )
        for row, text in enumerate(rows)
    ]
    return made[0] if alone else made


def _read(
    model: Translator, texts: Sequence[str], policy: str | None, on_error: OnError | None
) -> tuple[dict[int, list[int]], dict[int, int]]:
    """The ids of each sentence that says something, and what was cut of them."""
    if policy is not None:
        one_of("length policy", policy, TRUNCATIONS)
    told = [row for row, text in enumerate(texts) if text.strip()]
    found = dict(zip(told, model.encode([texts[row] for row in told]), strict=True))
    cut: dict[int, int] = {}
    most = model.limit or max(MAX_SOURCE_TOKENS, model.longest)
    for row, ids in list(found.items()):
        if len(ids) <= most:
            continue
        if policy is not None:
            spans = truncate(policy, len(ids) - 1, most - 1)
            found[row] = [ids[n] for span in spans for n in span] + ids[-1:]
            cut[row] = len(ids) - len(found[row])
            continue
        error = InputError(
            f"sentence {row + 1:,} has {len(ids):,} tokens, its end included; "
            + (
                f"the model has {most:,} positions" if model.limit else f"{most:,} are read at most"
            ),
            fix="split it, or choose a length policy: head, tail, head+tail",
        )
        if on_error is None:
            raise error
        on_error(row, error)
        del found[row]
    return found, cut


def _searched(
    model: Translator, sources: Sequence[Sequence[int]], search: BeamConfig, ratio: float
) -> list[list[Hypothesis]]:
    config, most = model.config, model.limit or 1 << 30
    source, real = pad_sequences(sources, model.device)
    limits = [min(int(ratio * len(ids)) + 10, most) for ids in sources]
    first = torch.full((len(sources),), config.bos_id, device=model.device)
    state = model.module.init_state(source, real)
    return beam_search(model.module, state, first, search, eos=config.eos_id, limits=limits)  # type: ignore[misc]


def pad_sequences(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Ids (b s), and which of them are real."""
    lengths = torch.tensor([len(row) for row in rows])
    real = torch.arange(int(lengths.max())) < lengths[:, None]
    ids = torch.zeros(real.shape, dtype=torch.long)
    ids[real] = torch.tensor([id_ for row in rows for id_ in row])
    return ids.to(device), real.to(device)


def _candidate(
    model: Translator, source: Sequence[int], found: Hypothesis, *, align: bool
) -> TranslationCandidate:
    return TranslationCandidate(
        text=model.decode(found.tokens),
        score=found.score,
        log_probability=found.log_probability,
        finished=found.finished,
        alignment=align_words(model, source, found.tokens, ended=found.finished) if align else None,
    )


@torch.inference_mode()
def align_words(
    model: Translator, source: Sequence[int], target: Sequence[int], *, ended: bool = True
) -> Alignment:
    """Which source words each word of a translation came from, both given as ids.

    Of a Transformer the mean over the heads of the layer before the last, where cross-attention is
    nearest to an alignment (Garg et al. 2019). Pieces of a source word add up; those of a target
    word are averaged. A translation that has not ended says no end, and has no row for it.
    """
    ids, real = pad_sequences([source], model.device)
    before = target if ended else target[:-1]  # what stood there when each token was said
    inputs = torch.tensor([[model.config.bos_id, *before]], device=model.device)
    if isinstance(model.module, Seq2Seq):
        weights = model.module.compute_alignment(ids, real, inputs)[0]  # t s
    else:
        with capture(model.module, CrossAttention) as seen:
            model.module(ids, real, inputs)
        weights = seen[max(len(seen) - 2, 0)][0].mean(0)
    columns = list(_words(model, source[:-1], ended=True))
    rows = list(_words(model, target, ended=ended))
    joined = torch.stack([weights[:, first:last].sum(1) for _, first, last in columns], 1)
    joined = torch.stack([joined[first:last].mean(0) for _, first, last in rows])
    return Alignment(
        source=tuple(word for word, _, _ in columns),
        target=tuple(word for word, _, _ in rows),
        weights=joined.float().cpu().numpy(),
    )


def _words(model: Translator, ids: Sequence[int], *, ended: bool) -> Iterator[tuple[str, int, int]]:
    yield from join_words(model.tokenizer, ids)
    if ended:
        yield END, len(ids), len(ids) + 1
