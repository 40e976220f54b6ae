"""The studies of the group size: the control variate, and verdicts that follow the evidence."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

import grpo_theory as gt
from grpo_theory.estimation.kernel import Batch
from grpo_theory.evidence import judge
from grpo_theory.exact import directional_derivatives
from grpo_theory.harness.sides import claim_of, study_of
from grpo_theory.harness.study import Cell, cell_seed
from grpo_theory.plan.run_simulation import best_step
from simulations.sequence.off_policy import Pairs
from simulations.sequence.parts import random_problem
from simulations.training import group_size, passes, time_to_level
from simulations.training.cases import CASE_AT, case_law, case_problem, case_steps
from simulations.training.contests import ARMS, behind, updates_to_level
from simulations.training.controlled import controlled, controlled_objectives, guide
from simulations.training.learned_time import ARMS as LEARNED_ARMS
from simulations.training.passes import CLIP, GROUP_SIZE, NONE, success_of
from tests.made_up import judged as judged_made_up

FAR_CASE = CASE_AT["kl-linear", "Constant(2)"]


def test_the_control_has_mean_zero_and_takes_most_of_the_variance(seed):
    """|z| < 4.9; the drift that it subtracts is hundreds of standard errors, so an error of some percent in it would show."""
    problem, steps, runs = case_problem(FAR_CASE), case_steps(FAR_CASE, 6), 512
    laws = [case_law(FAR_CASE, n) for n in (3, 6)]
    plain, parts = controlled_objectives(
        problem,
        [guide(law) for law in laws],
        steps,
        [2, 4, 4, 8, 2, 4],
        budget=256,
        runs=runs,
        seed=np.random.SeedSequence(seed(1)),
    )
    for part in parts:
        error = part.std(axis=0) / np.sqrt(runs)
        assert (np.abs(part.mean(axis=0)) < 4.9 * error).all()
    once, twice, thrice = plain - parts[0], controlled(plain, parts[:2]), controlled(plain, parts)
    assert (once.var(axis=0) < 0.1 * plain.var(axis=0)).all()
    assert (twice.var(axis=0) < 0.7 * once.var(axis=0)).all()
    assert (thrice.var(axis=0) < 0.2 * twice.var(axis=0)).all()
    error = parts[0].std(axis=0) / np.sqrt(runs)
    path = case_law(FAR_CASE, 6).path
    drift = sum(
        step * directional_derivatives(problem, theta, slope[None])[0]
        for step, theta, slope in zip(steps, path, laws[1].slopes, strict=False)
    )
    assert 0.05 * drift > 4.9 * error[1]


def test_the_control_does_no_harm_where_it_says_nothing_and_moves_no_mean(seed):
    """Its multiple comes from the other half of the runs: noise of its own loses all weight, a sign turned round takes -1.

    With the multiple of the same runs the mean of few of them is off: by 0.32 with 8 runs of skewed data.
    """
    rng = np.random.default_rng(seed(2))
    values, control = rng.standard_normal((2, 4000, 1))
    zero = np.zeros_like(values)
    assert controlled(values, np.stack([zero, zero, zero])).var() == pytest.approx(values.var())
    assert controlled(values, np.stack([zero, 10.0 * control])).var() < 1.02 * values.var()
    assert controlled(values - control, np.stack([zero, -control, zero])).var() == pytest.approx(values.var(), rel=0.02)
    noise = rng.standard_normal((100_000, 8, 1))
    skewed, control = noise**2 - 1.0, noise * np.abs(noise)
    means = controlled(skewed, np.stack([np.zeros_like(noise), control])).mean(axis=(-2, -1))
    assert abs(means.mean()) < 4.9 * means.std() / np.sqrt(100_000)
    centred = control - control.mean(axis=1, keepdims=True)
    share = (centred * skewed).sum(axis=1, keepdims=True) / (centred**2).sum(axis=1, keepdims=True)
    assert (skewed - share * control).mean() < -0.25


def test_plain_objectives_are_those_of_ordinary_training(seed):
    problem, steps = case_problem(FAR_CASE), case_steps(FAR_CASE, 1)
    plain, _ = controlled_objectives(
        problem, [guide(case_law(FAR_CASE, 1))], steps, [4], budget=64, runs=8, seed=np.random.SeedSequence(5)
    )
    runs = gt.simulate_training(
        problem,
        problem.theta,
        "rloo",
        steps,
        batch_size=16,
        group_size=4,
        steps=1,
        replications=8,
        rng=np.random.SeedSequence(5, spawn_key=(0,)),
    )
    np.testing.assert_allclose(plain, runs.objectives, rtol=1e-14)


WHERE = {"problem": "kl-linear", "schedule": "Constant(2)", "budget": 1024, "quick": False}
FAR_SETTINGS = dict(group_size.trained.cell(WHERE).settings)


@pytest.fixture(scope="module")
def far_table():
    """The losses of one case, the simulated ones replaced by the law's, known to a thousandth."""
    found = group_size.trained(np.random.default_rng(1), 0, **FAR_SETTINGS | {"runs": 2})
    table = group_size.measured(found, "kl-linear", "Constant(2)", 1024).reset_index()
    return table.assign(estimate=table["prediction"], standard_error=1e-3 * table["prediction"].abs(), replications=512)


