"""The studies of what becomes of the best group size over a run: kernels, closed forms and the law's choices."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

import grpo_theory as gt
from grpo_theory.harness.sides import study_of
from grpo_theory.theory.finite_group import mixed_share, standardised_slope
from simulations.runs import best_size_law, commitment, group_size_growth
from simulations.runs.arms import success_rates
from simulations.runs.sized import WORLDS, arm_estimator, division_weight, over_draws
from simulations.runs.worlds import World
from simulations.seeds import child_seed

TINY = World(prompts=3, answers=4, dimension=6, held_out=0)


@pytest.mark.parametrize("size", [2, 3, 8, 64, 512])
def test_the_weight_is_that_of_groups_divided_by_their_deviation(size):
    for success in (1e-9, 1e-3, 0.2, 0.5, 0.7, 1.0 - 1e-6):
        weight = division_weight(success, float(size))
        assert weight == pytest.approx(standardised_slope(success, size, 1.0, 0.0), rel=1e-9)


def mean_of(problem, arm, size):
    return gt.gradient_mean(problem, problem.theta, arm_estimator(arm, size), batch_size=2, group_size=size)


def test_the_parts_of_division_have_the_means_that_they_should():
    """Weights alone have GRPO's mean, up to its epsilon; noise alone the gradient; lent weights those of groups of 64."""
    problem = TINY.problem()
    moments = gt.moments(problem, problem.theta)
    weighted = np.mean(standardised_slope(moments.value, 64, 1.0, 0.0)[:, None] * moments.prompt_gradients, axis=0)
    assert mean_of(problem, "weights", 4) == pytest.approx(mean_of(problem, "grpo", 4), rel=1e-3)
    assert mean_of(problem, "oracle", 4) == pytest.approx(mean_of(problem, "weights", 4), rel=1e-9, abs=1e-12)
    assert mean_of(problem, "noise", 4) == pytest.approx(moments.gradient, rel=1e-9, abs=1e-12)
    assert mean_of(problem, "lent", 4) == pytest.approx(weighted, rel=1e-9, abs=1e-12)
    assert abs(mean_of(problem, "lent", 4) - mean_of(problem, "weights", 4)).max() > 1e-2


def test_the_closed_form_without_interference_is_the_sum_over_all_sequences_of_groups():
    success, size, groups = np.array([0.3, 0.05]), 3, 4
    signal = mixed_share(success, size)
    expected = 0.0
    for sequence in product(product((0, 1), (False, True)), repeat=groups):
        chance, reached = 1.0, success.copy()
        for prompt, mixed in sequence:
            solved = reached[prompt] == 1.0
            chance *= 0.5 * (0.5 if solved else signal[prompt] if mixed else 1.0 - signal[prompt])
            reached[prompt] = 1.0 if mixed else reached[prompt]
        expected += chance * reached.mean()
    assert group_size_growth.coverage(success, size, size * groups) == pytest.approx(expected, rel=1e-12)


def test_without_interference_groups_of_two_or_three_are_best_at_any_budget():
    success = np.geomspace(0.9, 1e-4, 60)
    for budget in (720, 7200, 72000):
        at = [group_size_growth.coverage(success, size, budget) for size in (2, 3, 4, 8, 24)]
        assert at[1] == pytest.approx(at[0], abs=2e-3)
        assert sorted(at[1:], reverse=True) == at[1:]


@pytest.mark.parametrize("estimator", ["rloo", "grpo"])
def test_no_update_lowers_a_prompt_without_interference_and_some_do_with_it(estimator, monkeypatch):
    for dimension in (0, 6):
        monkeypatch.setitem(WORLDS, "tiny", TINY._replace(dimension=dimension))

        def lowered(problem, theta):
            return (success_rates(problem, theta) < success_rates(problem, problem.theta) - 1e-12).any(axis=-1)

        found = over_draws("tiny", estimator, 4, [64], (2, 25), np.random.SeedSequence(3), [30.0], look=lowered)
        assert (found > 0.0).all() == (dimension > 0)


def test_draws_are_the_means_of_their_runs_on_the_words_of_their_own_seeds(monkeypatch):
    """Each draw of the world is trained as `simulate_training` does, with a seed that other arms share."""
    monkeypatch.setitem(WORLDS, "tiny", TINY)
    seed = np.random.SeedSequence(5)
    found = over_draws("tiny", "rloo", 8, [64, 192], (3, 4), seed, [2.0, 4.0])
    problem = TINY.problem(2)
    how = {"batch_size": 8, "group_size": 8, "steps": 3, "checkpoints": [1, 3], "replications": 4}
    runs = gt.simulate_training(problem, problem.theta, "rloo", gt.Constant(4.0), rng=child_seed(seed, 2), **how)
    assert found.shape == (2, 3, 2)
    assert found[1, 2] == pytest.approx(runs.objectives.mean(axis=0), rel=1e-12)


