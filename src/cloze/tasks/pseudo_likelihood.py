"""Pseudo-log-likelihoods: PLL(w) = Σₜ log p(wₜ | w with wₜ masked).  Salazar et al. 2020, eq. 1.

n tokens of a packed batch, b sequences, d width, v vocabulary.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch

from cloze.checkpoint.model import Model, unsupported_function_error
from cloze.data.batch import batch_by_tokens
from cloze.errors import InputError
from cloze.nn.engine import compute_layers, lock_engine
from cloze.nn.layout import Packed
from cloze.nn.utils import eval_mode, log_softmax
from cloze.progress import ProgressCallback
from cloze.tasks.inference import choose_batch_tokens
from cloze.text.alignment import TokenAlignment

_CHUNK_BATCHES = 32  # batches whose masked copies are in memory, and sorted by length, together


class MaskedCopy(NamedTuple):
    """A text with one token to predict, or the tokens around it."""

    text: int  # the number of the text
    ids: list[int]
    type_ids: list[int]
    position: int  # of the token to predict, among the ids
    target: int  # its id


def compute_pseudo_log_likelihoods(
    model: Model,
    texts: Sequence[str],
    *,
    whole_words: bool,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
) -> tuple[list[TokenAlignment], list[list[float]]]:
    """The tokens of each text, and the log-probability of each of its own tokens, in order.

    A text of n tokens is computed n times. Copies of similar length, of one text or of several, are
    packed into batches without padding. With `whole_words` the tokens of a word that follow the
    predicted one are masked, too.
    """
    mask_id = _check_model(model)
    most = choose_batch_tokens(model, batch_tokens)
    alignments = model.tokenizer.encode_batch(texts)
    for number, alignment in enumerate(alignments, 1):
        if mask_id in alignment.ids:
            raise InputError(
                f"text {number:,} contains a mask, which has no probability",
                fix="fill the masks first (cloze fill), or score the text without them",
            )
    copies = (
        copy
        for number, alignment in enumerate(alignments)
        for copy in mask_tokens(
            number, alignment, mask_id, limit=model.max_length, whole_words=whole_words
        )
    )
    scores: list[list[float]] = [[] for _ in texts]
    for chunk in _split_chunks(copies, most * _CHUNK_BATCHES):
        found: dict[int, float] = {}
        for numbers in batch_by_tokens([len(copy.ids) for copy in chunk], most):
            values = _compute_log_probs(model, [chunk[n] for n in numbers])
            found.update(zip(numbers, values, strict=True))
        for number, copy in enumerate(chunk):
            scores[copy.text].append(found[number])
        if progress:
            progress("texts", chunk[-1].text + 1, len(texts))
    return alignments, scores


def mask_tokens(
    text: int, alignment: TokenAlignment, mask_id: int, *, limit: int, whole_words: bool
) -> Iterator[MaskedCopy]:
    """One copy of a text for each of its own tokens, which is masked in it.

    A copy of a text that is longer than `limit` has the tokens around the masked one, half of them
    on each side where there are as many.
    """
    own, words = alignment.token_range(), alignment.words
    before, after = own.start, len(alignment) - own.stop  # special tokens
    room = max(1, limit - before - after)
    for position in own:
        ids = list(alignment.ids)
        ids[position] = mask_id
        later = position + 1
        while whole_words and later < own.stop and words[later] == words[position] is not None:
            ids[later] = mask_id
            later += 1
        start = max(own.start, min(position - room // 2, own.stop - room))
        kept = [*range(before), *range(start, min(start + room, own.stop))]
        kept += range(own.stop, len(ids))
        yield MaskedCopy(
            text=text,
            ids=[ids[n] for n in kept],
            type_ids=[alignment.type_ids[n] for n in kept],
            position=before + position - start,
            target=alignment.ids[position],
        )


def _check_model(model: Model) -> int:
    """The id of the mask token; raise if the model cannot predict masked tokens."""
    if "mlm" not in model.task_heads:
        reason = f"its head is {model.head}" if model.head else "it has no masked-LM head"
        raise unsupported_function_error(model, "score", reason)
    mask_id = model.tokenizer.mask_id
    if mask_id is None:
        raise InputError(
            "the tokenizer of this model has no mask token",
            fix="use a model whose tokenizer has one",
        )
    return mask_id


def _split_chunks(copies: Iterator[MaskedCopy], most: int) -> Iterator[list[MaskedCopy]]:
    """Copies of about `most` tokens at a time."""
    chunk: list[MaskedCopy] = []
    size = 0
    for copy in copies:
        chunk.append(copy)
        size += len(copy.ids)
        if size >= most:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


@torch.inference_mode()
def _compute_log_probs(model: Model, copies: Sequence[MaskedCopy]) -> list[float]:
    """The log-probability of the target of each copy."""
    device, module = model.device, model.module
    layout = Packed.from_lengths((len(copy.ids) for copy in copies), device)
    starts = accumulate((len(copy.ids) for copy in copies), initial=0)
    positions = [start + copy.position for start, copy in zip(starts, copies, strict=False)]
    targets = torch.tensor([copy.target for copy in copies], device=device)
    ids = torch.tensor([id_ for copy in copies for id_ in copy.ids])
    types = torch.tensor([type_ for copy in copies for type_ in copy.type_ids])
    with lock_engine(module), eval_mode(module):
        hidden = compute_layers(module, ids, layout, types)  # n d
        selected = module.head_inputs("mlm", hidden, torch.tensor(positions, device=device), layout)
        log_probs = log_softmax(module.logits("mlm", selected))  # b v
    values: list[float] = log_probs.gather(-1, targets[:, None])[:, 0].tolist()
    return values
