"""The objective of ELMo: −Σ log p of every word, given those before it, and given those after it.

b rows, t tokens, n = b·t, p width of one direction, u distinct words, v vocabulary, s candidates.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from cloze.data.batch import IGNORE_INDEX
from cloze.data.language_model_batches import BACKWARD_LOSS_NAME, LOSS_NAME, WordBatch
from cloze.models.elmo import Elmo, WordInputs
from cloze.objectives.core import DeviceBatch, Terms, upcast_to_float32
from cloze.objectives.fused_cross_entropy import fused_linear_cross_entropy
from cloze.objectives.language_model import StatefulLSTM


def bidirectional_objective(
    model: StatefulLSTM,
    batch: WordBatch | DeviceBatch,
    rng: torch.Generator | None = None,
) -> Terms:
    """The losses of both directions, and how many words have the top logit.

    With a sampled softmax these are among the candidates, so losses and accuracies differ from
    those of an evaluation, which normalizes over the whole vocabulary.
    """
    del rng  # dropout and candidates use the global generator
    module = model.model
    assert isinstance(module, Elmo)
    if isinstance(batch, DeviceBatch):
        on_device = batch
    else:
        on_device = DeviceBatch.from_batch(next(module.parameters()).device, batch)
    tensors, symbols = on_device.tensors, on_device.batch
    left, right = tensors["inputs"], tensors["targets"]  # b t: each word, and the one after it
    inputs = WordInputs(tensors["characters"], left, right.flip(1))
    hidden, _ = model(inputs, tensors["rows"], tensors["keep_state"])  # 2 b t p
    words = tensors["word_ids"]
    targets = torch.stack(
        [
            ignore(words[right], symbols.bos_id),
            ignore(words[left.flip(1)], symbols.eos_id),
        ]
    )
    losses, hits = compute_losses(module, hidden.flatten(1, 2), targets.flatten(1))
    return {
        LOSS_NAME: losses[0],
        f"{LOSS_NAME}.accuracy": hits[0],
        BACKWARD_LOSS_NAME: losses[1],
        f"{BACKWARD_LOSS_NAME}.accuracy": hits[1],
    }


def ignore(targets: Tensor, symbol: int) -> Tensor:
    """Do not predict the symbol where a text begins, in the order of reading."""
    return targets.masked_fill(targets == symbol, IGNORE_INDEX)


def compute_losses(
    module: Elmo, hidden: Tensor, targets: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """The loss and the hits of each direction, of vectors 2 n p and targets 2 n."""
    assert module.output is not None
    vocab_size, num_candidates = module.config.vocab_size, module.config.num_candidates
    if not 0 < num_candidates < vocab_size:
        weight, bias = module.output()  # v p, v
        found = [
            fused_linear_cross_entropy(vectors, weight, bias, ids)
            for vectors, ids in zip(hidden, targets, strict=True)
        ]
    else:
        candidates = draw_candidates(vocab_size, num_candidates, hidden.device)
        sampled = module.output(candidates.ids)
        found = [
            sampled_cross_entropy(
                vectors, ids, candidates, sampled, module.output(ids.clamp(min=0))
            )
            for vectors, ids in zip(hidden, targets, strict=True)
        ]
    return [loss for loss, _ in found], [hits for _, hits in found]


class Candidates(NamedTuple):
    """Distinct words of a sample, and what decides how probable it was that a word is in it."""

    ids: Tensor  # s
    log_probs: Tensor  # v: of one draw
    rate: Tensor  # the "time" at which the sample was complete; ∞ if it is the whole vocabulary

    def log_inclusion(self, ids: Tensor) -> Tensor:
        """The logarithm of the probability that a word is in the sample."""
        return (-torch.expm1(-self.log_probs[ids].exp() * self.rate)).log()


def draw_candidates(vocab_size: int, count: int, device: torch.device | None = None) -> Candidates:
    """Draw distinct words, log-uniformly: p(k) = log((k + 2)/(k + 1)) / log(v + 1).

    That is about Zipf's law, for ids in the order of their frequency. To draw without replacement,
    every word waits for a time with the distribution Exp(p), and the first `count` are taken. Given
    the time τ of the next one, a word is among them with probability 1 − exp(−p·τ) (Efraimidis and
    Spirakis 2006; Cohen and Kaplan 2007).
    """
    ids = torch.arange(vocab_size, device=device, dtype=torch.float32)
    probs = torch.log1p(1 / (ids + 1)) / math.log1p(vocab_size)  # v
    times = torch.empty_like(probs).exponential_() / probs
    if count >= vocab_size:
        return Candidates(ids.long(), probs.log(), times.new_full((), torch.inf))
    first = times.topk(count + 1, largest=False, sorted=True)
    return Candidates(first.indices[:-1], probs.log(), first.values[-1])


def sampled_cross_entropy(
    hidden: Tensor,
    targets: Tensor,
    candidates: Candidates,
    sampled: tuple[Tensor, Tensor],
    true: tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor]:
    """−Σ log softmax over the target and the candidates, and how many targets have the top logit.

    Each logit is reduced by the logarithm of the probability that the word is a candidate
    (Jean et al. 2015, §3), so that the sum over the candidates estimates that over the vocabulary
    without bias. A target among the candidates counts once. With all words as candidates this is
    the full softmax. `sampled` and `true` are vectors and biases of candidates and targets.
    """
    is_target = targets != IGNORE_INDEX
    ids = targets.clamp(min=0)
    logits = upcast_to_float32(nn.functional.linear(hidden, sampled[0].to(hidden.dtype)))  # n s
    logits = logits + (sampled[1] - candidates.log_inclusion(candidates.ids))
    logits = logits.masked_fill(ids[:, None] == candidates.ids, -torch.inf)
    own = upcast_to_float32((hidden * true[0].to(hidden.dtype)).sum(-1))  # n
    own = own + true[1] - candidates.log_inclusion(ids)
    losses = torch.logaddexp(logits.logsumexp(-1), own) - own
    hits = (own > logits.amax(-1)) & is_target
    return (losses * is_target).sum(), hits.sum().float()
