"""Importance ratios, clips, aggregation and KL terms, by themselves and mixed, against all groups written out."""

from itertools import product

import numpy as np
import pytest
from enumeration import (
    RATIOS,
    SHARES,
    assert_close,
    assert_law,
    batch_law,
    prompts,
    response_terms,
    responses,
    token_logs,
    tree_case,
)

import grpo_theory as gt
from grpo_theory.estimation import AGGREGATIONS, CLIPS, KL_TERMS, make_estimator
from grpo_theory.estimation import RATIOS as NAMED_RATIOS

PLACES = ("plain", "k1 in reward", "k2 in reward", "k3 in reward", "k1 in loss", "k2 in loss", "k3 in loss")
POOLS = ("sum", "own length", "constant", "group tokens")


def asymmetric(batch, advantages):
    """What is better than the group counts twice, what is worse a half; and length has its price."""
    for b in range(batch.rewards.shape[0]):
        mean = batch.rewards[b].mean()
        for g in range(batch.rewards.shape[1]):
            better = batch.rewards[b, g] - mean
            advantages[b, g] = (2.0 if better > 0.0 else 0.5) * better + 0.1 - 0.05 * batch.lengths[b, g]


def all_fields(batch, advantages):
    """Read everything that there is to read."""
    for b in range(batch.rewards.shape[0]):
        total = batch.rewards[b].sum() + 0.3 * batch.squared_score_norms[b].sum() / batch.lengths[b].sum()
        for g in range(batch.rewards.shape[1]):
            own = (batch.rewards[b, g] - batch.values[b]) * batch.squared_score_norms[b, g] / batch.standard_deviations[b]
            rare = 0.1 * batch.log_probabilities[b, g]
            advantages[b, g] = own - batch.optimal_baselines[b] / batch.lengths[b, g] + 0.2 * total - rare


OWN = {"asymmetric": make_estimator("asymmetric", asymmetric), "all fields": make_estimator("all fields", all_fields)}


def estimator_of(advantage, ratio="none", clip="none", aggregation="sum", kl="k1 in reward"):
    """Compose an estimator without registering it; clips have widths that tell the two sides apart."""
    base = OWN.get(advantage) or gt.estimators()[advantage]
    parts = [
        part if not isinstance(part, str) else named[part]
        for part, named in ((ratio, NAMED_RATIOS), (clip, CLIPS), (aggregation, AGGREGATIONS), (kl, KL_TERMS))
    ]
    if isinstance(clip, str):
        parts[1] = parts[1].with_widths(0.15, 0.3)
    return gt.Estimator("composed", base.advantage, *parts)


def sequences(penalty="plain", **facts):
    """The problem of these tests: responses of one to three tokens, sampled by a policy far from the current one."""
    return tree_case("shared", "binary", penalty, distance=1.1, **facts)


def penalised(kl):
    """Return the problem for one of the places of a penalty, and the name of the KL term."""
    return (sequences(), "k1 in reward") if kl == "plain" else (sequences("kl"), kl)


# The parts themselves.


def test_the_bound_of_the_dual_clip_bites_on_a_policy_farther_away():
    c = tree_case("shared", "binary", distance=3.0)
    means = {}
    for clip in ("by sign", "dual"):
        e = estimator_of("rloo", "token", clip)
        law = gt.gradient_law(c.problem, c.theta, e, batch_size=1, group_size=2, behaviour=c.behaviour)
        assert_law(law, batch_law(c, e, 1, 2, behaviour=c.behaviour))
        means[clip] = law.mean
    assert np.linalg.norm(means["dual"] - means["by sign"]) > 1e-3


