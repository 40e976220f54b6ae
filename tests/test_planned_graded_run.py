"""The study of the planner's group size for a run of graded rewards: what judges, what is drawn, and what is claimed."""

import numpy as np
import pytest

from grpo_theory.plan.run_worlds import WORLDS
from simulations.plan.planned_graded_run import (
    KINDS,
    RATES,
    VALUES,
    problems,
    start_laws,
)


@pytest.mark.parametrize("start", RATES)
def test_prompts_start_at_the_mean_rewards_of_the_study(start):
    values, shares = start_laws(start)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-12)
    easiest, rarest = RATES[start]
    # evenly spaced values stand for the cells of the beta law, so that its mean is kept to about half a cell
    np.testing.assert_allclose((shares @ values)[[0, -1]], [easiest, rarest], atol=0.5 / VALUES if start == "many" else 1e-12)
    names = [WORLDS[kind].title for kind in KINDS]
    assert list(problems(start, 1)) == names
