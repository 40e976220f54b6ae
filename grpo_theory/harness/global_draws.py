"""Draws from the random numbers that all of a process shares: a study that takes them has other numbers in each run."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from grpo_theory.harness.sides import StudyError


def drawing_own(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of a study that raises StudyError if it draws from `np.random` itself.

    The state is compared before and after. A generator that is made without a seed cannot be seen. Python's `random` is not
    watched, because the threads of a cluster's worker draw their waiting times from it.
    """

    @wraps(function)
    def watched(*arguments: Any) -> Any:
        before = _state()
        made = function(*arguments)
        if _state() != before:
            raise StudyError(
                f"{name}() drew from np.random, whose numbers all of a program share, so they may differ from run to run. "
                "Draw from the generator rng that simulate(settings, rng, chunk) and compare(settings, rng) are given"
            )
        return made

    return watched


def _state() -> str:
    """Return what tells states of any bit generator apart."""
    state: Any = np.random.get_state(legacy=False)  # noqa: NPY002 (what is looked for)
    with np.printoptions(threshold=sys.maxsize):
        return repr(state)
