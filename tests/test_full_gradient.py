"""The study of SmolLM2's full gradient: its terms by enumeration, its correlations on data with known ones, its errors."""

from itertools import product

import numpy as np
import pytest

import grpo_theory as gt
from simulations.gradient.sampled_statistics import HEAD, of_responses, scores_of
from simulations.gradient.sampled_terms import ANOTHERS, OTHERS, Sample, Scores, components, mean_of_pairs, noise, prompt_terms
from simulations.jackknife import jackknife_error, weighted_error

LIMIT = 4.9
GROUP = 6
CHANCES = np.array([0.5, 0.3, 0.2])
REWARDS = np.array([0.0, 1.0, 0.5])
SCORES = (np.eye(3) - CHANCES) @ np.array([[1.0, 0.2, 0.0], [-0.4, 2.0, 0.3], [0.0, 0.5, 1.5]])
"""Three outcomes of a prompt; the scores have mean 0, as scores do."""
POWER = (SCORES**2).sum(axis=1)


def exact(p=CHANCES, z=REWARDS, scores=SCORES):
    """Return what the terms of a prompt are the means of."""
    power = (scores**2).sum(axis=1)
    value, gradient, mean = p @ z, (p * z) @ scores, p @ power
    variance, norm = p @ (z - value) ** 2, gradient @ gradient
    covariance = p @ (power * (z - value))
    return {
        "power": norm,
        "c2": p @ (power * (z - value) ** 2) - norm,
        "c3": variance * mean + norm,
        "P": mean,
        "PZZ": p @ (power * z**2),
        "V PZ": value * (p @ (power * z)),
        "V V P": value**2 * mean,
        "squared covariance": covariance**2,
        "gain": covariance**2 / mean,
        "covariance": covariance,
        "variance of P": p @ (power - mean) ** 2,
        "variance": variance,
        "variance variance": variance**2,
        "variance P": variance * mean,
        "P P": mean**2,
    }


def groups_of(size):
    """Return all groups of outcomes, and their probabilities."""
    groups = np.array(list(product(range(3), repeat=size)))
    return groups, CHANCES[groups].prod(axis=1)


def test_terms_are_unbiased_over_all_groups():
    """All 3^6 groups of responses, with their probabilities."""
    groups, weights = groups_of(GROUP)
    found = prompt_terms(REWARDS[groups], SCORES[groups], exact=True)
    for name, value in exact().items():
        if name != "gain":
            assert weights @ found[name] == pytest.approx(value, abs=1e-12), name
    naive = weights @ found["covariance"] ** 2
    assert naive > exact()["squared covariance"] + 1e-3, (
        "the check could not tell the square of an estimate from an estimate of it"
    )


def test_noise_is_that_of_the_baselines():
    """Against trace Cov(W (Z - C)) over the outcomes, with each baseline written out, and over all groups."""
    p, value, best = CHANCES, CHANCES @ REWARDS, CHANCES @ (POWER * REWARDS) / (CHANCES @ POWER)
    found = noise(exact(), 5)
    for name, baseline in (("none", 0.0), ("value", value), ("optimal", best), ("value, wrong sign", -value)):
        estimates = SCORES * (REWARDS - baseline)[:, None]
        assert found[name] == pytest.approx(p @ (estimates**2).sum(axis=1) - ((p @ estimates) ** 2).sum(), abs=1e-12), name
    for name, size in (("leave-one-out", 5), ("means of pairs", 2)):
        groups, weights = groups_of(size)
        z = REWARDS[groups]
        advantages = z - (z.sum(axis=1, keepdims=True) - z) / (size - 1.0)
        estimates = (advantages[..., None] * SCORES[groups]).mean(axis=1)
        trace = weights @ (estimates**2).sum(axis=1) - ((weights @ estimates) ** 2).sum()
        assert found[name] == pytest.approx(size * trace, abs=1e-12), name


