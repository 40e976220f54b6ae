"""Counts of rewards by group, added up batch by batch."""

import numpy as np
from scipy import sparse

from grpo_theory.intervals.ragged import RewardCounts
from grpo_theory.validation import Array, Flags, Integers


class RewardTally:
    """Counts of rewards by group, added up as they come; what is pending is put together before it outgrows what is."""

    def __init__(self) -> None:
        self.values: dict[float, int] = {}
        self.done = sparse.csr_array((0, 0), dtype=np.int64)
        self.pending: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self.size = 0

    def add(self, groups: Integers, rewards: Array) -> None:
        """Add the rows of a batch."""
        values, inverse = np.unique(rewards, return_inverse=True)
        column = np.array([self.values.setdefault(one, len(self.values)) for one in values.tolist()])[inverse]
        pairs, counts = np.unique(groups * np.int64(len(self.values)) + column, return_counts=True)
        self.pending.append((pairs // len(self.values), pairs % len(self.values), counts))
        self.size += pairs.size
        # Put together only when what is pending has outgrown what is counted: each count is then moved a few times in all.
        if self.size > self.done.nnz + 2**18:
            self._gather()

    def _gather(self) -> None:
        old = self.done.tocoo()
        parts = [(old.coords[0], old.coords[1], old.data), *self.pending]
        rows, columns, counts = (np.concatenate(column) for column in zip(*parts, strict=True))
        shape = int(rows.max()) + 1, len(self.values)
        self.done = sparse.coo_array((counts, (rows, columns)), shape=shape).tocsr()
        self.pending, self.size = [], 0

    def counts(self, kept: Flags) -> RewardCounts:
        """Return the counts of the groups that stay, rewards ascending."""
        self._gather()
        values = np.array(list(self.values))
        order = np.argsort(values)
        counts = self.done[np.flatnonzero(kept)][:, order]
        came = np.asarray(counts.sum(axis=0)).ravel() > 0
        return RewardCounts(values[order][came], counts[:, np.flatnonzero(came)])