def surrogate(ratio, clip, advantage, low, high, aggregation):
    """Return the function of theta whose gradient a paper says that a response's estimate is; of logs of all tokens."""
    cut = {
        "none": lambda r: r,
        "two-sided": lambda r: np.clip(r, 1.0 - low, 1.0 + high),
        "upper only": lambda r: np.minimum(r, 1.0 + high),
        "by sign": lambda r: min(advantage * r, advantage * np.clip(r, 1.0 - low, 1.0 + high)) / advantage,
        "dual": lambda r: (
            max(min(advantage * r, advantage * np.clip(r, 1.0 - low, 1.0 + high)), 3.0 * advantage) / advantage
            if advantage < 0.0
            else min(r, 1.0 + high)
        ),
    }[clip]

    def value(now, then):
        if ratio == "token":  # PPO, GRPO: every token by itself
            terms = sum(advantage * cut(np.exp(a - b)) for a, b in zip(now, then, strict=True))
            return terms / len(now) if aggregation == "own length" else terms
        whole = np.exp(sum(now) - sum(then))
        if ratio == "trajectory":  # TIC-GRPO: one ratio for the response, divided by its length if the mean is taken
            return advantage * cut(whole) / (len(now) if aggregation == "own length" else 1.0)
        return advantage * cut(whole ** (1.0 / len(now)))  # GSPO

    return value


@pytest.mark.parametrize("clip", ["none", "two-sided", "upper only", "by sign", "dual"])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize(
    ("ratio", "aggregation"),
    [("token", "sum"), ("token", "own length"), ("trajectory", "sum"), ("trajectory", "own length"), ("geometric", "own length")],
)
def test_the_enumeration_has_the_gradients_of_the_papers_surrogates(clip, advantage, ratio, aggregation):
    c, low, high, step = sequences(), 0.15, 0.3, 1e-6
    terms = [response_terms(c, m, estimator_of("rloo", ratio, clip, aggregation), c.theta, c.behaviour) for m in range(2)]
    value = surrogate(ratio, clip, advantage, low, high, aggregation)
    for m, (k, response) in product(range(2), enumerate(responses(c))):
        then = token_logs(c, c.behaviour, m, response)
        slope = [
            (
                value(token_logs(c, c.theta + step * e, m, response), then)
                - value(token_logs(c, c.theta - step * e, m, response), then)
            )
            / (2.0 * step)
            for e in np.eye(3)
        ]
        assert_close(advantage * terms[m][0 if advantage > 0.0 else 1, k], slope, 1e-7)


# All mixtures.


@pytest.mark.parametrize(("kl", "advantage"), list(zip(PLACES, ["asymmetric", "rloo", "grpo"] * 3, strict=False)))
def test_all_mixtures_off_policy(kl, advantage):
    c, kl = penalised(kl)
    for ratio, clip, aggregation in product(RATIOS, CLIPS, POOLS):
        if ratio == "none" and clip not in ("none", "cap", "cap at high"):
            continue  # the ratio is 1, and no clip bites
        mixed = estimator_of(advantage, ratio, clip, aggregation, kl)
        law = gt.gradient_law(c.problem, c.theta, mixed, batch_size=2, group_size=2, behaviour=c.behaviour)
        assert_law(law, batch_law(c, mixed, 2, 2, behaviour=c.behaviour))


def test_aggregation_and_penalty_on_policy():
    for kl, aggregation in product(("plain", "k3 in loss"), POOLS):
        c, term = penalised(kl)
        plain = estimator_of("asymmetric", aggregation=aggregation, kl=term)
        law = gt.gradient_law(c.problem, c.theta, plain, batch_size=2, group_size=2)
        assert_law(law, batch_law(c, plain, 2, 2))


def prefix_ratio(log_ratios, length, ratios):
    """The ratio of a token is that of the response up to it."""
    for i in range(ratios.shape[1]):
        total = 0.0
        for t in range(length):
            total += log_ratios[t, i]
            ratios[t, i] = np.exp(total)


def root_length(lengths, constant):
    """A weight between the sum and the mean."""
    return 1.0 / np.sqrt(lengths)


def test_parts_of_ones_own(monkeypatch):
    monkeypatch.setitem(RATIOS, "prefix", np.cumprod)
    monkeypatch.setitem(SHARES, "root length", lambda length, constant: length**-0.5)
    monkeypatch.setitem(SHARES, "six tokens", SHARES["constant"])
    c = sequences("kl")
    ratio, root = gt.Ratio("prefix", prefix_ratio), gt.Aggregation("root length", root_length)
    six = gt.Aggregation("six tokens", AGGREGATIONS["constant"].function, constant=6.0)
    for aggregation, clip in product((root, six), CLIPS):
        mixed = estimator_of("asymmetric", ratio, clip, aggregation, "k2 in loss")
        law = gt.gradient_law(c.problem, c.theta, mixed, batch_size=2, group_size=2, behaviour=c.behaviour)
        assert_law(law, batch_law(c, mixed, 2, 2, behaviour=c.behaviour))


