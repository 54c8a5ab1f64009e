"""Sampling: draw the next token from the whole vocabulary, or from its most probable tokens.

b rows, t steps, v vocabulary.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cloze.config import in_range
from cloze.decode.config import SamplingOptions
from cloze.decode.core import FinishReason, Hypothesis, IncrementalDecoder, S, ShouldStop
from cloze.decode.history import History
from cloze.nn.utils import float64_device

_TOP_TOKENS = (512, 8192)  # among which most draws fall, and most others
_ROUNDING = 1e-12  # of sums of probabilities in float64


def filter_probabilities(log_probs: Tensor, sampling: SamplingOptions) -> tuple[Tensor, Tensor]:
    """Probabilities in descending order and their token ids, from log-probabilities: b v each.

    They sum to one; tokens that a filter excludes have probability 0. The log-probabilities need
    not be normalized.
    """
    ranked = torch.sort(log_probs, dim=-1, descending=True, stable=True)
    values, ids = ranked.values.double(), ranked.indices
    if sampling.is_greedy:
        greedy = torch.zeros_like(values)
        greedy[:, 0] = 1.0
        return greedy, ids
    # the maximum becomes 0, so that a low temperature does not overflow
    scaled = (values - values[:, :1]) / sampling.temperature
    probs = apply_top_p(apply_top_k(scaled.softmax(-1), sampling.top_k), sampling.top_p)
    return apply_min_p(probs, scaled, sampling.min_p), ids


def apply_top_k(probs: Tensor, top_k: int | None) -> Tensor:
    """Keep the first k of probabilities in descending order.  Fan et al. 2018."""
    if top_k is None:
        return probs
    probs = probs.clone()
    probs[:, top_k:] = 0.0
    return probs / probs.sum(-1, keepdim=True)


def apply_top_p(probs: Tensor, top_p: float) -> Tensor:
    """Keep the first of probabilities in descending order that sum to p.  Holtzman et al. 2020."""
    if top_p == 1:
        return probs
    before = probs.cumsum(-1) - probs  # the first token that reaches p is included
    probs = probs.masked_fill(before >= top_p, 0.0)
    return probs / probs.sum(-1, keepdim=True)


def apply_min_p(probs: Tensor, scaled: Tensor, min_p: float) -> Tensor:
    """Keep probabilities of at least p times the largest, log ratios given.  Nguyen et al. 2024."""
    if min_p == 0:
        return probs
    probs = probs.masked_fill(scaled.exp() < min_p, 0.0)
    return probs / probs.sum(-1, keepdim=True)


@dataclass(kw_only=True)
class SampledRow:
    """A sequence that is being sampled."""

    tokens: list[int] = field(default_factory=list)  # without eos
    log_probability: float = 0.0  # of the tokens, and of eos if it was sampled
    finish_reason: FinishReason | None = None  # None: it is not finished

    def update(self, token: int, log_prob: float, is_allowed: bool, eos_id: int | None) -> None:
        """Append a token, or finish at eos or where no token is allowed."""
        if not is_allowed:
            self.finish_reason = "end"
            return
        self.log_probability += log_prob
        if token == eos_id:
            self.finish_reason = "end"
        else:
            self.tokens.append(token)

    def make_hypothesis(self) -> Hypothesis:
        """The finished sequence; one that is not finished has reached its maximum length."""
        return Hypothesis(
            tokens=tuple(self.tokens),
            score=self.log_probability,
            log_probability=self.log_probability,
            finish_reason=self.finish_reason or "length",
        )


def sample(  # noqa: PLR0913 - the options are keyword-only arguments
    decoder: IncrementalDecoder[S],
    state: S,
    tokens: Tensor,
    sampling: SamplingOptions,
    *,
    draws: Tensor,
    eos_id: int | None,
    banned_ids: Iterable[int] = (),
    prompts: Sequence[Sequence[int]] | None = None,
    should_stop: ShouldStop | None = None,
) -> list[Hypothesis]:
    """Sample a continuation of each row of the state; rows do not depend on each other.

    A row that is finished leaves the batch.

    Args:
        decoder: the model.
        state: its state.
        tokens: the last token of each row so far, which the state does not include yet.
        sampling: options of sampling.
        draws: random numbers from [0, 1) in float64, one for each row and step (b t); t is the
            maximum number of tokens of a row, eos included.
        eos_id: the token that ends a row.
        banned_ids: tokens that are never sampled, whatever their probability.
        prompts: the tokens of each row so far, `tokens` included, which the repetition penalty and
            the ban of n-grams apply to (default: only generated ones).
        should_stop: whether a row ends after its last token.
    """
    steps = iterate_samples(
        decoder,
        state,
        tokens,
        sampling,
        draws=draws,
        eos_id=eos_id,
        banned_ids=banned_ids,
        prompts=prompts,
        should_stop=should_stop,
    )
    (rows,) = deque(steps, maxlen=1)
    return [row.make_hypothesis() for row in rows]


@torch.inference_mode()
def iterate_samples(  # noqa: PLR0913 - as above
    decoder: IncrementalDecoder[S],
    state: S,
    tokens: Tensor,
    sampling: SamplingOptions,
    *,
    draws: Tensor,
    eos_id: int | None,
    banned_ids: Iterable[int] = (),
    prompts: Sequence[Sequence[int]] | None = None,
    should_stop: ShouldStop | None = None,
) -> Iterator[list[SampledRow]]:
    """Like `sample`, but yield all rows after every step; they are the same objects every time."""
    model_device, device = tokens.device, float64_device(tokens.device)
    max_length = in_range("max_length", draws.shape[1], 1, 1 << 30)
    draws = draws.T.contiguous().to(device)  # t b
    banned = torch.tensor(sorted(set(banned_ids)), dtype=torch.long, device=device)
    history = History(
        [()] * len(tokens) if prompts is None else prompts,
        device,
        repetition_penalty=sampling.repetition_penalty,
        no_repeat_ngram_size=sampling.no_repeat_ngram_size,
    )
    rows = [SampledRow() for _ in range(len(tokens))]
    active = list(enumerate(rows))  # those that are not finished
    for step in range(max_length):
        log_probs, state = decoder.step(tokens.to(model_device), state)  # b v
        log_probs = log_probs.to(device)
        allowed = history.apply(log_probs, getattr(state, "log_normalizer", None))
        if len(banned):
            allowed = allowed.index_fill(-1, banned, -torch.inf)
        tokens, values = draw_and_read(log_probs, allowed, sampling, draws[step])
        for (number, row), (token, log_prob, is_allowed) in zip(active, values, strict=True):
            row.update(int(token), log_prob, bool(is_allowed), eos_id)
            if row.finish_reason is None and should_stop and should_stop(number, row.tokens):
                row.finish_reason = "stop"
        yield rows
        alive = [n for n, (_, row) in enumerate(active) if row.finish_reason is None]
        if not alive:
            break
        kept = None
        if len(alive) < len(active):
            active = [active[n] for n in alive]
            kept = torch.tensor(alive, device=device)
            tokens, draws = tokens[kept], draws[:, kept]
            state = decoder.reorder(state, kept.to(model_device))
        history.extend(tokens, kept)


def draw_and_read(
    log_probs: Tensor,
    allowed: Tensor,
    sampling: SamplingOptions,
    draws: Tensor,
    sizes: Sequence[int] = _TOP_TOKENS,
) -> tuple[Tensor, list[list[float]]]:
    """A token of each row (b); and on the host that token, log p of it, and whether it is allowed.

    The values are copied from the device once, or again for rows whose draw is not among the most
    probable tokens, of which the next number in `sizes` is tried, and last the whole vocabulary.
    """
    vocab_size = allowed.shape[-1]
    sizes = [size for size in sizes if (sampling.top_k or 0) < size <= vocab_size // 2]
    if sampling.is_greedy:
        tokens, is_certain = allowed.argmax(-1), None
    elif sizes:
        tokens, is_certain = _draw_from_top(allowed, sampling, draws, sizes[0])
    else:
        tokens, is_certain = _select(*filter_probabilities(allowed, sampling), draws), None
    chosen, kept = (one.gather(-1, tokens[:, None])[:, 0] for one in (log_probs, allowed))
    chosen = chosen.to(torch.promote_types(chosen.dtype, torch.float32))
    columns = [tokens, chosen, kept > -torch.inf, *([] if is_certain is None else [is_certain])]
    # in the dtype of the log-probabilities: ids are exact in float32 up to 16 million
    values: list[list[float]] = torch.stack(columns, 1).tolist()
    rest = [] if is_certain is None else [n for n, row in enumerate(values) if not row.pop()]
    if rest:
        rows = torch.tensor(rest, device=tokens.device)
        found, others = draw_and_read(
            log_probs[rows], allowed[rows], sampling, draws[rows], sizes[1:]
        )
        tokens = tokens.index_copy(0, rows, found)
        for n, row in zip(rest, others, strict=True):
            values[n] = row
    return tokens, values


def draw_tokens(log_probs: Tensor, sampling: SamplingOptions, draws: Tensor) -> Tensor:
    """One token of each row: b v, b -> b.

    It is the token in whose interval of the cumulative probabilities the draw is; the most probable
    tokens come first, then those with the lower id. Most draws fall among the first few hundred
    tokens, so a row is sorted completely only if its draw does not.
    """
    return draw_and_read(log_probs, log_probs, sampling, draws, _TOP_TOKENS)[0]


def _draw_from_top(
    log_probs: Tensor, sampling: SamplingOptions, draws: Tensor, size: int
) -> tuple[Tensor, Tensor]:
    """The token of each row (b) if it is among the most probable, and whether that is certain."""
    ids = log_probs.topk(size, sorted=False).indices.sort(-1).values  # equal values by id
    ranked = log_probs.gather(-1, ids).sort(dim=-1, descending=True, stable=True)
    values, ids = ranked.values.double(), ids.gather(-1, ranked.indices)
    largest = values[:, :1]
    total = ((log_probs.double() - largest) / sampling.temperature).exp().sum(-1, keepdim=True)
    scaled = (values - largest) / sampling.temperature
    probs = apply_top_k(scaled.exp() / total, sampling.top_k)
    # of the tokens that are as probable as the last one, some may be missing
    mass = probs.masked_fill(values == values[:, -1:], 0.0).sum(-1)
    is_certain = mass > (draws if sampling.top_p == 1 else sampling.top_p)
    if sampling.min_p > 0:  # if the last one is excluded, all others are here
        is_last_excluded = scaled[:, -1].exp() < sampling.min_p
        is_certain = is_last_excluded | (is_certain & (sampling.top_p < 1))
    # the whole vocabulary is summed in another order, which may round differently
    if sampling.top_p < 1:
        is_certain &= ~_is_near(probs.cumsum(-1) - probs, sampling.top_p)
        probs = apply_top_p(probs, sampling.top_p)
    probs = apply_min_p(probs, scaled, sampling.min_p)
    is_certain &= ~_is_near(probs.cumsum(-1), draws[:, None])
    return _select(probs, ids, draws), is_certain


def _is_near(values: Tensor, other: Tensor | float) -> Tensor:
    """Whether any value of a row is within rounding of another number: b."""
    return ((values - other).abs() < _ROUNDING).any(-1)


def _select(probs: Tensor, ids: Tensor, draws: Tensor) -> Tensor:
    """The first token of each row whose cumulative probability exceeds the draw: b.

    Because of rounding the sum may stay below 1, so only tokens with a probability above 0 count.
    """
    last = (probs > 0).sum(-1) - 1
    indices = torch.searchsorted(probs.cumsum(-1), draws[:, None], right=True)[:, 0]
    return ids.gather(-1, torch.minimum(indices, last).clamp(min=0)[:, None])[:, 0]
