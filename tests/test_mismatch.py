"""Two importance ratios at once: staleness within a clip, mismatch within a bound, against enumeration with three policies."""

import pickle

import enumeration
import numpy as np
import pytest
from enumeration import assert_law

import grpo_theory as gt
from grpo_theory.estimation import CLIPS, MISMATCHES, RATIOS, Estimator
from simulations.gradient.cells import estimator_fingerprint

SIZES = {"batch_size": 2, "group_size": 3}
BOUNDED = {
    "token": lambda r: r,
    "token truncated": lambda r: np.minimum(r, 1.5),
    "token masked": lambda r: np.where(r > 1.5, 0.0, r),
    "response truncated": lambda r: np.full_like(r, min(np.prod(r), 1.5)),
    "response masked": lambda r: np.full_like(r, 0.0 if np.prod(r) > 1.5 else np.prod(r)),
}
"""What the second ratio of a response's tokens weighs, given pi_old/mu of each, with a bound of 1.5 in place of the defaults."""


def estimator(mismatch, clip="by sign", advantage="rloo", ratio="token"):
    """Return an estimator with two ratios that is not registered."""
    second = MISMATCHES[mismatch]
    second = second if mismatch in ("none", "token") else second.with_bound(1.5)
    kernel = gt.estimators()[advantage].advantage
    return Estimator("two ratios", kernel, RATIOS[ratio], CLIPS[clip], mismatch=second)


def policies(c):
    """Return three different policies: theta, the start of the update, the sampler."""
    return c.theta, c.theta + 0.3 * (c.behaviour - c.theta), c.behaviour


def enumerated(c, one, bound, monkeypatch):
    """Return the law by brute force: the sampler draws, tokens weigh clip(pi/pi_old) times what is made of pi_old/mu."""
    theta, old, sampler = policies(c)
    plain = enumeration.response_terms

    def terms(c, m, estimator, theta, behaviour):
        total = np.zeros((3, len(enumeration.responses(c)), len(theta)))
        for k, response in enumerate(enumeration.responses(c)):
            now, then, drawn = (enumeration.token_logs(c, at, m, response) for at in (theta, old, behaviour))
            w, weights = enumeration.token_scores(c, theta, m, response), bound(np.exp(then - drawn))
            for t, r in enumerate(enumeration.RATIOS[one.ratio.name](np.exp(now - then))):
                for place, positive in enumerate((True, False)):
                    kept = enumeration.clipped(one.clip.name, r, positive, one.clip.low, one.clip.high)
                    total[place, k] += kept * weights[t] * w[t]
        return total

    monkeypatch.setattr(enumeration, "response_terms", terms)
    law = enumeration.batch_law(c, one, 2, 3, theta=theta, behaviour=sampler)
    monkeypatch.setattr(enumeration, "response_terms", plain)
    return law


@pytest.mark.parametrize("clip", ["none", "by sign"])
@pytest.mark.parametrize("name", BOUNDED)
def test_laws_of_three_policies_are_those_of_the_enumeration(name, clip, monkeypatch):
    c, one = enumeration.tree_case(), estimator(name, clip)
    theta, old, sampler = policies(c)
    expected = enumerated(c, one, BOUNDED[name], monkeypatch)
    law = gt.gradient_law(c.problem, theta, one, **SIZES, behaviour=sampler, old=old)
    assert_law(law, expected)
    uncorrected = gt.gradient_law(c.problem, theta, estimator("none", clip), **SIZES, behaviour=sampler, old=old)
    assert np.abs(uncorrected.mean - expected.mean).max() > 1e-4, "the control: the second ratio matters here"


def test_parts_are_named_checked_and_sent(registry):
    composed = gt.compose("tis", advantage="grpo", ratio="token", clip="by sign", mismatch="token truncated")
    assert composed.mismatch is MISMATCHES["token truncated"]
    again = pickle.loads(pickle.dumps(composed))
    assert again.mismatch.is_same(composed.mismatch)
    prints = {
        estimator_fingerprint(Estimator("x", composed.advantage, mismatch=one))
        for one in (*MISMATCHES.values(), MISMATCHES["token truncated"].with_bound(3.0))
    }
    assert len(prints) == len(MISMATCHES) + 1


@pytest.mark.parametrize("clip", [CLIPS["by sign"], CLIPS["dual"], CLIPS["cap at high"]])
def test_a_bound_that_knows_signs_or_changes_1_is_refused(clip):
    with pytest.raises(ValueError, match="bound must leave a ratio of 1 as it is"):
        gt.Mismatch("mine", RATIOS["token"], clip)
