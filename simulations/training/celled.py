"""Runs whose cells a function of the case names: with settings that are lists, and with a chunk for each arm."""

from collections.abc import Callable
from dataclasses import dataclass

from grpo_theory.harness.sides import Case, Run
from grpo_theory.harness.study import PART, Cell


@dataclass(frozen=True)
class Celled(Run):
    """A run whose settings are not its case itself: see `celled`."""

    asked: Callable[..., tuple[Case, int]] = lambda **case: (case, 1)

    def cell(self, case: Case) -> Cell:
        """Return the cell of a case: what is asked for, in so many chunks."""
        settings, chunks = self.asked(**case)
        return Cell({PART: self.compute.__name__, **settings}, chunks, shared=self.shared)


def celled(asked, *, shared=False):
    """Make a function of settings a run: ``asked(**case)`` returns the settings of a case, and the number of chunks."""
    return lambda compute: Celled(compute, shared=shared, asked=asked)
