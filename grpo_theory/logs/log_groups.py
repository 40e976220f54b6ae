"""The groups of a log: which rows belong together, and which steps are used."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from grpo_theory.validation import Array, Flags, Integers, shown

MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""The golden ratio of 2^64: multiplying by it spreads what numbers differ in over all bits."""

NO_RESPONSE = 0
"""The hash of a response that is missing or empty, by which two rows cannot be told to be one."""

Steps = str | int | tuple[int, int]


def check_steps(steps: Steps) -> None:
    """Raise unless `steps` is one of the ways of saying which steps are used."""
    pair = isinstance(steps, tuple) and len(steps) == 2 and all(type(one) is int for one in steps)
    if not (steps in ("newest", "last", "all") if isinstance(steps, str) else pair or type(steps) is int):
        raise ValueError(f"steps must be 'newest', 'last', 'all', a step or the first and last of a range, got {shown(steps)}")


@dataclass(frozen=True, eq=False)
class Selection:
    """Which groups stay, (B,), of which steps they are, and how many do not stay because their prompt has a later one."""

    kept: Flags
    steps: tuple[int, ...]
    other_steps: int
    repeated: tuple[int, ...]
    older: int


@dataclass
class LogGroups:
    """Prompts and groups, numbered as they first appear, and a mark of each step's rows, by which a repeated step is known.

    Attributes
    ----------
    prompts : dict of str to int
        Numbers by what the ids are as text: 1, 1.0 and "1", as one file or another writes them, are one prompt.
    first : list
        The ids as they first came, by number.
    pairs : dict of (int, int) to int
        (step, number of the prompt) of each group, and the group's number.
    marks : dict of int to int
        By step.
    unknown : set of int
        Steps with rows without a response.
    """

    prompts: dict[str, int] = field(default_factory=dict)
    first: list = field(default_factory=list)
    pairs: dict[tuple[int, int], int] = field(default_factory=dict)
    marks: dict[int, int] = field(default_factory=dict)
    unknown: set[int] = field(default_factory=set)

    def number(self, codes: Integers, dictionary: list, steps: Integers) -> tuple[Integers, Integers]:
        """Return the numbers of the prompt and of the group of each row, from its prompt's code in a dictionary and its step."""
        import pandas as pd  # slow to import, and not always wanted

        prompts = np.array([self._number(one) for one in dictionary], dtype=np.int64)[codes]
        values, inverse = np.unique(steps, return_inverse=True)
        # factorize and not np.unique: it numbers groups in the order in which they first appear, and does not sort.
        within, codes_of_pairs = pd.factorize(prompts * values.size + inverse)
        keys = [(int(values[pair % values.size]), int(pair // values.size)) for pair in codes_of_pairs]
        return prompts, np.array([self.pairs.setdefault(one, len(self.pairs)) for one in keys], dtype=np.int64)[within]

    def _number(self, prompt: Hashable) -> int:
        """Return the number of a prompt, a new one at its first appearance."""
        text = str(int(prompt) if isinstance(prompt, float) and prompt.is_integer() else prompt)
        number = self.prompts.setdefault(text, len(self.first))
        if number == len(self.first):
            self.first.append(prompt)
        return number

    def mark(self, prompts: Integers, rewards: Array, steps: Integers, responses: np.ndarray | None) -> None:
        """Add rows to the marks of their steps: a sum over rows, in any order, of a hash of prompt, response and reward.

        A step with rows without a response is none that is known to be repeated: rewards alone do not tell rows apart.
        """
        values, inverse = np.unique(steps, return_inverse=True)
        if responses is None:
            self.marks |= dict.fromkeys(values.tolist(), 0)
            self.unknown |= set(values.tolist())
            return
        self.unknown |= set(steps[responses == NO_RESPONSE].tolist())
        hashed = responses
        for part in (prompts.astype(np.uint64), (rewards + 0.0).view(np.uint64)):
            # The sum over rows does not know which number belongs to which row, so each row is mixed into one number first.
            hashed = (hashed ^ part) * MULTIPLIER
            hashed = hashed ^ (hashed >> np.uint64(29))
        totals = np.zeros(values.size, dtype=np.uint64)
        np.add.at(totals, inverse, hashed)
        for value, total in zip(values.tolist(), totals.tolist(), strict=True):
            self.marks[value] = (self.marks.get(value, 0) + total) % 2**64

    def select(self, steps: Steps) -> Selection:
        """Return which groups are of steps that are asked for, do not repeat the step before, and are their prompt's newest.

        Several groups of one prompt are not independent, so that only "all" keeps them.
        """
        if not self.marks:
            if not isinstance(steps, str):
                raise ValueError(f"steps must be 'newest' for a log without steps, got {steps}")
            return Selection(np.ones(len(self.pairs), dtype=np.bool_), (), 0, (), 0)
        present = sorted(self.marks)
        repeated = {b for a, b in pairwise(present) if self.marks[a] == self.marks[b] and b not in self.unknown}
        fresh = [one for one in present if one not in repeated]
        if isinstance(steps, str):
            wanted = fresh[-1:] if steps == "last" else fresh
        else:
            low, high = steps if isinstance(steps, tuple) else (steps, steps)
            wanted = [one for one in fresh if low <= one <= high]
        if not wanted:
            missing = f"steps {steps[0]} to {steps[1]}" if isinstance(steps, tuple) else f"step {steps}"
            there = f"steps {present[0]} to {present[-1]}" if len(present) > 1 else f"step {present[0]} only"
            raise ValueError(f"steps must name a step of the log: it has no {missing}, and contains {there}")
        group_steps, prompts = np.array(list(self.pairs), dtype=np.int64).T
        asked = np.isin(group_steps, wanted)
        kept = asked if steps == "all" else _newest(asked, group_steps, prompts)
        stayed = tuple(np.unique(group_steps[kept]).tolist())
        return Selection(kept, stayed, len(fresh) - len(wanted), tuple(sorted(repeated)), int((asked & ~kept).sum()))

    def ids(self, chosen: Selection, steps: Steps) -> list:
        """Return the groups' ids: the prompt's, or (step, prompt) if all groups of several steps stay."""
        several = steps == "all" and len(chosen.steps) > 1
        return [(step, self.first[prompt]) if several else self.first[prompt] for step, prompt in self.pairs]


def _newest(asked: Flags, steps: Integers, prompts: Integers) -> Flags:
    """Return which of the groups asked for is the one of the greatest step among those of its prompt."""
    newest = np.full(prompts.max() + 1, np.iinfo(np.int64).min)
    np.maximum.at(newest, prompts[asked], steps[asked])
    return asked & (steps == newest[prompts])
