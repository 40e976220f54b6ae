"""What a monitor sees of a step's groups, and what it remembers: which had signal, and the sketches of the newest ones."""

from collections.abc import Hashable, Iterable

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.intervals.interval import binomial_limits
from grpo_theory.intervals.ragged import RaggedRollouts
from grpo_theory.validation import Array, Flags, Integers, as_real_array, shown


class StepGroups:
    """The responses of one step by their prompts: `RaggedRollouts` without what a run would wait for at every step.

    Attributes
    ----------
    rewards : ndarray, shape (N,)
    prompts : list of B hashable ids
    index : ndarray of int64, shape (N,)
        The prompt of each response.
    sizes : ndarray of int64, shape (B,)
    signal : ndarray of bool, shape (B,)
        Whether a group's rewards differ.
    """

    def __init__(self, rewards: ArrayLike, prompts: Iterable[Hashable]) -> None:
        self.rewards = as_real_array("rewards", rewards, 1)
        if isinstance(prompts, str | bytes) or not isinstance(prompts, Iterable):
            raise TypeError(f"prompts must be ids, one per response, got {shown(prompts)}")
        numbers: dict[Hashable, int] = {}
        self.index: Integers = np.array([numbers.setdefault(one, len(numbers)) for one in prompts], dtype=np.int64)
        if self.index.size != self.rewards.size:
            raise ValueError(f"prompts must have an id for each of the {self.rewards.size} rewards, got {self.index.size}")
        if None in numbers:
            first = self.index.tolist().index(numbers[None])
            raise ValueError(f"prompts must be ids, one per response, got None at index ({first},)")
        if len(numbers) == self.index.size:
            raise ValueError(
                f"prompts must be shared by the responses of a group, and each of the {len(numbers)} ids has one response. Give "
                "all responses to a prompt the same id"
            )
        self.prompts: list[Hashable] = list(numbers)
        self.sizes: Integers = np.bincount(self.index)
        least, most = np.full(self.sizes.size, np.inf), np.full(self.sizes.size, -np.inf)
        np.minimum.at(least, self.index, self.rewards)
        np.maximum.at(most, self.index, self.rewards)
        self.signal: Flags = most > least


class SignalWindow:
    """Which groups had different rewards, since the last reading."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all groups."""
        self._signal: list[Flags] = []
        self.steps: set[int] = set()
        self.responses = 0

    def add(self, step: int, groups: StepGroups) -> None:
        """Add the groups of a step, or of a part of it."""
        self._signal.append(groups.signal)
        self.responses += groups.rewards.size
        self.steps.add(step)

    @property
    def responses_per_step(self) -> int:
        """How many responses a step had on average."""
        return round(self.responses / len(self.steps))

    def share(self, level: float) -> tuple[float, float, float]:
        """Return the share of groups with signal and Clopper and Pearson's limits, which take groups for independent."""
        signal = np.concatenate(self._signal)
        low, high = binomial_limits(signal.sum(), (~signal).sum(), level)
        return float(signal.mean()), float(low), float(high)


class SketchPool:
    """The newest sketched group of each prompt.

    Parameters
    ----------
    most : int
        The most prompts that are kept: memory and time of a reading do not grow with the run.
    oldest : int
        A group is dropped after so many steps, because the policy that gave it is no longer the one that is trained.
    """

    def __init__(self, most: int, oldest: int) -> None:
        self.most, self.oldest = most, oldest
        self._groups: dict[Hashable, tuple[int, Array, Array | None]] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, step: int, prompt: Hashable, rewards: Array, sketches: Array | None) -> None:
        """Keep a prompt's group, in place of an older one of the same prompt; without sketches if they make no difference."""
        self._groups.pop(prompt, None)
        self._groups[prompt] = (step, rewards, sketches)

    def rollouts(self, step: int) -> RaggedRollouts | None:
        """Return the groups that are not too old at a step, the newest ones; None if none has a sketch."""
        fresh = [(prompt, group) for prompt, group in self._groups.items() if step - group[0] < self.oldest]
        self._groups = dict(fresh[-self.most :])
        widths = {sketches.shape[1] for _, _, sketches in self._groups.values() if sketches is not None}
        if not widths:
            return None
        if len(widths) > 1:
            raise ValueError(f"sketches must have one width, got {' and '.join(map(str, sorted(widths)))}")
        width = widths.pop()
        rewards = [one for _, one, _ in self._groups.values()]
        sketches = [np.zeros((own.size, width)) if one is None else one for _, own, one in self._groups.values()]
        index = np.repeat(np.arange(len(rewards)), [part.size for part in rewards])
        return RaggedRollouts.from_index(range(len(rewards)), index, np.concatenate(rewards), np.concatenate(sketches))
