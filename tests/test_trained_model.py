"""The records of the trained language model: what ships, that it fits together, and what the studies read off it."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import grpo_theory as gt
from grpo_theory.data.trained import check_version
from grpo_theory.evidence.verdicts import judge
from grpo_theory.harness.study import table_of
from simulations.normalisation import trained_features
from simulations.runs import trained_sizes
from simulations.runs.recorded_scores import Scores, advantages_by_count, efficiency

DATA = gt.data.trained_model()
QUESTIONS = gt.data.arithmetic()
TRAINED = DATA.questions[: DATA.n_trained]
FEW_SHOT = 1
START = DATA.courses["plain"]


def head_probabilities(rows):
    """Return the digits' probabilities (Q, 10) by the shipped last states and head."""
    logits = QUESTIONS.hidden[FEW_SHOT, rows].astype(np.float64) @ QUESTIONS.head.T.astype(np.float64)
    return np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))


def test_shapes_and_ranges():
    count, looks = DATA.n_trained, len(DATA.updates)
    assert len(set(DATA.questions.tolist())) == len(DATA.questions) > count
    assert DATA.updates[0] == 0
    assert len({(run.arm, run.seed) for run in DATA.runs}) == len(DATA.runs) == DATA.provenance["runs"]
    for run in DATA.runs:
        assert run.success.shape == run.held_out.shape == run.no_signal.shape == run.dropped.shape == (looks,)
        assert all(
            ((values >= 0.0) & (values <= 1.0)).all() for values in (run.success, run.held_out, run.no_signal, run.dropped)
        )
        assert run.by_question.shape == DATA.questions.shape
    for course in DATA.courses.values():
        places = len(course.updates)
        assert course.gram.shape == course.own_gram.shape == course.states.shape == (places, count, count)
        assert course.powers.shape == course.own_powers.shape == (places, count, 2)
    assert DATA.kernel.shape == (count, 10, count, 10)


def test_some_runs_learn_and_rewards_are_of_the_questions():
    assert max(run.success[-1] for run in DATA.runs) > 0.6
    assert 0.1 < START.success[0].mean() < 0.2


def test_the_start_is_the_shipped_head():
    """Training starts where the head of the arithmetic set stands; another question's success does not fit."""
    probabilities = head_probabilities(DATA.questions)
    success = probabilities[np.arange(len(DATA.questions)), QUESTIONS.answers[DATA.questions]]
    expected = success[: DATA.n_trained].mean(), success[DATA.n_trained :].mean()
    for run in DATA.runs:
        assert (run.success[0], run.held_out[0]) == pytest.approx(expected, abs=1e-5)
    np.testing.assert_allclose(DATA.probabilities, probabilities[: DATA.n_trained], atol=2e-5)
    assert np.abs(START.success[0] - success[: DATA.n_trained]).max() < 2e-5
    assert np.abs(np.roll(START.success[0], 1) - success[: DATA.n_trained]).max() > 0.1
    hidden = QUESTIONS.hidden[FEW_SHOT, TRAINED].astype(np.float64)
    unit = hidden / np.linalg.norm(hidden, axis=1, keepdims=True)
    np.testing.assert_allclose(START.states[0], unit @ unit.T, atol=1e-3)


def test_each_question_ends_where_the_mean_does():
    for run in DATA.runs:
        parts = run.by_question[: DATA.n_trained], run.by_question[DATA.n_trained :]
        assert [part.mean() for part in parts] == pytest.approx([run.success[-1], run.held_out[-1]], abs=1e-3)


def problem_of_the_start():
    """Return the linear policy with the features of the start, a problem of the package."""
    size = DATA.kernel.shape[0] * DATA.kernel.shape[1]
    powers, directions = np.linalg.eigh(DATA.kernel.reshape(size, size))
    features = (directions * np.sqrt(np.maximum(powers, 0.0))).reshape(*DATA.kernel.shape[:2], size)
    theta = np.linalg.lstsq(features.reshape(size, size), np.log(DATA.probabilities).ravel(), rcond=None)[0]
    bandit = gt.Bandit(np.eye(10)[QUESTIONS.answers[TRAINED]])
    return gt.Problem(bandit, gt.LinearSoftmax(features), theta=theta)


def test_moments_of_scores_are_those_of_the_kernel_at_the_start():
    """The package's exact moments of the linear policy, against the recorded ones; balanced arrays have mean length 1."""
    problem = problem_of_the_start()
    gradients = gt.moments(problem, problem.theta).prompt_gradients
    scale = np.abs(START.gram[0]).max()
    np.testing.assert_allclose(gradients @ gradients.T, START.gram[0], atol=1e-4 * scale)
    assert np.trace(START.gram[0]) / DATA.n_trained == pytest.approx(len(DATA.provenance["scales"]), rel=1e-5)
    assert np.abs(np.roll(gradients, 1, axis=0) @ gradients.T - START.gram[0]).max() > 0.1 * scale


