"""The group size of a whole run: readings of a log, worlds, runs, and the advice that is made of them."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from tables import answer, rows, write

import grpo_theory as gt
from grpo_theory.estimation import find
from grpo_theory.page.advice.whole_run import run_record, whole_run
from grpo_theory.page.command import main
from grpo_theory.plan import run_advice
from grpo_theory.plan.run_advice import RunAdvice, WorldRuns, advise_run
from grpo_theory.plan.run_agreement import agreement, alignment, log_alignment
from grpo_theory.plan.run_rates import DROP, LARGEST, RARER, readings
from grpo_theory.plan.run_simulation import JUDGED_RUNS, TUNING, Arm, train_sizes
from grpo_theory.plan.run_worlds import WORLDS
from grpo_theory.plan.success_rates import fit_success_rates
from grpo_theory.samples import RewardCounts
from simulations.plan import planned_run


def counts_of(successes, responses=8):
    """Reward counts of prompts with so many successes each."""
    successes = np.asarray(successes)
    rewards = (np.arange(responses) < successes[:, None]).astype(float)
    return RewardCounts.from_rewards(np.repeat(np.arange(len(successes)), responses), rewards.ravel())


# ---- readings of a log


def test_the_floor_is_where_the_likelihood_of_unsolved_prompts_falls_by_half_a_unit():
    """30 prompts of 8 failures, 30 of 8 successes: the law has atoms at 0 and 1, and the floor solves 240 log(1 - p) = -1/2."""
    counts = counts_of([0] * 30 + [8] * 30)
    near, far = readings(counts, fit_success_rates(counts), 10)
    exact = 1.0 - np.exp(-DROP / 240)
    assert near.floor == pytest.approx(exact, rel=1e-6)
    assert far.floor == pytest.approx(exact / RARER, rel=1e-6)
    assert near.agreement == pytest.approx(np.exp(-DROP), rel=1e-6)
    assert far.agreement == pytest.approx((1.0 - far.floor) ** 240, rel=1e-6)
    np.testing.assert_allclose(near.rates, [LARGEST] * 5 + [near.floor] * 5)


def test_a_log_without_unsolved_prompts_has_one_reading():
    counts = counts_of([4] * 40)
    (only,) = readings(counts, fit_success_rates(counts), 6)
    np.testing.assert_allclose(only.rates, 0.5, atol=0.02)


# ---- worlds


@pytest.mark.parametrize("world", WORLDS)
def test_worlds_start_at_the_rates_that_are_asked_for(world):
    rates = np.geomspace(0.9, 1e-4, 12)
    problem = world.problem(rates)
    reached = (problem.policy.probabilities(problem.theta) * problem.bandit.mean_reward).sum(axis=-1)
    np.testing.assert_allclose(reached, rates, rtol=1e-9)


def test_kinds_of_worlds_have_names_of_their_own_and_differ():
    assert len({world.title for world in WORLDS}) == len(WORLDS) == len({world[1:] for world in WORLDS})


def test_gradients_are_alike_where_prompts_teach_each_other_and_unlike_in_a_table():
    rates = np.full(16, 0.3)
    by_title = {world.title: alignment(world.problem(rates)) for world in WORLDS}
    assert by_title["prompts do not touch each other"] == pytest.approx(0.0, abs=1e-12)
    assert by_title["prompts teach each other"] > 0.05


def test_alignment_is_the_mean_product_of_two_prompts_gradients_over_their_mean_square():
    problem = WORLDS[3].problem(np.geomspace(0.5, 0.05, 5))
    gradients = gt.moments(problem, problem.theta).prompt_gradients
    products = [gradients[i] @ gradients[j] for i in range(5) for j in range(5) if i != j]
    assert alignment(problem) == pytest.approx(np.mean(products) / (gradients**2).sum(axis=1).mean(), rel=1e-12)


def test_the_alignment_of_a_log_is_that_of_its_problem():
    """A pilot draws prompts with replacement: a sixtieth of its pairs are of one prompt, whose gradients are alike."""
    problem = WORLDS[3].problem(np.full(60, 0.4))
    pilot = gt.Pilot(60, 8)
    drawn = [log_alignment(pilot.take(pilot.sample(problem, np.random.default_rng(seed), 1), 0))[0] for seed in range(40)]
    error = np.std(drawn, ddof=1) / np.sqrt(len(drawn))
    exact = alignment(problem) * 59 / 60 + 1 / 60
    assert abs(np.mean(drawn) - exact) < 4.5 * error
    assert abs(np.mean(drawn) - 2.0 * exact) > 4.5 * error


def test_agreement_falls_with_the_distance_and_counts_the_error():
    assert agreement((0.2, 0.0), 0.2) == 1.0
    assert agreement((0.2, 0.0), 0.3) == pytest.approx(np.exp(-0.5))
    assert agreement((0.2, np.inf), 0.9) == 1.0


# ---- runs


def test_a_world_trains_as_the_trainer_does():
    problem = WORLDS[1].problem(np.geomspace(0.5, 0.05, 8))
    own = Arm(problem, find("rloo"), 8).train(6.0, (3, 12), 16, np.random.SeedSequence(3), TUNING)
    runs = gt.simulate_training(
        problem, problem.theta, "rloo", gt.Constant(6.0), batch_size=8, group_size=8, steps=12, replications=16,
        checkpoints=[3, 12], rng=np.random.SeedSequence(3), workers=1,
    )  # fmt: skip
    np.testing.assert_array_equal(own, runs.objectives.T)


def test_runs_gain_and_their_errors_are_of_the_judged_runs():
    problem = WORLDS[3].problem(np.full(8, 0.3))
    course = train_sizes(problem, find("rloo"), (4, 64), (10,), np.random.SeedSequence(1))
    assert course.start == pytest.approx(0.3)
    assert (course.success > 0.4).all()
    assert (course.errors < 0.5 / np.sqrt(JUDGED_RUNS)).all()


# ---- the advice


def made(success, weights=(0.5, 0.25, 0.25), floors=(0.1, 0.1, 0.1), errors=0.0):
    """An advice of made up runs, success of shape (W, S)."""
    success = np.asarray(success, dtype=float)
    worlds = tuple(
        WorldRuns(f"w{i}", floor, weight, 0.1, own, np.full(own.size, errors))
        for i, (own, weight, floor) in enumerate(zip(success, weights, floors, strict=True))
    )
    return RunAdvice("rloo", 8000.0, 100, 80.0, np.array([2, 4, 8]), worlds, None)


def test_the_recommendation_loses_least_on_average():
    run = made([[0.9, 0.8, 0.5], [0.2, 0.5, 0.4], [0.2, 0.3, 0.4]])
    np.testing.assert_allclose(run.losses, [[0.0, 0.1, 0.4], [0.3, 0.0, 0.1], [0.2, 0.1, 0.0]])
    np.testing.assert_allclose(run.expected_losses, [0.125, 0.075, 0.225])
    assert run.group_size == 4
    assert run.quantiles(1) == pytest.approx((0.0, 0.1, 0.1))
    assert run.quantiles(0) == pytest.approx((0.0, 0.0, 0.3))
    assert run.candidates.tolist() == [False, True, False]


def test_errors_of_runs_make_sizes_hard_to_tell():
    run = made([[0.50, 0.51, 0.3]] * 3, errors=0.02)
    np.testing.assert_allclose(run.errors, 0.02 * np.sqrt(0.375))
    assert run.candidates.tolist() == [True, True, False]


def test_a_measurement_is_worth_the_loss_that_it_saves():
    """Known kinds of worlds lose nothing; floors tell the first world from the other two, whose best is 4 of a loss of 0.05."""
    run = made([[0.9, 0.8, 0.5], [0.2, 0.5, 0.4], [0.2, 0.3, 0.4]], floors=(0.1, 0.01, 0.01))
    assert run.worth == pytest.approx({"sharing": 0.075, "rare": 0.05})


@pytest.mark.parametrize(("asked", "notes"), [(2, "recommended, yours"), (8, "yours"), (3, None), (None, None)])
def test_the_size_in_use_is_marked_whether_it_is_recommended_or_not(asked, notes):
    rows = {row[0]: row[-1] for row in whole_run(made([[0.9, 0.8, 0.5]] * 3), asked).table}
    marked = {size: note for size, note in rows.items() if "yours" in note}
    assert marked == ({} if notes is None else {str(asked): notes})


@pytest.mark.parametrize(("total", "far"), [(8000.0, False), (800.0, True), (1e6, True)])
def test_another_number_of_responses_than_was_run_is_extrapolated(total, far):
    run = replace(made([[0.9, 0.8, 0.5]] * 3), total=total)
    assert run.extrapolated is far or bool(run.extrapolated) is far
    assert any("extrapolated" in text for text in whole_run(run).paragraphs) is far


@pytest.mark.parametrize(("total", "judged"), [(1200.0, True), (12_800.0, True), (12_900.0, False), (1e7, False)])
def test_it_says_where_no_runs_judged_such_advice(total, judged):
    run = replace(made([[0.9, 0.8, 0.5]] * 3), total=total)
    text = [each for each in whole_run(run).paragraphs if each.startswith("Not judged: ")]
    assert (len(text) == 0) is judged
    assert run_record(run)["judged"] is judged
    assert all(f"up to 128 responses per prompt, and yours has {run.each:,.0f}" in each for each in text)


@pytest.mark.parametrize("estimator", ["rloo", "dr_grpo", "grpo", "trl_grpo"])
@pytest.mark.parametrize(("total", "floors"), [(2e5, (0.1, 0.01, 0.01)), (2e5, (0.1, 0.1, 0.1)), (5e4, (0.1, 0.01, 0.01))])
def test_it_says_where_larger_groups_may_serve_a_long_run(estimator, total, floors):
    """Where the estimator divides, some prompts were never solved, and each prompt is asked a thousand times: all three."""
    run = replace(made([[0.9, 0.8, 0.5]] * 3, floors=floors), estimator=estimator, total=total)
    text = [each for each in whole_run(run).paragraphs if each.startswith("Larger groups may serve better")]
    assert (len(text) == 1) is (estimator.endswith("grpo") and estimator != "dr_grpo" and total > 1e5 and floors[0] != floors[1])


def test_judged_is_what_the_study_of_the_advice_judges():
    assert max(planned_run.EACH) == run_advice.JUDGED


def test_small_groups_are_advised_where_all_prompts_are_easy():
    calls = []
    run = advise_run(counts_of([3, 4, 5] * 20), 960, progress=lambda *seen: calls.append(seen))
    assert (run.estimator, run.training_prompts, run.simulated) == ("rloo", 60, 16.0)
    assert run.group_size <= 8 < 64
    assert not run.candidates[-1]
    assert run.weights.sum() == pytest.approx(1.0)
    assert calls == [(k, len(WORLDS)) for k in range(len(WORLDS) + 1)]
    again = advise_run(counts_of([3, 4, 5] * 20), 960)
    np.testing.assert_array_equal(again.losses, run.losses)


def test_what_is_run_is_within_reach():
    run = advise_run(counts_of([3, 4, 5] * 20), 60, largest=8)
    assert run.extrapolated
    assert run.simulated == run_advice.LEAST
    assert run.group_sizes.tolist() == [2, 4, 8]
    assert all(a < b for a, b in pairwise(most for most, _ in run_advice.PROMPTS))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"total": 1}, "total must be finite and at least one group"),
        ({"total": np.inf}, "total must be finite"),
        ({"total": np.nan}, "total must be finite"),
        ({"training_prompts": 0}, "training_prompts must be at least 1"),
        ({"largest": 1}, "largest must be at least 2"),
        ({"estimator": "nobody"}, "nobody"),
    ],
)
def test_bad_input_is_one_clear_message(change, message):
    with pytest.raises(ValueError, match=message):
        advise_run(**{"rollouts": counts_of([3, 4, 5] * 4), "total": 100} | change)


# ---- the command


def test_the_command_advises_on_a_run(tmp_path, capsys):
    kept = ("prompt_id", "completion", "reward")
    found = [{name: row[name] for name in kept} | {"reward": float(row["reward"] > 0)} for row in rows()]
    table = write(tmp_path / "bare.jsonl", found)
    asked = ["plan", str(table), "--total", "500", "--max-group-size", "8"]
    assert main(asked) == 0
    said = capsys.readouterr().out
    assert answer(said).startswith("GROUP SIZE FOR THE WHOLE RUN\n  Use groups of ")
    assert "recommended" in said
    assert "THE BEST GROUP SIZE FOR ONE STEP CANNOT BE TOLD FROM REWARDS ALONE" in said
    assert "--total" not in said, "what was given is not recommended"
    assert main([*asked, "--json", "-", "--html", str(tmp_path / "plan.html")]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["limits"]["budget"] == 500.0
    assert [row["group_size"] for row in record["run"]["group_sizes"]] == [2, 4, 8]
    assert record["run"]["group_size"] in (2, 4, 8)
    assert "Group size for the whole run" in (tmp_path / "plan.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--budget), or the responses of the whole run (--total)"),
        (("--total", "1"), "--total must be finite and at least one group, 2 responses, got 1"),
        (("--total", "inf"), "--total must be finite"),
        (("--total", "100", "--budget", "1000"), "--total 100 is less than one batch of --budget 1,000"),
        (("--budget", "64", "--training-prompts", "9"), "give its responses too (--total)"),
    ],
)
def test_contradictions_are_refused_before_the_table_is_read(options, message, capsys):
    assert main(["plan", "nowhere.jsonl", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


def test_the_record_of_a_run_is_complete():
    record = run_record(made([[0.9, 0.8, 0.5]] * 3))
    assert record["group_size"] == 2
    assert [row["loss"] for row in record["group_sizes"]] == pytest.approx([0.0, 0.1, 0.4])
    assert len(record["worlds"]) == 3