def test_the_law_says_one_size_without_division_and_larger_ones_with_it():
    problem = WORLDS["roomy"].problem()
    sizes, budgets = best_size_law.SIZES, (512, 2048, 8192, 32768)
    chosen = {name: best_size_law.law_sizes(problem, name, sizes, budgets) for name in ("rloo", "grpo")}
    least = int(np.argmin([best_size_law.noise_at_start(problem, "rloo", size) for size in sizes]))
    assert chosen["rloo"] == len(budgets) * [sizes[least]]
    assert chosen["grpo"] == sorted(chosen["grpo"])
    assert chosen["grpo"][0] < chosen["grpo"][-1]


def test_the_frontier_is_where_eight_successes_are_expected_of_a_prompts_share():
    problem = WORLDS["roomy"].problem()
    weights = best_size_law.frontier_weights(problem, "grpo", 64)
    frontier = [8 * 8 / budget for budget in best_size_law.BUDGETS]
    assert weights == pytest.approx(standardised_slope(frontier, 64, 1.0, 1e-4), rel=1e-8)
    kept = best_size_law.frontier_weights(WORLDS["visible"].problem(), "grpo", 64)
    assert kept[-1] == pytest.approx(standardised_slope(0.1, 64, 1.0, 1e-4), rel=1e-8)


def test_the_noise_at_the_start_is_that_of_one_response_in_pairs():
    """With groups of 2 and known moments: N times the trace of rloo's covariance does not depend on N."""
    problem = WORLDS["roomy"].problem()
    law = gt.gradient_law(problem, problem.theta, "rloo", batch_size=5, group_size=2)
    assert best_size_law.noise_at_start(problem, "rloo", 2) == pytest.approx(10 * law.trace, rel=1e-12)


def test_the_law_is_judged_at_the_size_that_it_chooses_for_each_draw():
    """Groups of 2 are better than groups of 4 in both draws. The law takes them in one, and without noise in both."""
    success = np.repeat(np.array([0.6, 0.5])[:, None, None, None], 2, axis=2) * np.ones(3)
    weight, noise = np.array([2.0, 1.0])[:, None, None] * np.ones((2, 2, 3)), np.array([[1.0, 16.0], [1.0, 1.0]])
    found = {"success": success, "weight": weight, "noise": noise}
    lost = {row["quantity"]: row["estimate"] for row in best_size_law.lost(found)}
    assert lost[best_size_law.LAW] == pytest.approx(0.05)
    assert lost["loss of always 4"] == pytest.approx(0.1)
    sides = {noise: best_size_law.law(found, "grpo", noise) for noise in (True, False)}
    assert sides[True]["growth/law"][0].estimate == pytest.approx(0.05)
    assert sides[False]["growth/law"][0].estimate == pytest.approx(0.0, abs=1e-12)
    assert sides[True]["growth/law, against one size"][0].estimate == pytest.approx(-0.05)


@pytest.mark.parametrize("study", [group_size_growth, best_size_law, commitment])
def test_a_quick_run_yields_claims_about_what_it_states(study):
    own = study_of(study)
    results = []
    for cell in own.cells(True):
        chunks = [own.compute(cell.settings, np.random.default_rng(1), chunk) for chunk in range(cell.chunks)]
        results.append((cell.settings, chunks))
    claims = own.claims(pd.DataFrame(own.table(results, quick=True)))
    assert {claim.statement.id for claim in claims} == set(own.decides)


def test_the_sides_of_the_growth_are_leads_over_the_draws_that_both_arms_have():
    """Success that rises by draw in the same way in all arms: leads are exact, and an arm with fewer draws leads by the same."""
    levels = {"grpo": 0.5, "rloo": 0.4, "weights": 0.45, "noise": 0.3, "lent": 0.55, "oracle": 0.0, "dropped": 0.0}
    found = [
        {"ends": levels[arm] + 0.01 * (size == 64) + 0.1 * np.arange(4 if arm == "grpo" else 3)[:, None] * np.ones((8, 1, 3))}
        for arm, size, _ in group_size_growth.arms_of("small")
    ]
    sides = group_size_growth.causes(found)
    late, gains = sides.pop("growth/late")
    assert list(gains.values()) == pytest.approx([0.01] * len(gains))
    assert late.estimate == pytest.approx(-0.01)
    expected = {"weights alone": 0.05, "noise alone": 0.1, "undivided": 0.01, "lent weights": -0.04}
    assert {name: own.estimate for name, own in sides.items()} == pytest.approx(
        {f"growth/{name}": value for name, value in expected.items()}
    )
    assert max(own.standard_error for own in sides.values()) < 1e-9