def test_products_of_two_halves_of_a_sketch_are_unbiased():
    """Over 4,096 random maps of the same scores; with both factors from the whole sketch the check refuses."""
    rng = np.random.default_rng(5)
    rewards, scores = rng.integers(0, 2, (1, GROUP)).astype(float), 1.0 + rng.standard_normal((1, GROUP, 12))
    truth = prompt_terms(rewards, scores, exact=True)
    sketches = (scores[0] @ (rng.standard_normal((4096, 12, 4)) / 2.0)).reshape(4096, GROUP, 4)

    def distance(name, found):
        return (found[name].mean() - truth[name][0]) / (found[name].std(ddof=1) / 64.0)

    halves, whole = (prompt_terms(np.repeat(rewards, 4096, axis=0), sketches, exact=one) for one in (False, True))
    quadratic = ("squared covariance", "variance of P", "P P")
    for name in (*quadratic, "power", "c2", "c3", "P", "covariance", "variance P", "V PZ", "V V P", "PZZ"):
        assert abs(distance(name, halves)) < LIMIT, name
    assert all(abs(distance(name, whole)) > LIMIT for name in quadratic)


def test_means_without_a_prompt_or_a_response_are_those_of_the_rest():
    """Of random scores of seven prompts' answers, of which some come more than once."""
    rng = np.random.default_rng(8)
    index = np.concatenate([rng.integers(4 * b, 4 * b + 4, (1, 5)) for b in range(7)])
    scores = Scores(rng.integers(0, 2, 28).astype(float), rng.standard_normal((28, 6)), index, True)
    sample = Sample.of(scores)
    by_prompt, by_response = sample.without_prompt(), sample.without_response(scores)
    for b in range(7):
        rest = Sample.of(scores._replace(answers=np.delete(scores.answers, b, axis=0))).means()
        for name, mean in rest.items():
            if name == ANOTHERS:  # the rest are paired in another way
                continue
            assert by_prompt[name][b] == pytest.approx(mean, abs=1e-12), name
    whole, gradients = sample.means(), [gradient_of(scores, answers) for answers in scores.answers]
    for b, j in product(range(7), range(5)):
        less = np.delete(scores.answers[b], j)
        own = prompt_terms(*scores.of(less[None]), True)
        for name, term in own.items():
            assert by_response[name][b, j] == pytest.approx(whole[name] + (term[0] - sample.terms[name][b]) / 7, abs=1e-12), name
        changed = np.array([gradient_of(scores, less) if other == b else gradients[other] for other in range(7)])
        assert by_response[OTHERS][b, j] == pytest.approx(mean_of_pairs(changed @ changed.T), abs=1e-12)


def gradient_of(scores, answers):
    """Return the leave-one-out estimate of a prompt's gradient, as a sample covariance."""
    z, w = scores.rewards[answers], scores.scores[answers]
    return (z - z.mean()) @ w / (len(answers) - 1.0)


def test_jackknives_are_the_textbooks_on_means():
    rng = np.random.default_rng(9)
    by_prompt = rng.standard_normal(12)
    without = (by_prompt.sum() - by_prompt) / 11.0
    assert jackknife_error(without) == pytest.approx(by_prompt.std(ddof=1) / np.sqrt(12.0))
    assert weighted_error(lambda weights: weights @ by_prompt, 12) == pytest.approx(by_prompt.std(ddof=1) / np.sqrt(12.0))
    responses = rng.standard_normal((4, 8)) * np.array([[1.0], [1.0], [1.0], [0.0]])
    less = (
        responses.mean()
        + ((responses.sum(axis=1, keepdims=True) - responses) / 7.0 - responses.mean(axis=1, keepdims=True)) / 4.0
    )
    found = of_responses(less)
    variances = responses.var(axis=1, ddof=1) / 8.0
    assert found["response_error"] == pytest.approx(np.sqrt(variances.sum()) / 4.0)
    assert found["freedom"] == pytest.approx(7.0 * variances.sum() ** 2 / (variances**2).sum())
    assert found["freedom"] < 21.0 + 1e-9, "one prompt of four does not vary"


def test_components_are_those_of_the_package():
    scores = scores_of(HEAD)
    law = gt.intervals.estimate_group_size_law(gt.Rollouts(*scores.of(scores.answers)))
    np.testing.assert_allclose(components(Sample.of(scores).means()), (law.c1, law.c2, law.c3), rtol=1e-10)
