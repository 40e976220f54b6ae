"""The study of what rewards alone tell: it tries the public functions' own limits, against truths that are exact."""

import numpy as np
import pandas as pd
import pytest
from rates import table

import grpo_theory as gt
from grpo_theory.harness.study import joined
from simulations.plan import plan_coverage
from simulations.plan.rate_laws import HARD, SOUGHT, RateLaw, count_tables, honest_limits, laws

MIXED = RateLaw(2.0, 5.0, ((0.0, 0.3), (0.15, 0.1)))


@pytest.mark.parametrize("size", [2, 8])
def test_the_limits_are_those_of_the_public_functions(size):
    successes = np.random.default_rng(20261124).binomial(size, MIXED.draw((3, 40), np.random.default_rng(1)))
    found = honest_limits(count_tables(successes, size))
    for pilot, one in enumerate(successes):
        counts = table(one, size)
        shares = gt.plan.estimate_uniform_shares(counts, [size, 2 * size]).interval
        grpo, max_rl = (gt.plan.weigh_prompts(counts, name, size) for name in ("grpo", "max_rl"))
        factor = gt.plan.learning_rate_factor(counts, ("grpo", size), ("grpo", 2 * size)).factor
        public = {
            "uniform share": (shares.low[0], shares.high[0]),
            "uniform share, doubled": (shares.low[1], shares.high[1]),
            "step": (grpo.scale.low, grpo.scale.high),
            "weighted rate": (max_rl.mean_rate.low, max_rl.mean_rate.high),
            "hard prompts": (grpo.prompts.low[0], grpo.prompts.high[0]),
            "hard weight": (grpo.shares.low[0], grpo.shares.high[0]),
            "learning rate": (factor.low, factor.high),
        }
        assert list(public) == list(SOUGHT)
        for name, limits in public.items():
            assert [ends[pilot] for ends in found[name]] == pytest.approx([float(limit) for limit in limits], rel=1e-9), name


def test_truths_are_means_over_the_law_and_intervals_hold_most_of_them():
    law, name = laws()["never, always, between"], "never, always, between"
    counted = joined([plan_coverage.counted("design", name, 512, 8, 100, np.random.default_rng(5))])
    found = pd.DataFrame(plan_coverage.shares(counted, 100)).set_index("quantity")
    rates = law.draw((400_000,), np.random.default_rng(4))
    slope = gt.theory.finite_group_objective("grpo", 8).slope(rates)
    drawn = {
        "uniform share": (rates**8 + (1.0 - rates) ** 8).mean(),
        "step": slope.mean(),
        "hard prompts": (rates <= HARD).mean(),
        "hard weight": slope[rates <= HARD].sum() / slope.sum(),
    }
    for quantity, value in drawn.items():
        assert found.loc[quantity, "truth"] == pytest.approx(value, abs=5e-3)
    assert (found["estimate"] > 0.85).all()
    assert found.loc["uniform share", "plugged_in"] < 0.4