@pytest.fixture(autouse=True)
def made_up_losses(monkeypatch):
    """A table in the place of a run's results is that of its losses."""
    measured = group_size.measured
    at = ["checkpoint", "group_size"]
    given = lambda found, *where: found.set_index(at) if isinstance(found, pd.DataFrame) else measured(found, *where)  # noqa: E731
    monkeypatch.setattr(group_size, "measured", given)


def judged_in(check, cases, found):
    """Return the verdicts of a check in some cases whose runs returned `found`."""
    stated = {one.id: one for one in check.statements}
    rows = [row for case in cases for row in check.rows(case, lambda variant: {"found": found})]
    return judge([claim_of(stated[row["statement"]], row) for row in rows]) if rows else pd.DataFrame({"id": []})


def judged(table):
    """Return the verdicts on the printed size, on noise and on the law."""
    sizes = [WHERE | {"group_size": size} for size in group_size.GROUP_SIZES]
    return pd.concat([judged_in(group_size.printed, [WHERE], table), judged_in(group_size.laws, sizes, table)])


def verdicts(table):
    """Return the verdicts by statement, those of several group sizes as one set."""
    found = judged(table)
    return {name: set(part["verdict"]) for name, part in found.groupby("id")}


def test_verdicts_on_the_printed_group_size_follow_the_evidence(far_table):
    found = verdicts(far_table)
    assert found.pop("U9/printed") == {"refuted"}
    assert found == {name: {"confirmed"} for name in ("U9/policy-law", "U9/second order", "U9/noise-costs")}
    rows = judged(far_table).set_index("id")
    assert rows["power"].all()
    assert "n = 32" in rows.loc["U9/printed", "facts"]
    assert len(rows.loc["U9/policy-law"]) == len(group_size.GROUP_SIZES)
    best_is_two = far_table["estimate"].where(far_table["group_size"] != 2, 0.5 * far_table["estimate"])
    assert verdicts(far_table.assign(estimate=best_is_two))["U9/printed"] == {"confirmed"}
    assert verdicts(far_table.assign(estimate=1.1 * far_table["estimate"]))["U9/policy-law"] == {"confirmed"}
    assert verdicts(far_table.assign(estimate=1.3 * far_table["estimate"]))["U9/policy-law"] == {"refuted"}
    assert verdicts(far_table.assign(estimate=-far_table["estimate"]))["U9/noise-costs"] == {"refuted"}


def test_the_second_order_says_where_the_first_applies(far_table):
    """Up to a tenth of it the first is trusted, up to two fifths the sum of both. Where it is not computed there is no row."""
    sizes = len(group_size.GROUP_SIZES)
    for share, counts in ((0.09, (sizes, 0, sizes)), (-0.3, (0, sizes, sizes)), (0.5, (0, sizes, 0)), (np.nan, (0, 0, 0))):
        table = far_table.assign(second_order=share * far_table["prediction"].abs())
        found = judged(table)
        assert tuple((found["id"] == law.id).sum() for law in group_size.LAWS) == counts, share
    both = table.assign(second_order=-0.3 * table["prediction"], estimate=0.7 * table["estimate"])
    found = verdicts(both)
    assert (found["U9/policy-law, beyond"], found["U9/second order"]) == ({"refuted"}, {"confirmed"})


