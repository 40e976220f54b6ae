"""The study of what rewards alone tell: it tries the public functions' own limits, against truths that are exact."""

import numpy as np
import pandas as pd
import pytest
from rates import table
from scipy.integrate import quad
from scipy.stats import beta

import grpo_theory as gt
from grpo_theory.harness.sides import joined
from simulations.plan import plan_coverage
from simulations.plan.rate_laws import HARD, LANGUAGE_MODEL, SOUGHT, RateLaw, count_tables, honest_limits, laws

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


def test_means_over_a_law_are_integrals():
    coefficients = np.random.default_rng(2).random(6)

    def polynomial(rate):
        return float(sum(c * beta.pdf(rate, k + 1, 6 - k) / 6 for k, c in enumerate(coefficients)))

    for low, high in ((0.0, 1.0), (0.0, 0.2), (0.1, 0.6)):
        smooth = quad(lambda rate: polynomial(rate) * beta.pdf(rate, 2.0, 5.0), low, high, epsabs=1e-13)[0]
        points = 0.3 * coefficients[0] * (low == 0.0) + 0.1 * polynomial(0.15)
        assert MIXED.mean(coefficients, low, high) == pytest.approx(0.6 * smooth + points, abs=1e-12)


def test_draws_have_the_law():
    rates = MIXED.draw((400, 500), np.random.default_rng(3)).ravel()
    for share, expected in (((rates == 0.0).mean(), 0.3), ((rates == 0.15).mean(), 0.1), (rates.mean(), MIXED.mean((0.0, 1.0)))):
        assert abs(share - expected) < 4.9 * 0.5 / np.sqrt(rates.size)
    assert laws()[LANGUAGE_MODEL].mean((1.0,)) == pytest.approx(1.0, abs=1e-12)


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
