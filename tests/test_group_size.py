"""The scaling law and the optimal group size."""

import numpy as np
import pytest
from enumeration import CASES, batch_law, case
from hypothesis import given
from hypothesis import strategies as st

import grpo_theory as gt

positive = st.floats(1e-3, 1e3)


@pytest.mark.parametrize(("batch_size", "group_size"), [(1, 2), (4, 3), (1, 4)])
@pytest.mark.parametrize(("policy", "rewards", "penalty"), CASES)
def test_the_law_is_the_error(policy, rewards, penalty, batch_size, group_size):
    """At three group sizes, which leave its three constants no choice."""
    c = case(policy, rewards, penalty)
    law = gt.group_size_law(c.problem, c.theta)
    mse = batch_law(c, gt.estimators()["rloo"], batch_size, group_size).mse
    assert float(law.mse(batch_size, group_size)) == pytest.approx(mse, rel=1e-12)
    printed = (law.c1 + law.c2 / group_size + law.c3 / group_size**2) / batch_size
    assert printed != pytest.approx(mse, rel=1e-3)


@given(c1=positive, c2=positive, c3=positive, budget=st.integers(2, 300))
def test_the_best_divisor_is_found(c1, c2, c3, budget):
    law = gt.GroupSizeLaw(c1, c2, c3)
    errors = {g: float(law.mse(budget / g, g)) for g in range(2, budget + 1) if budget % g == 0}
    assert errors[law.best(budget)] == pytest.approx(min(errors.values()), rel=1e-14)
    assert budget % law.best(budget) == 0


def test_laws_of_many_datasets_are_each_their_own():
    """Constants may be arrays, and then estimates, which can be negative."""
    c1, c2, c3 = np.array([1.0, 0.0, -0.5, 2.0]), np.array([2.0, 1.0, 1.0, 0.0]), np.array([4.0, 1.0, 3.0, -1.0])
    together = gt.GroupSizeLaw(c1, c2, c3)
    alone = [gt.GroupSizeLaw(*constants) for constants in zip(c1, c2, c3, strict=True)]
    assert together.optimum.tolist() == [law.optimum for law in alone] == [3.0, np.inf, np.inf, 1.0]
    assert together.paper_optimum.tolist() == [law.paper_optimum for law in alone] == [2.0, np.inf, np.inf, 0.0]
    assert together.mse(3, 4).tolist() == [float(law.mse(3, 4)) for law in alone]
    assert together.mse([[1], [2]], 4).shape == (2, 4)