def at_two_budgets(table, power=1.0, **changes):
    scale = 4.0**-power
    larger = table.assign(**{name: scale * table[name] for name in ("estimate", "standard_error", "prediction")})
    for size, factor in changes.items():
        at = larger["group_size"] == int(size[1:])
        larger.loc[at, "estimate"] *= factor
    pair = WHERE | {"other": "Constant(2)", "later": 4096}
    sizes = [pair | {"group_size": size} for size in group_size.GROUP_SIZES]
    found = {"before": table, "after": larger}
    both = [judged_in(group_size.carried, [pair], found), judged_in(group_size.one_curve, sizes, found)]
    return pd.concat(both).set_index(["id", "problem"])


def test_the_best_group_size_is_carried_to_another_budget(far_table):
    """What counts is what the chosen size loses there: its own factor changes that, and a better rival, but no common factor."""
    where = ("U9/budgets", "kl-linear, Constant(2), from N = 1024 to 4096")
    for changes, verdict in (
        ({}, "confirmed"),
        ({"power": 0.5}, "confirmed"),
        ({"G8": 1.6}, "refuted"),
        ({"G64": 0.3}, "refuted"),
    ):
        row = at_two_budgets(far_table, **changes).loc[where]
        assert (row["verdict"], row["control"]) == (verdict, "refuted"), changes
        assert "G chosen = 8" in row["facts"]
        assert "G of the control = 128" in row["facts"]


def test_times_are_interpolated_and_runs_that_fail_count_as_all_updates():
    objectives = [
        [0.2, 0.6, 0.1],
        [0.2, 0.2, 0.6],
        [0.2, 0.3, 0.4],
        [0.2, 0.5, np.nan],
        [0.2, np.nan, np.nan],
        [0.5, 0.1, 0.6],
        [0.2, 0.5, 0.7],
    ]
    found = updates_to_level(np.array(objectives), np.array([0, 4, 12]), 0.5)
    np.testing.assert_allclose(found, [3.0, 10.0, 12.0, 4.0, 12.0, 0.0, 4.0])


def test_an_arm_is_behind_by_its_time_less_the_allowed_one_of_the_rival_each_at_its_best_step():
    noise = np.random.default_rng(0).normal(size=(1, 64))
    arm, rival = (noise + np.reshape(means, (3, 1)) for means in ([70.0, 50.0, 80.0], [40.0, 60.0, 90.0]))
    found = behind(arm, rival, 1.05)
    assert found["estimate"] == pytest.approx(8.0 - 0.05 * noise.mean())
    assert found["standard_error"] == pytest.approx(0.05 * noise.std(ddof=1) / 8.0)
    assert found["at_end"], "the rival's best step is the first"


def test_the_best_step_is_the_vertex_of_a_parabola_in_the_log_of_the_step():
    steps = 2.0 ** np.arange(7)
    assert best_step(steps, 20.0 + np.log(steps / 5.0) ** 2) == pytest.approx(5.0)
    lucky = 20.0 + np.log(steps / 5.0) ** 2 - 7.0 * (steps == 64.0)
    assert lucky.argmin() == 6
    assert best_step(steps, lucky) == pytest.approx(5.0)
    assert best_step(steps, -steps) == pytest.approx(32.0)
    assert best_step(steps, steps) == pytest.approx(1.0)
    cliff = np.array([1.2, 0.9, 10.0, 1.2, 1.1, 1.3, 3.0])  # its least loss has a neighbour that is far too large
    assert 8.0 <= best_step(2.0 ** np.arange(7.0), cliff) <= 32.0


