"""Other groups that a trainer may have formed of the same rows: by their order, across prompts, or of the whole batch."""

from dataclasses import dataclass

import numpy as np

from grpo_theory.checks.conventions import Fit, GroupTable, best_fits
from grpo_theory.validation import Integers

REGROUPINGS = {
    "parts": "parts of a prompt's rows, one after the other: the prompt was sampled several times in a step",
    "consecutive": "rows that follow each other in the log, whatever their prompt",
    "strided": "the first response of every prompt, the second of every prompt, and so on: the wrong axis",
    "whole batch": "all responses of a step: the mean over the batch, not the group",
}
"""Groups by name, and what is in one."""

FOLLOWED = 0.5
"""More than this share of the groups must follow a convention."""


@dataclass(frozen=True, eq=False)
class Regrouping:
    """A convention that the advantages follow if other rows are taken for groups.

    Attributes
    ----------
    name : str
        One of `REGROUPINGS`.
    size : int
        The size of these groups.
    fits : tuple of Fit
        The conventions that they then follow.
    """

    name: str
    size: int
    fits: tuple[Fit, ...]


def find_regrouping(table: GroupTable, share: float) -> Regrouping | None:
    """Return the groups that explain the advantages better than the logged ones, of which this share follows a convention."""
    sizes = np.unique(table.sizes)
    if sizes.size != 1 or sizes[0] < 2:
        return None
    size, best, most = int(sizes[0]), None, max(share, FOLLOWED)
    parts = [("parts", size // k) for k in range(2, size // 2 + 1) if size % k == 0]
    for name, own in (*parts, ("consecutive", size), ("strided", size), ("whole batch", size)):
        other = regrouped(table, name, own)
        fits = [] if other is None else best_fits(other)
        if other is not None and fits and fits[0].share > most:
            best, most = Regrouping(name, int(other.sizes[0]), tuple(fits)), fits[0].share
    return best


def regrouped(table: GroupTable, name: str, size: int) -> GroupTable | None:
    """Return a table with other groups, of this size where the name leaves it open; None if they are the same groups."""
    steps = table.batches[table.index]
    index = np.empty(table.index.size, dtype=np.int64)
    batches: list[int] = []
    for step in np.unique(steps).tolist():
        rows = np.flatnonzero(steps == step)
        own = _numbered(np.unique(table.index[rows], return_inverse=True)[1], size, name) + len(batches)
        index[rows] = own
        batches += [step] * (int(own.max()) + 1 - len(batches))
    pairs = np.unique(np.stack([index, table.index]), axis=1).shape[1]
    same = pairs == len(batches) == table.batches.size
    return None if same else table.regrouped(index, np.array(batches))


def _numbered(groups: Integers, size: int, name: str) -> Integers:
    """Return the number of the new group of each row of a step, from the number of the old one."""
    if name == "consecutive":
        return np.arange(groups.size) // size
    if name == "whole batch":
        return np.zeros(groups.size, dtype=np.int64)
    order = np.argsort(groups, kind="stable")
    counts = np.bincount(groups)
    places = np.empty(groups.size, dtype=np.int64)  # of each row among those of its prompt
    places[order] = np.arange(groups.size) - np.repeat(np.cumsum(counts) - counts, counts)
    if name == "strided":
        return places
    return groups * (int(counts.max()) // size) + places // size