@pytest.mark.parametrize("name", ["rloo", "dr_grpo", "grpo"])
@pytest.mark.parametrize("size", [2, 8, 64])
def test_efficiencies_of_records_are_the_packages(name, size):
    """By moments of scores alone, against the law of the package by enumeration."""
    problem = problem_of_the_start()
    scores = Scores(START.success[0], START.gram[0], START.powers[0])
    expected = gt.efficiency(problem, problem.theta, name, batch_size=128 // size, group_size=size)
    assert efficiency(scores, name, 128 // size, size) == pytest.approx(expected, rel=1e-3)
    longer = scores._replace(powers=1.05 * scores.powers)
    assert efficiency(longer, name, 128 // size, size) != pytest.approx(expected, rel=1e-3)


def test_advantages_by_count_need_an_estimator_that_reads_rewards():
    with pytest.raises(ValueError, match="rewards alone"):
        advantages_by_count("optimal_loo", 4)


def test_records_of_another_version_are_refused():
    check_version(DATA.provenance)
    with pytest.raises(ValueError, match="version 2, and this package reads version 1: reinstall"):
        check_version(dict(DATA.provenance) | {"version": 2})
    with pytest.raises(ValueError, match="version None"):
        check_version({})


def test_the_linear_policy_starts_as_the_records_do():
    success, between = next(trained_features.linear_course([0, 10], divided=False, stride=0.1))
    assert success == pytest.approx(START.success[0].mean(), abs=1e-6)
    np.testing.assert_allclose(between, trained_features.cosines_of(START.gram[0]), atol=1e-4)


def test_the_linear_policy_climbs_as_the_packages_twin_does():
    """In kernel space, against the gradient of the package's problem of the same features: one first step, and a shorter one."""
    problem = problem_of_the_start()
    gradient = gt.moments(problem, problem.theta).gradient
    moved = problem.policy.log_probabilities(problem.theta + 1e-3 * gradient) - problem.policy.log_probabilities(problem.theta)
    length = np.sqrt((problem.policy.logit_map.logits(gradient) ** 2).sum(axis=1).mean())
    (_, (success, _)) = trained_features.linear_course([0, 1], divided=False, stride=1e-3 * length)
    right = np.eye(10)[QUESTIONS.answers[TRAINED]]
    expected = (np.exp(np.log(DATA.probabilities) + moved) * right).sum(axis=1).mean()
    assert success == pytest.approx(expected, abs=1e-6)
    assert success > START.success[0].mean() + 1e-5


@pytest.fixture(scope="module")
def sizes():
    """The table of the study of group sizes."""
    (cell,) = trained_sizes.cells(quick=False)
    results = [trained_sizes.simulate(cell.settings, np.random.SeedSequence(0), 0)]
    return table_of(list(trained_sizes.rows(cell.settings, results)))


def test_no_seed_judges_itself():
    """What a seed reaches does not change the rates and the group sizes that are chosen for it."""
    arms = trained_sizes.Arms.of(DATA, "grpo")
    raised = arms.success.copy()
    raised[0, 0, 0] += 0.5
    other = trained_sizes.Arms(arms.sizes, arms.rates, raised, arms.held_out)
    assert (other.choices()[:, 0] == arms.choices()[:, 0]).all()
    assert (other.best(-1)[0], (other.choices()[0, 1:] == 0).all()) == (arms.best(-1)[0], True)


def test_what_is_judged_of_group_sizes_has_controls(sizes):
    claims = list(trained_sizes.claims(sizes))
    found = {claim.statement.id for claim in claims}
    assert found == {"U9/trained model", "U9/whole runs", "P1/grows", "N12/trained model, gain"}
    judged = judge(claims)
    named = set(trained_sizes.POWERLESS)
    assert {(row.id, row.problem) for row in judged.itertuples() if row.control != "refuted"} <= named
    for claim in claims:
        control = claim.control
        assert control.estimate > 8.0 * control.standard_error, "it is far from what is claimed, though ten runs decide nothing"


def intervals():
    """Return paired differences of success after 96 updates over five seeds, as printed."""
    arms = {name: trained_sizes.Arms.of(DATA, name) for name in trained_sizes.ESTIMATORS}
    ends = {name: one.tuned()[..., -1] for name, one in arms.items()}
    assert [one.sizes.tolist() for one in arms.values()] == [[4, 16, 64]] * 2
    for name, end in ends.items():
        yield f"{name}, 4 less 16", end[0] - end[1]
        yield f"{name}, 4 less 64", end[0] - end[2]
    for place, size in enumerate((4, 16, 64)):
        yield f"grpo less dr_grpo, {size}", ends["grpo"][place] - ends["dr_grpo"][place]
    reused = {ratio: {} for ratio in ("none", "unclipped", "by sign", "upper only")}
    for run in DATA.runs:
        if run.arm.reuse > 1:
            reused[run.arm.ratio][run.seed] = run.success[-1]
    for ratio in ("upper only", "unclipped", "none"):
        yield f"by sign less {ratio}", np.array([reused["by sign"][seed] - reused[ratio][seed] for seed in sorted(reused[ratio])])


def test_the_page_has_the_differences_of_the_records():
    page = (Path(__file__).resolve().parents[1] / "docs" / "trained_model.md").read_text()
    for name, sample in intervals():
        low, high = stats.t.interval(0.95, sample.size - 1, sample.mean(), stats.sem(sample))
        assert f"| {name} | {100 * sample.mean():.1f} | {100 * low:.1f} to {100 * high:.1f} |" in page, name