def test_the_broken_arm_has_a_mean_update_of_zero_and_the_right_one_has_not():
    """By all groups of four rewards that are right with probability 0.3: the mean of A (Z - 0.3)."""
    means = []
    for kernel in (ARMS["broken"].advantage.function, ARMS["TIC"].advantage.function):
        total = 0.0
        for group in product([0.0, 1.0], repeat=4):
            z, advantages = np.array([group]), np.empty((1, 4))
            kernel(Batch(z, z, z, z[:, 0], z[:, 0], z[:, 0], np.empty(0)), advantages)
            total += np.prod(np.where(z == 1.0, 0.3, 0.7)) * (advantages * (z - 0.3)).mean()
        means.append(total)
    assert means[0] == pytest.approx(0.0, abs=1e-15)
    assert means[1] == pytest.approx(0.75 * 0.3 * 0.7, rel=1e-12)


SMALL = dict(time_to_level.trained.cell(time_to_level.cases(True)[0]).settings)


def results(settings, *chunks):
    """Return what the run finds of some arms."""
    seed = cell_seed("time_to_level", Cell(settings), 0)
    return [time_to_level.trained(np.random.default_rng(seed), chunk, **settings)["arms"][0] for chunk in chunks]


def test_verdicts_follow_the_evidence_and_controls_without_a_fault_survive():
    """Dropping the ratio is sooner by far; an arm is no sooner than itself; a control that is the right arm is not refuted."""
    settings = SMALL | {"pilot_steps": [32.0, 64.0, 128.0, 256.0, 512.0]}
    arms = dict(zip(ARMS, results(settings, *range(len(ARMS))), strict=True))
    verdicts = judged_made_up([time_to_level.sooner], {"arms": list(arms.values())})
    assert set(verdicts.index) == set(study_of(time_to_level).decides)
    assert verdicts.loc["T8/training", ["verdict", "control"]].tolist() == ["reproduced here", "refuted"]
    assert verdicts.loc["T14/against no ratio", "verdict"] != "confirmed"
    instead = {"GRPO": arms["TIC"] | {"arm": "GRPO"}, "broken": arms["TIC"] | {"arm": "broken"}}
    same = judged_made_up([time_to_level.sooner], {"arms": list((arms | instead).values())})
    assert same.loc["T14/against GRPO", "verdict"] == "inconclusive"
    assert same.loc["T8/training", "control"] != "refuted"


def test_a_quarter_of_the_mean_update_is_left_of_the_broken_arm():
    """By all groups of eight rewards that are right with probability 0.3: the mean of A (Z - 0.3)."""
    means = []
    for arm in ("broken", "TIC"):
        kernel, total = LEARNED_ARMS[arm].advantage.function, 0.0
        for group in product([0.0, 1.0], repeat=8):
            z, advantages = np.array([group]), np.empty((1, 8))
            kernel(Batch(z, z, z, z[:, 0], z[:, 0], z[:, 0], np.empty(0)), advantages)
            total += np.prod(np.where(z == 1.0, 0.3, 0.7)) * (advantages * (z - 0.3)).mean()
        means.append(total)
    assert means[1] == pytest.approx(0.875 * 0.3 * 0.7, rel=1e-12)
    assert means[0] == pytest.approx(0.25 * means[1], rel=1e-12)


def made_up(times):
    """Return results of arms with these times at the middle step, one for each problem, and longer ones elsewhere."""
    return {"arms": [{"arm": arm, "steps": [1.0, 2.0, 4.0], "times": [own + 9.0, own, own + 9.0]} for arm, own in times.items()]}


RUNS = 1 << 14


@pytest.fixture(scope="module")
def problem():
    return random_problem(np.random.default_rng(2), 2, 2, None, n_prompts=3, dimension=4)


def test_a_rollouts_sums_have_their_expectations(problem):
    """By prompt and response ``E[sum] = B G f p z (1 - V)``, with -(1 - z) V for wrong ones, at |z| < 4.9; no sign is other."""
    reached = np.exp(problem.policy.paths.along(problem.at(problem.theta).token_log_probabilities))
    many = np.broadcast_to(reached, (1, RUNS, *reached.shape))
    right, wrong = passes.rollout_of(problem, many, 4, np.random.default_rng(0))
    success = problem.bandit.mean_reward
    value = (reached * success).sum(axis=1, keepdims=True)
    share = 4 * GROUP_SIZE * problem.bandit.prompt_weights[:, None] * reached
    for sums, mean in ((right, share * success * (1.0 - value)), (wrong, -share * (1.0 - success) * value)):
        errors = (sums - mean).reshape(RUNS, -1)
        assert np.abs(errors.mean(axis=0) / errors.std(axis=0) * np.sqrt(RUNS)).max() < 4.9
    assert (right >= 0.0).all()
    assert (wrong <= 0.0).all()
    np.testing.assert_allclose((right + wrong).sum(axis=(2, 3)), 0.0, atol=1e-10)


