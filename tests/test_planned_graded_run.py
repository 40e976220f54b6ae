"""The study of the planner's group size for a run of graded rewards: what judges, what is drawn, and what is claimed."""

import numpy as np
import pandas as pd
import pytest
from test_planned_run import world

from grpo_theory.plan.run_worlds import WORLDS
from simulations.plan.planned_graded_run import (
    ANSWERS,
    CASES,
    KINDS,
    NETWORK,
    PARTS,
    RATES,
    REGRET,
    VALUES,
    cells,
    claims,
    drawn_log,
    problems,
    rows,
    start_laws,
)
from simulations.plan.run_regret import LOGGED, PROMPTS

LEVELS = {"thirds": PARTS + 1, "many": VALUES, NETWORK: 8}


@pytest.mark.parametrize("start", LEVELS)
def test_what_judges_is_not_what_the_planner_has(start):
    for problem in problems(start, 1).values():
        assert problem.bandit.values.size == LEVELS[start]
        assert problem.bandit.n_prompts == PROMPTS
        if start != NETWORK:
            assert problem.bandit.n_responses == ANSWERS > 2 * WORLDS[0].answers


@pytest.mark.parametrize("start", RATES)
def test_prompts_start_at_the_mean_rewards_of_the_study(start):
    values, shares = start_laws(start)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-12)
    easiest, rarest = RATES[start]
    # evenly spaced values stand for the cells of the beta law, so that its mean is kept to about half a cell
    np.testing.assert_allclose((shares @ values)[[0, -1]], [easiest, rarest], atol=0.5 / VALUES if start == "many" else 1e-12)
    names = [WORLDS[kind].title for kind in KINDS]
    assert list(problems(start, 1)) == names


def test_a_log_is_drawn_from_the_laws_of_the_start():
    problem = problems("thirds", 1)[WORLDS[0].title]
    log = drawn_log(problem, np.random.default_rng(1))
    assert (log.prompts, set(log.sizes.tolist())) == (LOGGED[0], {LOGGED[1]})
    probabilities = problem.policy.probabilities(problem.theta)
    means = (probabilities * problem.bandit.mean_reward).sum(axis=1)
    error = np.sqrt(means.var() / LOGGED[0] + 0.25 / PARTS / LOGGED[0] / LOGGED[1])
    assert abs(log.means.mean() - means.mean()) < 4.5 * error


@pytest.mark.parametrize(("told", "verdict"), [((4, 4), "confirmed"), ((32, 16), "refuted")])
def test_a_good_choice_is_confirmed_and_a_bad_one_refuted(told, verdict):
    tables = []
    for start, sizes in (("thirds", told), ("many", (4, 8))):
        settings = {"start": start, "estimator": "rloo", "each": 16, "logs": 8}
        logs = [dict(zip("ab", sizes, strict=True))] + [dict(zip("ab", told if start == "thirds" else (4, 4), strict=True))] * 7
        tables.append(pd.DataFrame(rows(settings, [{"a": world(1).tolist(), "b": world(2).tolist()}, *logs])))
    regret = next(one for one in claims(pd.concat(tables)) if one.statement == REGRET and "thirds" in one.setting)
    low, high = regret.evidence.interval(0.05)
    assert (high <= 0.02, low > 0.02) == (verdict == "confirmed", verdict == "refuted")
    assert regret.control.interval(0.05)[0] > 0.02


def test_the_quick_run_has_levels_and_a_network_and_the_full_one_all():
    quick, full = ({dict(cell.settings)["start"] for cell in cells(quick=quick)} for quick in (True, False))
    assert quick == {"thirds", NETWORK}
    assert full == {start for start, _, _ in CASES} == set(LEVELS)
