"""The divergences of the study `kl_terms`, and the power of its checks."""

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.harness.sides import study_of
from grpo_theory.harness.study import cell_seed
from simulations.sequence import kl_terms
from simulations.sequence.divergences import at_held_prefixes, between, expected, gradient, token_logs


@pytest.fixture
def problem():
    """Sequences of one or two tokens, with a penalty."""
    return gt.gallery.problem("kl-sequence")


def by_sums(policy, reference, prompt_weights):
    """Return KL(policy || reference) from the probabilities of whole responses."""
    return prompt_weights @ (policy * np.log(policy / reference)).sum(axis=1)


def test_token_logs_are_those_of_the_policy(problem):
    """At real parameters the complex logs are the point's."""
    theta = np.array([0.4, -0.9])
    np.testing.assert_allclose(token_logs(problem, theta), problem.at(theta).token_log_probabilities, atol=1e-15)


def test_divergence_of_whole_responses(problem):
    """Summed along tokens it is that of the responses' probabilities, and its gradient that of a central difference."""
    theta, weights, reference = np.array([0.4, -0.9]), problem.bandit.prompt_weights, np.asarray(problem.kl.reference)

    def value(at):
        return by_sums(problem.at(at).probabilities, reference, weights)

    divergence = between(problem, problem.log_reference)
    assert divergence(token_logs(problem, theta)) == pytest.approx(value(theta), rel=1e-13)
    steps = 1e-5 * np.eye(2)
    differences = [(value(theta + step) - value(theta - step)) / 2e-5 for step in steps]
    np.testing.assert_allclose(gradient(problem, divergence, theta), differences, rtol=1e-8)


def test_held_prefixes_and_held_responses_agree(problem):
    """The mean over responses of sum_t term is the mean over prefixes of the tokens' mean term, of one policy."""
    here = problem.at([0.4, -0.9])
    own = here.token_log_probabilities
    over_responses = expected(problem, here, lambda logs: logs**2)(own)
    over_prefixes = at_held_prefixes(problem, here, lambda logs: np.exp(own) * logs**2)(own)
    assert over_responses == pytest.approx(over_prefixes, rel=1e-13)


@pytest.mark.parametrize("name", kl_terms.PROBLEMS)
def test_each_identity_holds_and_its_control_does_not(name):
    """All but the printed ones hold to 1e-12, and draws from a policy 1% of a step away break each of them."""
    (cell,) = (cell for cell in study_of(kl_terms).cells(True) if cell.settings["problem"] == name)
    compared = study_of(kl_terms).compute(cell.settings, np.random.default_rng(cell_seed("kl_terms", cell, 0)), 0)
    assert len(compared) == len(kl_terms.terms.statements)
    for one in compared:
        is_printed = one["statement"] in ("U17/printed", "U17/printed mean")
        assert (one["estimate"] > 0.1) if is_printed else (one["estimate"] < 1e-12), one
        assert one["broken"] > 1e-8, one


def test_the_printed_slope_points_away(problem):
    """Near the reference the printed gradient is minus the one that is wanted."""
    alone = kl_terms.penalty_alone(problem)
    theta = np.array([1e-4, 2e-4])
    wanted = gradient(alone, between(alone, alone.log_reference), theta)
    printed = kl_terms.estimated(alone, kl_terms.PRINTED, theta, None)
    assert printed @ wanted < -0.9 * np.linalg.norm(printed) * np.linalg.norm(wanted)