@pytest.mark.parametrize("estimator", [CLIP, NONE], ids=["clip", "none"])
def test_sampled_updates_have_the_exact_mean_as_theirs(problem, estimator):
    """The same sums, with what is expected of them in their place."""
    rng = np.random.default_rng(1)
    old = problem.theta + rng.normal(size=(3, 4))
    pairs = Pairs(problem, old + 0.4 * rng.normal(size=(3, 4)), old)
    success, weights = problem.bandit.mean_reward, problem.bandit.prompt_weights[:, None]
    value = (pairs.reached * success).sum(axis=-1, keepdims=True)
    sums = weights * pairs.reached * success * (1.0 - value), -weights * pairs.reached * (1.0 - success) * value
    np.testing.assert_allclose(pairs.updates(estimator, *sums), pairs.mean_updates(estimator), atol=1e-14)


@pytest.mark.parametrize("minibatches", [4, 16])
def test_one_pass_is_what_the_simulator_does(minibatches, monkeypatch):
    """The mean objective at the end, at |z| < 4.9; without ratio it is tens of standard errors away."""
    monkeypatch.setattr(passes, "ROLLOUTS", 6)
    problem = random_problem(np.random.default_rng(2), 2, 3, None, n_prompts=3, dimension=4)
    settings, step = {"passes": 1, "minibatches": minibatches}, 0.5
    mine = {
        name: success_of(settings, estimator, problem, np.array([step]), 2048, np.random.SeedSequence(3))[0]
        for name, estimator in (("clip", CLIP), ("none", NONE))
    }
    sizes = {"batch_size": 16, "group_size": GROUP_SIZE, "steps": 6 * minibatches, "inner_steps": minibatches}
    where = (problem, problem.theta, CLIP, gt.Constant(step))
    runs = gt.simulate_training(*where, **sizes, replications=8192, rng=4, optimiser=gt.Adam(), workers=1).objectives[:, -1]
    error = {name: np.hypot(sample.std() / np.sqrt(2048), runs.std() / np.sqrt(8192)) for name, sample in mine.items()}
    z = {name: (sample.mean() - runs.mean()) / error[name] for name, sample in mine.items()}
    assert abs(z["clip"]) < 4.9
    assert abs(z["none"]) > 10.0


def test_step_sizes_side_by_side_see_the_draws_that_each_sees_alone(problem):
    steps, arm = np.array([0.05, 0.4]), ({"passes": 2, "minibatches": 4}, CLIP, problem)
    both = success_of(*arm, steps, 8, np.random.SeedSequence(5))
    alone = [success_of(*arm, steps[[s]], 8, np.random.SeedSequence(5))[0] for s in range(2)]
    np.testing.assert_allclose(both, alone, rtol=1e-9)
    assert np.abs(both[1] - both[0]).max() > 1e-3


def test_at_the_clips_step_the_arm_without_ratio_takes_the_step_that_is_best_for_the_clip():
    """The clip is best at the second step. There the other arm has half of what it has at the third."""
    noise = 0.01 * np.random.default_rng(0).normal(size=(3, 16))
    clip = np.array([0.2, 0.8, 0.5])[:, None] + noise
    none = np.array([0.1, 0.4, 0.8])[:, None] + noise
    own, (at_clips, facts) = passes.ahead({"clip": clip, "none": none}, [1.0, 2.0, 4.0]).values()
    assert at_clips.estimate == pytest.approx(0.4, abs=1e-12)
    assert facts["step, clip's"] == 2.0
    assert own[0].estimate == pytest.approx(0.0, abs=0.01)
    assert own[1]["step, own"] == 4.0