# Who sampled.


@pytest.mark.parametrize(("kl", "ratio"), [("k1 in reward", "none"), ("k3 in reward", "token")])
def test_kernels_see_the_behaviour_policy(kl, ratio):
    c = sequences("kl")
    e = estimator_of("all fields", ratio, "by sign", "own length", kl)
    assert e.reads == frozenset(gt.Batch._fields) - {"parameters", "memory"}
    law = gt.gradient_law(c.problem, c.theta, e, batch_size=2, group_size=2, behaviour=c.behaviour)
    assert_law(law, batch_law(c, e, 2, 2, behaviour=c.behaviour))
    # Any one field of the current policy in place of the behaviour policy's would be seen, and so would one token each.
    then, now = (prompts(c, kl, theta) for theta in (c.behaviour, c.theta))
    for field in ("rewards", "scores", "value", "standard_deviation", "optimal_baseline", "lengths"):
        other = [b._replace(lengths=np.ones_like(b.lengths)) for b in now]
        mixed = [a._replace(**{field: getattr(b, field)}) for a, b in zip(then, other, strict=True)]
        wrong = batch_law(c, e, 2, 2, behaviour=c.behaviour, looks=mixed)
        assert np.linalg.norm(wrong.mean - law.mean) > 1e-3


# What is refused.


def both_ways(c, e, behaviour, **sizes):
    """Return the exact law and the simulation as two calls."""
    sizes = {"batch_size": 2, "group_size": 2, **sizes}
    return (
        lambda: gt.gradient_law(c.problem, c.theta, e, **sizes, behaviour=behaviour),
        lambda: gt.simulate_gradients(c.problem, c.theta, e, **sizes, behaviour=behaviour, replications=10, rng=0),
    )


@pytest.mark.parametrize("ratio", ["token", "trajectory"])
def test_an_infinite_ratio_is_refused(ratio, check_refused):
    c = tree_case("tabular", "binary")
    behaviour = c.theta.reshape(2, 3, 2).copy()
    behaviour[1, 2, 0] = -2000.0  # prompt 1, the last prefix (0, 0), token 0
    message = "token 0 after prefix 2 of prompt 1. The importance ratio is then infinite"
    check_refused(*((call, message) for call in both_ways(c, estimator_of("rloo", ratio), behaviour.reshape(-1))))
    # Without a ratio there is nothing to refuse, nor the other way round: what the current policy cannot draw has ratio 0.
    plain = estimator_of("rloo")
    law = gt.gradient_law(c.problem, c.theta, plain, batch_size=2, group_size=2, behaviour=behaviour.reshape(-1))
    assert_law(law, batch_law(c, plain, 2, 2, behaviour=behaviour.reshape(-1)))
    turned = c.replace(theta=behaviour.reshape(-1))
    e = estimator_of("rloo", ratio, "cap")
    law = gt.gradient_law(c.problem, turned.theta, e, batch_size=2, group_size=2, behaviour=c.theta)
    assert_law(law, batch_law(turned, e, 2, 2, behaviour=c.theta))


def test_a_penalty_in_the_loss_needs_a_penalty(check_refused):
    c = sequences()
    for divergence in ("k1", "k2", "k3"):
        calls = both_ways(c, estimator_of("rloo", kl=f"{divergence} in loss"), c.behaviour)
        check_refused(*((call, f"must have a kl for the KL term '{divergence} in loss'") for call in calls))
        # In the reward there is nothing to subtract.
        e = estimator_of("rloo", kl=f"{divergence} in reward")
        law = gt.gradient_law(c.problem, c.theta, e, batch_size=2, group_size=2, behaviour=c.behaviour)
        assert_law(law, batch_law(c, e, 2, 2, behaviour=c.behaviour))
