"""The studies of SmolLM2 off policy: what they measure, against plain sums, and that broken things are found."""

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.evidence import judge
from grpo_theory.harness.sides import joined, study_of
from grpo_theory.harness.study import table_of
from simulations.sequence import language_model, language_model_lengths
from simulations.sequence.language_model import FIRST, UPDATE, checkpoints, divergence, leave_one_out, policies
from simulations.sequence.language_model_lengths import update_by
from simulations.sequence.parts import turned


def small():
    """Return a tree with hidden states of its prefixes, a penalty, and rewards of one response in seven."""
    rng = np.random.default_rng(0)
    tree = gt.TokenTree(3, 3, 2, 2, hidden=rng.normal(size=(3, 3, 4)))
    theta = rng.normal(size=tree.dimension)
    success = np.eye(tree.n_responses)[rng.integers(0, tree.n_responses, 3)]
    return gt.Problem(gt.Bandit(success), tree, gt.KL(0.2, tree.probabilities(rng.normal(size=tree.dimension))), theta)


def test_checkpoints_are_updates_by_a_constant_step_the_first_of_the_stated_length():
    problem = small()
    found = checkpoints(problem, UPDATE, (1, 2, 3), 4)
    assert divergence(problem, problem.theta, found[1]) == pytest.approx(FIRST, rel=0.01)
    steps = [found[1] - problem.theta, found[2] - found[1], found[3] - found[2]]
    sizes = {"batch_size": 1, "group_size": 4, "behaviour": problem.theta}
    means = [gt.gradient_mean(problem, theta, UPDATE, **sizes) for theta in (problem.theta, found[1], found[2])]
    ratio = np.linalg.norm(steps[0]) / np.linalg.norm(means[0])
    for step, mean in zip(steps, means, strict=True):
        np.testing.assert_allclose(step, ratio * mean, rtol=1e-9, atol=1e-12)


def test_what_is_measured_of_two_policies_is_a_plain_sum():
    whole = small()
    problem = gt.Problem(whole.bandit, whole.policy, None, whole.theta)
    old, now = problem.at(problem.theta), problem.at(1.3 * problem.theta)
    found = policies(problem, old, now)
    nats = second = tokens = clipped = 0.0
    for m in range(3):
        for k, response in enumerate(problem.policy.responses):
            p, q = old.probabilities[m, k] / 3.0, now.probabilities[m, k] / 3.0
            nats += p * np.log(p / q)
            second += p * (q / p) ** 2
            for edge in problem.policy.paths.edges[k, : len(response)]:
                ratio = now.token_probabilities[m, edge] / old.token_probabilities[m, edge]
                tokens += p
                clipped += p * (ratio > 1.2 if problem.bandit.mean_reward[m, k] else ratio < 0.8)
    assert found["nats"] == pytest.approx(nats, rel=1e-10)
    assert found["effective sample share"] == pytest.approx(1.0 / second, rel=1e-10)
    assert found["tokens clipped"] == pytest.approx(clipped / tokens, rel=1e-10)
    assert abs(found["cross terms"]) < 1e-12 < 1e-4 < abs(found["cross terms, old responses"])


def test_a_turned_vector_has_the_angle():
    one, other = np.random.default_rng(1).normal(size=(2, 9))
    found = turned(one, other)
    assert np.linalg.norm(found) == pytest.approx(np.linalg.norm(one))
    assert found @ one / (one @ one) == pytest.approx(np.sqrt(0.5))


@pytest.mark.parametrize(("aggregation", "share"), [("own length", 1.0), ("own length", 0.9), ("sum", 1.0)])
def test_mean_updates_are_those_of_the_exact_law(aggregation, share):
    """By enumeration of the groups; with a share of the penalty's strength."""
    problem = small()
    other = gt.Problem(problem.bandit, problem.policy, gt.KL(share * 0.2, problem.kl.reference), problem.theta)
    estimator = gt.compose(f"leave-one-out, {aggregation}", advantage="rloo", aggregation=aggregation)
    found = gt.gradient_mean(other, problem.theta, estimator, batch_size=1, group_size=2)
    np.testing.assert_allclose(update_by(problem, problem.theta, aggregation, share), found, atol=1e-13)


def test_the_study_of_ratios_finds_what_is_broken(monkeypatch):
    def gaps():
        found = joined([language_model.updated("lm-few-shot", [4])])
        return [language_model.compared(found, "lm-few-shot", 4, wrong) for wrong in (False, True)]

    right, wrong = gaps()
    assert right["T7/language model"][0] < 1e-12 < 1e-3 < wrong["T7/language model"][0]
    assert right["T7/language model, TIC"][0] > 0.1
    assert right["T8/language model"][0] < right["T8/language model"][1] < wrong["T8/language model"][0]
    sound = language_model.estimators(1)
    monkeypatch.setattr(language_model, "estimators", lambda horizon: sound | {"trajectory": leave_one_out("none")})
    assert gaps()[0]["T7/language model"][0] > 1e-3


def test_the_study_of_lengths_needs_the_penalty():
    study = study_of(language_model_lengths)
    (cell,) = study.cells(True)
    rows = study.table([(cell.settings, [study.compute(cell.settings, np.random.default_rng(0), 0)])], True)
    judged = judge(study.claims(table_of(rows)))
    assert judged["id"].tolist() == ["T15/language model", "T15/language model, direction"]
    assert set(judged["verdict"]) == {"confirmed"}
    assert set(judged["control"]) == {"refuted"}
