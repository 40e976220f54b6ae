"""The study of the planner's group size for a run: what is left out, what is drawn, what is counted and what is claimed."""

import numpy as np
import pandas as pd
import pytest

import grpo_theory as gt
from grpo_theory.plan.run_advice import SIZES, RunAdvice, WorldRuns
from simulations.plan.error_parts import Part, along, best_by_others, of_runs, summary_of
from simulations.plan.planned_run import (
    AGAINST,
    NETWORKS,
    REGRET,
    SAME,
    cells,
    claims,
    drawn_log,
    network,
    problems,
    rows,
    simulate,
)
from simulations.plan.run_regret import JUDGED_RUNS, LOGGED, PROMPTS, lost, lost_in, spread_of_logs, without

BEST = 1
"""The place of size 4, which is best in the worlds that are made up here: an octave from it costs two points."""


def world(seed, spread=0.001):
    """Runs of a made up world, shape (R, S)."""
    means = 0.5 - 0.02 * np.abs(np.log2(np.array(SIZES) / 4))
    return means + spread * np.random.default_rng(seed).normal(size=(JUDGED_RUNS, len(SIZES)))


def table_of_logs(*told, start="easy"):
    """A table of one cell with two worlds, of logs that led to these sizes, one for each world."""
    settings = {"start": start, "estimator": "rloo", "each": 16, "logs": len(told)}
    logs = [dict(zip("ab", sizes, strict=True)) for sizes in told]
    return pd.DataFrame(rows(settings, [{"a": world(1).tolist(), "b": world(2).tolist()}, *logs]))


# ---- parts of an error


def test_parts_add_up_and_degrees_of_freedom_are_satterthwaites():
    found = summary_of(0.1, [Part(4.0, 3.0), Part(5.0, 10.0), Part(0.0, 1.0), Part(7.0)])
    assert (found["estimate"], found["standard_error"]) == (0.1, 4.0)
    assert found["replications"] == int(256.0 / (16.0 / 3.0 + 25.0 / 10.0)) + 1
    with pytest.raises(ValueError, match="variance that runs or logs have shown"):
        summary_of(0.0, [Part(0.0, 3.0), Part(1.0)])


def test_no_run_judges_the_column_that_it_chose():
    samples = np.random.default_rng(3).normal(size=(8, 3))
    chosen = best_by_others(samples, 4)
    for fold, share in enumerate(np.array_split(np.arange(8), 4)):
        others = [r for r in range(8) if r not in share]
        assert chosen[fold] == samples[others].mean(axis=0).argmax()
        changed = samples.copy()
        changed[share] += [100.0, 0.0, 0.0]
        assert best_by_others(changed, 4)[fold] == chosen[fold]
    assert 1 not in best_by_others(samples + np.array([0.0, 100.0, 0.0]), 4, without=1)
    np.testing.assert_array_equal(along(samples, np.array([0, 1, 2, 0]))[[0, 2, 4, 6]], samples[[0, 2, 4, 6], [0, 1, 2, 0]])


def test_the_best_of_noise_is_not_ahead_of_itself():
    """Of columns that are alike, the one that other runs chose is ahead of another by nothing on average: choosing is no gain."""
    drawn = np.random.default_rng(4).normal(size=(2000, 16, 6))
    ahead = np.array([(along(each, best_by_others(each, 4, 0)) - each[:, 0]).mean() for each in drawn])
    assert abs(ahead.mean()) < 4.9 * ahead.std() / np.sqrt(len(ahead))
    naive = np.array([each.mean(axis=0)[1:].max() - each[:, 0].mean() for each in drawn])
    assert naive.mean() > 20.0 * naive.std() / np.sqrt(len(naive))


# ---- what is lost


def test_what_is_lost_is_told_from_the_best_other_size():
    by_log, sample, choices = lost_in(world(1), np.array([BEST, BEST + 1, BEST + 2]), None)
    assert by_log == pytest.approx([0.0, 0.02, 0.04], abs=1e-3)
    assert by_log[0] == 0.0, "the best loses nothing"
    assert sample.mean() == pytest.approx((-0.02 + 0.02 + 0.04) / 3.0, abs=1e-3)
    assert choices == 2.0


def test_a_choice_that_is_the_best_has_the_error_of_the_best_other_one():
    certain = lost([world(1), world(2)], [0.0, 0.0], np.full((2, 2), BEST), None)
    expected = np.sqrt(2.0 * 2.0 * 0.001**2 / JUDGED_RUNS) / 2.0
    assert (certain["estimate"], certain["log_variance"]) == (0.0, 0.0)
    assert certain["standard_error"] == pytest.approx(expected, rel=0.15)
    more = lost([world(1), world(2)], [4e-6, 4e-6], np.full((2, 2), BEST), None)
    assert more["rate_variance"] == pytest.approx(2.0 * 4e-6 / 4.0 / 2.0)


def test_logs_that_lead_to_other_sizes_are_a_part_of_the_error():
    apart = lost([world(1), world(2)], [0.0, 0.0], np.array([[1, 1], [3, 3]]), None)
    assert apart["estimate"] == pytest.approx(0.02, abs=1e-3)
    assert apart["log_variance"] == pytest.approx(0.04**2 / 2.0, rel=0.05)
    assert apart["standard_error"] == pytest.approx(np.sqrt(apart["log_variance"] / 2.0), rel=0.05)


