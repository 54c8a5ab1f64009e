"""Activation patching: how an output changes if a part is taken from a run on another text.

Vig et al. 2020; Meng et al. 2022, §2 (causal tracing). t tokens, d width.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cloze.interpret.interventions import (
    BATCH_TOKENS,
    Edit,
    Metric,
    Part,
    measure,
    measure_runs,
    record_parts,
)
from cloze.interpret.scores import Batch, Score
from cloze.nn.utils import eval_mode
from cloze.progress import ProgressCallback


@dataclass(frozen=True)
class Patch:
    """A part to take from the other text: at one position, or at all that are aligned."""

    part: Part
    position: int | None = None


@dataclass(frozen=True, eq=False)
class PatchResult:
    """The metric of both texts, and how that of the text changes with each patch."""

    base: float
    source: float
    changes: Tensor  # one for each patch; NaN where no token of the other text is aligned


def align_positions(text: Sequence[int], source: Sequence[int]) -> dict[int, int]:
    """The position in the other text of each position of a text, where there is one.

    Tokens at the beginning and at the end that are the same are aligned. Those between are aligned
    one to one if there are as many in both texts, otherwise not at all.
    """
    shorter = min(len(text), len(source))
    first = next((n for n in range(shorter) if text[n] != source[n]), shorter)
    last = next(
        (n for n in range(shorter - first) if text[-1 - n] != source[-1 - n]), shorter - first
    )
    aligned = {n: n for n in range(first)}
    if len(text) == len(source):
        aligned |= {n: n for n in range(first, len(text) - last)}
    aligned |= {len(text) - 1 - n: len(source) - 1 - n for n in range(last)}
    return dict(sorted(aligned.items()))


@torch.inference_mode()
def compute_patches(  # noqa: PLR0913 (all but four by keyword)
    module: nn.Module,
    text: tuple[Score, Batch],
    source: tuple[Score, Batch],
    patches: Sequence[Patch],
    *,
    metric: Metric = "log_probability",
    batch_tokens: int = BATCH_TOKENS,
    progress: ProgressCallback | None = None,
) -> PatchResult:
    """Run the source, then the text (batches of one row) with each patch from the source.

    The score of the source says which of its positions is measured; both have the same output.
    """
    score, batch = text
    parts = list(dict.fromkeys(patch.part for patch in patches))
    with eval_mode(module), record_parts(module, parts) as recorded:
        source_value = float(measure(module, *source, metric)[0])
    aligned = {
        stack: _align_stack(stack, batch, source[1]) for stack in {part.stack for part in parts}
    }
    runs: list[list[Edit]] = [[]]
    known: list[int] = []  # patches that change something
    for number, patch in enumerate(patches):
        pairs = aligned[patch.part.stack]
        if patch.position is not None:
            pairs = {n: pairs[n] for n in (patch.position,) if n in pairs}
        if pairs:
            known.append(number)
            runs.append([_take(patch.part, recorded[patch.part], pairs)])
    found = measure_runs(
        module, score, batch, runs, metric=metric, batch_tokens=batch_tokens, progress=progress
    )
    changes = torch.full((len(patches),), torch.nan)
    changes[known] = (found[1:] - found[0]).cpu()
    return PatchResult(float(found[0]), source_value, changes)


def _take(part: Part, value: Tensor, pairs: dict[int, int]) -> Edit:
    """The edit that writes the values of the source (1 t d) at the positions of the text."""
    to, of = (torch.tensor(list(some), device=value.device) for some in (pairs, pairs.values()))
    return Edit(part, value[0, of], positions=to)


def _align_stack(stack: str, text: Batch, source: Batch) -> dict[int, int]:
    """The alignment of the tokens that a stack reads; the encoder of a translator reads sources."""
    ids = [
        one.source_ids if stack == "encoder" and one.source_ids is not None else one.ids
        for one in (text, source)
    ]
    first, second = (one[0].tolist() for one in ids)
    return align_positions(first, second)
