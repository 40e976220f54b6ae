"""Whether a kernel is one that can be enumerated, and tabulated: it treats responses alike, and sees each group by itself.

Both are tried on groups in another order, and among others, because no kernel can be asked for its reasons.
"""

from collections.abc import Set
from functools import lru_cache

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.estimation.advantage import Advantage
from grpo_theory.estimation.kernel import Batch
from grpo_theory.exact.classes import Looks
from grpo_theory.exact.multisets import KEPT, LAWS_KEPT, TOLERANCE, advantages_of, batch_of, members, multisets

_CHECKED = 4096
_CHECKED_RESPONSES = 1 << 18
_FEWEST = 16
_ALONE = 8
"""Of so many groups, about, each is given alone, besides those at the ends."""
_DECOYS = ((0.1, 0.7), (0.3, 0.45))


def check_exchangeable(advantage: Advantage, shown: tuple[Looks, ...], group_size: int) -> None:
    """Raise unless a kernel treats responses alike, whatever their order, and each group by itself.

    The kernel is tried on some thousands of groups, or fewer if the groups are large.  Their multisets are spread evenly over
    all, and cover every look of a prompt.  If there are few looks, the same looks are not checked again at another theta.
    """
    if group_size * sum(looks.fields.size for looks in shown) <= KEPT:
        _kept_check(advantage, shown, group_size)
    else:
        _check(advantage, shown, group_size)


def _check(advantage: Advantage, shown: tuple[Looks, ...], group_size: int) -> None:
    wanted = min(_CHECKED, _CHECKED_RESPONSES // group_size)
    share = max(_FEWEST, wanted // sum(looks.fields.shape[1] for looks in shown))
    batches = []
    for looks in shown:
        counts = multisets(looks.fields.shape[2], group_size)
        batches.append(batch_of(advantage, looks, members(counts[:: max(1, len(counts) // share)])))
    fields = zip(*(batch[:-1] for batch in batches), strict=True)
    batch = Batch._make([*map(np.concatenate, fields), advantage.parameter_array])
    advantages = advantages_of(advantage, batch)
    if not (treats_alike(advantage, batch, advantages) and sees_alone(advantage, batch, advantages)):
        raise ValueError(
            f"estimator {advantage.name!r} must give each response an advantage that does not depend on its position in the "
            "group, nor on other groups. Only then are exact moments enumerated. If it couples groups, register it with "
            "couples_groups=True and simulate it"
        )


_kept_check = lru_cache(maxsize=LAWS_KEPT)(_check)


def treats_alike(advantage: Advantage, batch: Batch, advantages: Array) -> bool:
    """Whether advantages stay with the responses when the responses of each group change their order.

    They are rotated by one position, and the first two are exchanged, because these two generate all permutations.  The check
    takes the groups of the batch, all or some thousands.
    """
    order = np.arange(batch.rewards.shape[1])
    exchanged = np.concatenate([order[:2][::-1], order[2:]])
    for permutation in (np.roll(order, 1), exchanged):
        fields = (field[:, permutation] if field.ndim == 2 else field for field in map(_some, batch[:-1]))
        permuted = advantages_of(advantage, Batch._make([*map(np.ascontiguousarray, fields), batch.parameters]))
        if not _agree(permuted, _some(advantages)[:, permutation]):
            return False
    return True


def sees_alone(advantage: Advantage, batch: Batch, advantages: Array) -> bool:
    """Whether advantages stay what they are when the groups are given last first, between groups of another prompt, and alone.

    The other groups have different rewards, score norms and fields of the prompt, because a kernel may look things up by them.
    These lie inside the range of the batch's own.  What shows only at the ends of that range is found by giving groups alone.
    """
    picked, expected = [_some(field) for field in batch[:-1]], _some(advantages)
    for shift, scale in _DECOYS:  # two, because any one of them leaves some value as it is
        decoys = [_decoy(field, shift, scale) for field in picked]
        fields = (np.concatenate([d, p, d]) for d, p in zip(decoys, picked, strict=True))
        between = advantages_of(advantage, Batch._make([*fields, batch.parameters]))[len(expected) : 2 * len(expected)]
        if not _agree(between, expected):
            return False
    return _agree_alone(advantage, _telling_groups(batch, advantage.reads))


def _decoy(field: np.ndarray, shift: float, scale: float) -> np.ndarray:
    """Return other values, not outside the range of a field if it has one."""
    if field.dtype.kind == "i":
        return field
    low, width = field.min(), np.ptp(field)
    return low + width * shift + scale * (field - low) if width > 0.0 else shift + scale * field


def _agree_alone(advantage: Advantage, batch: Batch) -> bool:
    """Whether a kernel gives each group alone what it gives it among the others, where that is finite."""
    alone = np.full(batch.rewards.shape, np.nan)
    # Each group is a batch of its own: what a kernel took from other groups is missing there.
    for b in range(len(alone)):
        group = [field[b : b + 1] for field in batch[:-1]]
        advantage.kernel(Batch._make([*group, batch.parameters]), alone[b : b + 1])
    # A group of one response again and again may have no finite advantage (0/0, if there is no epsilon); it tells nothing.
    finite = np.isfinite(alone).all(axis=1)
    if not finite.any():
        return True
    together = np.full(alone[finite].shape, np.nan)
    advantage.kernel(Batch._make([*(field[finite] for field in batch[:-1]), batch.parameters]), together)
    return _agree(together, alone[finite])


def _telling_groups(batch: Batch, read: Set[str]) -> Batch:
    """Return some groups, and groups of one response again and again, which is at the ends of two of the fields that are read.

    Such a group lacks what is greatest, or least, in the batch, and it is a group that the problem can have.
    """
    n, group_size = batch.rewards.shape
    wide = [np.broadcast_to(field.reshape(n, -1), (n, group_size)).ravel() for field in batch[:-1]]
    known = [field for name, field in zip(Batch._fields, wide, strict=False) if name in read and not np.isnan(field).any()]
    ends = [field == end for field in known for end in (field.min(), field.max())]
    ones = sorted({int(np.flatnonzero(at)[end(field[at])]) for at in ends for field in known for end in (np.argmin, np.argmax)})
    some, rows = slice(None, None, max(1, n // _ALONE)), [one // group_size for one in ones]
    made = []
    for field, values in zip(batch[:-1], wide, strict=True):
        pure = field[rows] if field.ndim == 1 else np.repeat(values[ones][:, None], group_size, axis=1)
        made.append(np.concatenate([field[some], pure]))
    return Batch._make([*made, batch.parameters])


def check_alone(advantage: Advantage, batch: Batch, advantages: Array) -> None:
    """Raise unless the kernel sees each group by itself."""
    if not sees_alone(advantage, batch, advantages):
        raise ValueError(
            f"estimator {advantage.name!r} must give a group the same advantages whatever the other groups of the batch are; "
            "if it couples groups, register it with couples_groups=True"
        )


def _agree(given: Array, expected: Array) -> bool:
    return bool((np.abs(given - expected) <= TOLERANCE * np.maximum(1.0, np.abs(expected).max())).all())


def _some(array: np.ndarray) -> np.ndarray:
    """Some thousands of the groups, the last first."""
    # In reverse order, so that a kernel which looks at a group's position in the batch is found out.
    return np.ascontiguousarray(array[:: -max(1, len(array) // _CHECKED)])