def test_one_size_is_compared_with_another_run_by_run():
    worlds = [world(1), world(2)]
    found = lost(worlds, [4e-6, 4e-6], np.full((2, 2), 2), np.array([3, 3]))
    difference = [runs[:, 3] - runs[:, 2] for runs in worlds]
    assert found["estimate"] == pytest.approx(np.mean(difference), rel=1e-12)
    assert found["run_variance"] == pytest.approx(sum(of_runs(each).variance for each in difference) / 4.0)
    assert found["rate_variance"] == pytest.approx(2.0 * 4e-6 / 4.0 / 2.0)
    same = lost(worlds, [4e-6, 4e-6], np.full((2, 2), 3), np.array([3, 3]))
    assert (same["estimate"], same["standard_error"]) == (0.0, 0.0)


@pytest.mark.parametrize(("told", "verdict"), [((4, 4), "confirmed"), ((32, 16), "refuted")])
def test_a_good_choice_is_confirmed_and_a_bad_one_refuted(told, verdict):
    other = table_of_logs((4, 8), *((4, 4),) * 7, start="wide")
    found = list(claims(pd.concat([table_of_logs(*(told,) * 8), other])))
    assert {one.statement.id for one in found} == {REGRET.id, SAME.id, *(one.id for one in AGAINST.values())}
    regret = next(one for one in found if one.statement == REGRET and "easy" in one.setting)
    low, high = regret.evidence.interval(0.05)
    assert (high <= 0.02, low > 0.02) == (verdict == "confirmed", verdict == "refuted")
    assert regret.control.interval(0.05)[0] > 0.02
    ordering = next(one for one in found if one.statement == AGAINST[16] and "easy" in one.setting)
    assert (ordering.evidence.interval(0.05)[1] < 0.0) == (verdict == "confirmed")
    assert ordering.control.interval(0.05)[0] > 0.0


def test_no_comparison_is_certain_where_all_logs_agree():
    """The spread of logs is pooled over cells, so that four logs that lead to one size do not say that all do."""
    alone, other = table_of_logs((4, 4), (4, 4)), table_of_logs((4, 8), (4, 4), start="wide")
    both = pd.concat([alone, other])
    logs = spread_of_logs(both[both["quantity"] == "lost"])
    assert logs["best"].free == 2
    assert logs["best"].variance == pytest.approx(0.02**2 / 8.0 / 2.0, rel=0.1)
    assert all(one.evidence.standard_error > 0.0 for one in claims(both))


def test_the_first_chunk_trains_and_the_others_ask():
    cell = cells(quick=True)[0]
    settings = dict(cell.settings) | {"start": "network of width 16", "each": 2}
    ((name, runs),) = simulate(settings, np.random.default_rng(1), 0).items()
    assert (name, np.shape(runs)) == ("network of width 16", (JUDGED_RUNS, len(SIZES)))
    assert len({tuple(column) for column in np.transpose(runs)}) == len(SIZES)
    assert cell.chunks == 1 + settings["logs"]


# ---- worlds and logs


def test_a_kind_of_world_is_left_out_with_both_its_readings():
    success, errors = np.array([0.4, 0.5]), np.zeros(2)
    worlds = tuple(
        WorldRuns(title, floor, weight, 0.1, success, errors)
        for title, floor, weight in (("a", 0.1, 0.2), ("a", 0.01, 0.3), ("b", 0.1, 0.1), ("b", 0.01, 0.4))
    )
    advice = RunAdvice("rloo", 100.0, 10, 10.0, np.array([2, 4]), worlds, None)
    left = without(advice, "a")
    assert [world.title for world in left.worlds] == ["b", "b"]
    np.testing.assert_allclose(left.weights, [0.2, 0.8])
    assert len(without(advice, "a network").worlds) == 4


def test_a_log_is_drawn_from_the_rates_of_the_start():
    log = drawn_log(np.array([0.2, 0.4]), np.random.default_rng(1))
    assert (log.prompts, set(log.sizes.tolist())) == (LOGGED[0], {LOGGED[1]})
    assert log.means.mean() == pytest.approx(0.3, abs=4 * 0.5 / np.sqrt(LOGGED[0] * LOGGED[1]))


@pytest.mark.parametrize("start", ["easy", *NETWORKS])
def test_what_is_judged_starts_where_it_says(start):
    for problem in problems(start).values():
        rates = (problem.policy.probabilities(problem.theta) * problem.bandit.mean_reward).sum(axis=-1)
        assert rates.shape == (PROMPTS,)
        if start == "easy":
            np.testing.assert_allclose(rates, np.geomspace(0.5, 0.1, PROMPTS), rtol=1e-9)
        else:
            assert rates.min() < 1e-3 < 0.3 < rates.max()


def test_networks_learn_their_features():
    assert isinstance(network(16).policy, type(gt.TwoLayerSoftmax(np.ones((2, 3)), 2, 3)))
