"""Advantages of groups of any sizes, by the kernels that the exact theory and the simulators read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.estimation import Estimator, find
from grpo_theory.estimation.kernel import PROMPT_FIELDS
from grpo_theory.intervals.rollouts import numbered
from grpo_theory.problem.policy import LARGEST_REWARD
from grpo_theory.validation import Array, Integers, as_real_array, check_name, check_size, counted, shown

Sizes = tuple[int, ...] | None
"""Of the groups of a list; flat numbers have none."""
READABLE = frozenset({"rewards", "lengths", "parameters"})
"""What a user has of each response; a kernel that reads more needs the policy."""


def advantages(
    rewards: ArrayLike | Sequence[ArrayLike] | Mapping[str, Any],
    name: str | Estimator,
    *,
    groups: Iterable | None = None,
    weights: Mapping[str, float] | None = None,
    lengths: ArrayLike | Sequence[ArrayLike] | None = None,
) -> Array | list[Array]:
    """Compute the advantages that a trainer's convention, or any registered kernel, gives to groups of rewards.

    The kernel is the one that `gt.gradient_law` and `gt.simulate_gradients` use. All groups are one batch: that matters for a
    convention that looks beyond the group, such as "trl_grpo_batch".

    Parameters
    ----------
    rewards : list of array_like, shape (G_b,) each; or array_like, shape (N,); or mapping of str to either
        A list has one array per group, of any sizes. A flat array has one reward per response, and `groups` says which
        responses belong together. A mapping has several rewards by their names, which are added up with `weights`. As
        in TRL, a reward that is NaN for a response counts as 0 if another is a number.
    name : str or Estimator
        A name of `gt.estimators()`, such as "trl_grpo" or "rloo", or an estimator. Only its advantages are computed. Groups
        have the memory of the start, or a row each of `Estimator.with_memory`.
    groups : iterable of N hashable ids, optional
        The group of each response, for flat rewards. The rows of a group need not be neighbours.
    weights : mapping of str to float, optional
        The weight of each reward of a mapping; 1 where none is given.
    lengths : like `rewards`, optional
        Tokens of each response, for conventions that read them, such as "verl_opo".

    Returns
    -------
    list of ndarray, or ndarray of shape (N,)
        One advantage per reward, in the form and order of `rewards`. The unit is that of the reward, unless the convention
        divides by a standard deviation.

    Raises
    ------
    ValueError
        If no estimator has the name, or a reward is not a finite number. If the kernel needs more than rewards and lengths. If a
        group is smaller than the kernel allows, or the kernel couples groups and they differ in size.

    Notes
    -----
    The table of conventions, with their sources, is in docs/trainers.md.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> [a.round(3).tolist() for a in gt.advantages([[1.0, 0.0, 0.0], [1.0, 1.0]], "rloo")]
    [[1.0, -0.5, -0.5], [0.0, 0.0]]
    >>> parts = {"correct": [1.0, 0.0, 1.0, 0.0], "format": [1.0, 1.0, 0.0, 1.0]}
    >>> gt.advantages(parts, "trl_grpo_none", groups=["a", "a", "b", "b"], weights={"format": 0.5}).tolist()
    [0.5, -0.5, 0.25, -0.25]
    """
    estimator = find(name, "name")
    if isinstance(rewards, Mapping) and rewards:
        for one in weights or {}:
            check_name("weights", one, rewards)
        parts = {one: _flat(f"rewards[{one!r}]", part, missing=True) for one, part in rewards.items()}
        (first, (values, sizes)), *others = parts.items()
        for other, (found, own) in others:
            if own != sizes or found.size != values.size:
                raise ValueError(f"rewards must have one number per response each, and {other!r} has other shapes than {first!r}")
        stacked = np.stack([part for part, _ in parts.values()])
        factors = as_real_array("weights", [(weights or {}).get(one, 1.0) for one in parts], 1)
        nowhere = np.isnan(stacked).all(axis=0)
        if nowhere.any():
            lost = np.argmax(nowhere)
            raise ValueError(f"rewards must have a number for every response, and none has one for response {lost}")
        values = factors @ np.where(np.isnan(stacked), 0.0, stacked)
    elif weights is not None:
        raise ValueError("weights must be left out unless rewards are a mapping of several rewards by name")
    else:
        values, sizes = _flat("rewards", rewards)
    if (sizes is None) == (groups is None):
        raise ValueError(
            "groups must have one id per reward where rewards are flat, and be left out where rewards are a list of arrays, one "
            "per group"
        )
    index = np.repeat(np.arange(len(sizes)), sizes) if sizes else numbered("groups", groups)[1]  # type: ignore[arg-type]
    if index.size != values.size:
        raise ValueError(f"groups must have an id for each of the {values.size} rewards, got {index.size}")
    tokens = None
    if lengths is not None:
        tokens, own = _flat("lengths", lengths)
        if own != sizes or tokens.size != values.size:
            raise ValueError("lengths must be given like the rewards: flat, or one array per group of the same sizes")
        if (tokens < 1).any() or (tokens != np.floor(tokens)).any():
            raise ValueError("lengths must be whole numbers of tokens, at least 1")
    found = logged_advantages(estimator, values, index, tokens)
    return found if sizes is None else np.split(found, np.cumsum(sizes)[:-1])


def logged_advantages(estimator: Estimator, rewards: Array, index: Integers, lengths: Array | None = None) -> Array:
    """Return the advantages (N,) of rewards (N,) whose groups are numbered by `index` (N,), all of them one batch.

    Lengths (N,) are numbers of tokens, and 1 where there are none.

    Raises
    ------
    ValueError
        As `advantages`.
    """
    if needed := estimator.advantage.reads - READABLE - {"memory"}:
        raise ValueError(
            f"name must be a convention that reads rewards, and the kernel of {estimator.name!r} reads "
            f"{', '.join(sorted(needed))} of the policy too. Use gt.gradient_law or gt.simulate_gradients with a problem"
        )
    if "lengths" in estimator.advantage.reads and lengths is None:
        raise ValueError(f"lengths must be given for estimator {estimator.name!r}, whose advantages depend on them")
    sizes = np.bincount(index)
    used = np.unique(sizes[sizes > 0])
    if estimator.couples_groups and used.size > 1:
        told = f"groups must have one size for estimator {estimator.name!r}, which looks at the other groups of the batch;"
        raise ValueError(f"{told} got sizes {used[0]} to {used[-1]}")
    small = int((sizes[sizes > 0] < estimator.advantage.minimum_group_size).sum())
    if small:
        raise ValueError(
            f"groups must have at least {estimator.advantage.minimum_group_size} responses for estimator {estimator.name!r}, and "
            f"{counted(small, 'group')} of {sizes.size} have fewer: leave them out"
        )
    order, ends = np.argsort(index, kind="stable"), np.cumsum(sizes)
    tokens = np.ones(rewards.size, dtype=np.int64) if lengths is None else np.rint(lengths).astype(np.int64)
    found, memory = np.empty(rewards.size), estimator.remembered(len(sizes))
    for size in used:
        estimator.check_group_size(int(size))
        first = ends[sizes == size] - size
        rows = order[first[:, None] + np.arange(size)]
        # A kernel may read nothing of the policy here: those fields hold ones and zeros, before columns of memory.
        ones = np.ones(rows.shape)
        fields = [rewards[rows], ones, tokens[rows], ones, *np.zeros((len(PROMPT_FIELDS), len(rows))), *memory[:, sizes == size]]
        given = np.full(rows.shape, np.nan)
        estimator.advantage.run(fields, given)
        if not np.isfinite(given).all():
            group = int(np.argmin(np.isfinite(given).all(axis=1)))
            of = fields[0][group]
            raise ValueError(f"the kernel of estimator {estimator.name!r} gives {given[group]} for a group with rewards {of}")
        found[rows] = given
    return found


def _flat(name: str, values: Any, missing: bool = False) -> tuple[Array, Sizes]:
    """Return numbers in a row (N,), and the sizes of their groups if they are a list of groups; missing ones are NaN."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable) or getattr(values, "ndim", 1) == 0:
        raise TypeError(f"{name} must be numbers, or one array of numbers per group, got {shown(values)}")
    groups = values if isinstance(values, np.ndarray) else list(values)
    nested = [np.ndim(one) > 0 for one in groups]
    if not nested or any(nested) != all(nested):
        raise ValueError(f"{name} must be numbers, or one array of numbers per group, got {'both' if nested else 'none'}")
    found = []
    for k, one in enumerate(groups if all(nested) else [groups]):
        label = f"{name}[{k}]" if all(nested) else name
        known = np.asarray([np.nan if part is None else part for part in one], dtype=np.float64) if missing else one
        # Beyond it, powers of rewards overflow, and a deviation is infinite or none.
        check_size(label, as_real_array(label, np.nan_to_num(known, nan=0.0) if missing else known, 1), LARGEST_REWARD)
        found.append(np.asarray(known, dtype=np.float64))
    return np.concatenate(found), tuple(one.size for one in found) if all(nested) else None
