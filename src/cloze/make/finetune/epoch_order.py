"""The order of the examples of a run: random, maybe in batches of one kind, or by documents."""

import numpy as np

from cloze.data.batch import Ints
from cloze.data.randomness import Purpose, make_generator
from cloze.make.recipe.embedding import EmbeddingRun
from cloze.make.recipe.finetune import FinetuneRun


class EpochOrder:
    """The indices of the examples of each step, shuffled anew in every epoch.

    With `groups`, the group of each example, all examples of a step are of one group. With
    `documents`, the document of each example, up to `together` examples of a document follow each
    other.
    """

    def __init__(
        self,
        count: int,
        options: FinetuneRun | EmbeddingRun,
        *,
        groups: Ints | None = None,
        documents: Ints | None = None,
        together: int = 1,
    ) -> None:
        self._count, self._options = count, options
        self._groups = np.zeros(count, np.int64) if groups is None else groups
        self._documents, self._together = documents, together
        self._epoch, self._batches = -1, [[0]]
        _, counts = np.unique(self._groups, return_counts=True)
        self.per_epoch = int((-(-counts // options.batch_size)).sum())

    def indices(self, step: int) -> list[int]:
        """The examples of a step; the last one of a group and an epoch may have fewer."""
        epoch, number = divmod(step, self.per_epoch)
        if self._epoch != epoch:
            self._epoch, self._batches = epoch, self._shuffle(epoch)
        return self._batches[number]

    def _shuffle(self, epoch: int) -> list[list[int]]:
        """The batches of an epoch."""
        rng = make_generator(self._options.seed, epoch, Purpose.ORDER)
        order, size = rng.permutation(self._count), self._options.batch_size
        names = np.unique(self._groups)
        batches = [
            members[first : first + size].tolist()
            for members in (
                self._join_documents(order[self._groups[order] == name], rng) for name in names
            )
            for first in range(0, len(members), size)
        ]
        if len(names) > 1:
            batches = [batches[n] for n in rng.permutation(len(batches)).tolist()]
        return batches

    def _join_documents(self, members: Ints, rng: np.random.Generator) -> Ints:
        """Examples in random order, as runs of up to `together` examples of a document."""
        if self._documents is None:
            return members
        members = members[np.argsort(self._documents[members], kind="stable")]
        _, starts, sizes = np.unique(
            self._documents[members], return_index=True, return_counts=True
        )
        places = np.arange(len(members)) - np.repeat(starts, sizes)  # in the document
        is_first = places % self._together == 0
        runs = is_first.cumsum() - 1  # the run of each example
        keys = rng.permutation(int(is_first.sum()))[runs]
        return members[np.argsort(keys, kind="stable")]
