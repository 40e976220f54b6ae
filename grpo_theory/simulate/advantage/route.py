"""By which path the advantages of a training run are found: the first of those that are open, the fastest first."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.compiler.first_class import FunctionValue
from grpo_theory.estimation import Estimator
from grpo_theory.estimation.advantage import Advantage
from grpo_theory.estimation.affine import affine_coefficients
from grpo_theory.estimation.kernel import PROMPT_FIELDS, Batch
from grpo_theory.exact.exchangeability import check_alone, treats_alike
from grpo_theory.exact.multisets import NotFiniteError, advantages_of
from grpo_theory.exact.table import UNREAD, AdvantageTable, advantage_table, can_be_tabulated
from grpo_theory.problem import Problem
from grpo_theory.simulate.advantage.sums import sum_in_order, sum_shown

_TRIED = 256
"""Made-up groups on which a kernel is tried."""
NO_TABLE = AdvantageTable(np.empty((1, 0, 0)), np.empty((0, 0), dtype=np.int64))


class Path(NamedTuple):
    """How advantages are found, with what that takes."""

    fill_sums: FunctionValue | None = None
    table: AdvantageTable = NO_TABLE
    coefficients: Array = np.empty(0)

    @property
    def is_called(self) -> bool:
        """Whether the kernel is called."""
        return self.fill_sums is not None


def find_path(problem: Problem, estimator: Estimator, group_size: int) -> Path:
    """Return the path for an estimator.

    Raises
    ------
    ValueError
        If the kernel says that it sees each group by itself, and does not.
    """
    try:
        return _fastest(problem, estimator, group_size)
    except NotFiniteError:  # it is called every time, so that only runs that meet such a value fail
        return Path(sum_in_order)


def _fastest(problem: Problem, estimator: Estimator, group_size: int) -> Path:
    advantage, values = estimator.advantage, problem.bandit.values
    if not _moves(problem, estimator) and can_be_tabulated(advantage, values.size, group_size, 1):
        table = advantage_table(advantage, tuple(values), group_size, UNREAD)
        if table is not None:
            return Path(table=table)
    alike = not advantage.couples_groups and _treats_alike(advantage, tuple(values), group_size)
    coefficients = affine_coefficients(advantage, group_size)
    if coefficients is not None:
        return Path(coefficients=coefficients)
    return Path(sum_shown if alike else sum_in_order)


def is_called_for_size(path: Path, problem: Problem, estimator: Estimator) -> bool:
    """Whether a kernel is called though it treats responses alike, and nothing that it sees changes with the policy."""
    return path.fill_sums is sum_shown and not _moves(problem, estimator)


def _moves(problem: Problem, estimator: Estimator) -> bool:
    """Whether what a kernel sees of rewards and prompts changes with the policy."""
    penalised = problem.kl is not None and estimator.kl.place == "reward"
    return penalised or bool(estimator.advantage.reads & set(PROMPT_FIELDS))


@lru_cache(maxsize=64)
def _treats_alike(advantage: Advantage, values: tuple[float, ...], group_size: int) -> bool:
    """Try the kernel on made-up groups, once; raise if it does not see each group by itself, though it says so."""
    generator, shape = np.random.default_rng(0), (_TRIED, group_size)
    rewards, norms = generator.choice(values, shape), 1.0 + generator.random(shape)
    fields = [generator.random(_TRIED) for _ in PROMPT_FIELDS]
    batch = Batch._make([rewards, norms, generator.integers(1, 9, shape), *fields, advantage.parameter_array])
    advantages = advantages_of(advantage, batch)
    check_alone(advantage, batch, advantages)
    return treats_alike(advantage, batch, advantages)
