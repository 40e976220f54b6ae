"""Nearly uniform groups, vanishing deviations, tokens without probability, huge ratios: a finite result or a clear message."""

from dataclasses import replace

import numpy as np
import pytest
from sequences import assert_law, batch_law, case
from test_trainers import ADVANTAGES, fill

import grpo_theory as gt
from grpo_theory.estimation import CLIPS, KL_TERMS
from grpo_theory.estimation import RATIOS as NAMED_RATIOS
from grpo_theory.estimation.trainers import CONVENTIONS


def estimator_of(advantage, ratio="none", clip="none", aggregation="sum", kl="k1 in reward"):
    parts = NAMED_RATIOS[ratio], CLIPS[clip], gt.estimation.AGGREGATIONS[aggregation], KL_TERMS[kl]
    return gt.Estimator("composed", gt.estimators()[advantage].advantage, *parts)


# Groups.


@pytest.mark.parametrize("value", [0.1, 0.7, 1.0 / 3.0, -1e9, 1e-300])
@pytest.mark.parametrize("size", [2, 3, 7, 64])
@pytest.mark.parametrize("name", sorted(set(ADVANTAGES) - {"james_stein", "verl_reinforce_plus_plus_baseline"}))
def test_a_uniform_batch_gets_nothing_to_the_last_bit(name, size, value):
    largest = np.abs(fill(name, np.full((2, size), value))).max()
    allowed = 1e-15 * abs(value) if name.endswith(("none", "dr_grpo", "rloo", "opo", "gpg", "prime_rl", "tinker")) else 0.0
    assert largest <= size * allowed  # what is centred by its sum and divided by nothing keeps the sum's rounding


@pytest.mark.parametrize("name", ["trl_grpo", "verl_grpo", "openrlhf_group_norm", "rllm", "verl_grpo_passk", "nemo_rl"])
def test_without_epsilon_too(name):
    """Where nothing is beside the deviation, the rounding of a mean would be divided by a deviation of its own size."""
    e = CONVENTIONS[name].with_parameters(epsilon=0.0)
    for value in (0.1, 0.7, 1.0 / 3.0):
        found = np.full((1, 3), np.nan)
        e.advantage.kernel(fill_batch(e, np.full((1, 3), value)), found)
        assert found.tolist() == [[0.0, 0.0, 0.0]]
    naive = np.full(3, 0.1)
    naive = (naive - naive.mean()) / naive.std(ddof=1)
    assert np.abs(naive).max() > 0.5  # the control: numpy's own mean and deviation make noise of order 1 of it


def fill_batch(e, rewards):
    nothing = np.full(len(rewards), np.nan)
    lengths = np.ones(rewards.shape, dtype=np.int64)
    return gt.Batch(rewards, np.full(rewards.shape, np.nan), lengths, nothing, nothing, nothing, e.advantage.parameter_array)


# Ratios and tokens without probability.


def vanishing(behaviour_too=False):
    """Return a tree with a penalty where token 1 after prefix (1,) of prompt 1 has probability exp(-1000)."""
    c = case("tabular", "binary", "kl", end_token=None, horizon=2)
    theta, behaviour = (v.reshape(2, 3, 2).copy() for v in (c.theta, c.behaviour))
    theta[1, 2, 1] = -1000.0
    if behaviour_too:
        behaviour[1, 2, 1] = -1000.0
    return replace(c, theta=theta.reshape(-1), behaviour=behaviour.reshape(-1))


def test_a_sampled_token_with_an_infinite_slope_is_refused():
    c = vanishing()
    for kl in ("k1 in loss", "k2 in loss"):
        e = estimator_of("rloo", kl=kl)
        law = gt.gradient_law(c.problem, c.theta, e, batch_size=2, group_size=2, behaviour=c.behaviour)
        assert_law(law, batch_law(c, e, 2, 2, behaviour=c.behaviour))
    e = estimator_of("rloo", kl="k3 in loss")
    message = r"the KL term 'k3 in loss' has a slope beyond double precision at response 3 of prompt 1\. The response is sampled"
    sizes = {"batch_size": 2, "group_size": 2, "behaviour": c.behaviour}
    with pytest.raises(ValueError, match=message):
        gt.gradient_law(c.problem, c.theta, e, **sizes)
    with pytest.raises(ValueError, match=message):
        gt.simulate_gradients(c.problem, c.theta, e, **sizes, replications=10, rng=0)
    both = vanishing(behaviour_too=True)
    law = gt.gradient_law(both.problem, both.theta, e, batch_size=2, group_size=2, behaviour=both.behaviour)
    assert np.isfinite(law.mse)


@pytest.mark.parametrize("ratio", ["token", "trajectory", "geometric"])
def test_support_is_asked_for_where_the_current_policy_goes(ratio):
    """The current policy never reaches prefix (1,), so what the other one excludes there is no matter."""
    c = case("tabular", "binary", end_token=None, horizon=2)
    theta, behaviour = (v.reshape(2, 3, 2).copy() for v in (c.theta, c.behaviour))
    theta[1, 0, 1] = -1000.0
    behaviour[1, 2, 0] = -1000.0
    found, e = replace(c, theta=theta.reshape(-1), behaviour=behaviour.reshape(-1)), estimator_of("rloo", ratio)
    sizes = {"batch_size": 2, "group_size": 2, "behaviour": found.behaviour}
    law = gt.gradient_law(found.problem, found.theta, e, **sizes)
    assert_law(law, batch_law(found, e, 2, 2, behaviour=found.behaviour))
    # The control: a policy that does go there is refused.
    with pytest.raises(ValueError, match=r"token 0 after prefix 2 of prompt 1\. The importance ratio is then infinite"):
        gt.gradient_law(found.problem, c.theta, e, **sizes)


@pytest.mark.parametrize(
    ("clip", "held"), [("none", False), ("by sign", False), ("two-sided", True), ("cap", True), ("dual", True)]
)
def test_huge_ratios(clip, held):
    """A ratio of 1e170 has a square beyond double precision: it is refused, or clipped first."""
    c = case("tabular", "binary", end_token=None, horizon=2)
    behaviour = c.theta.reshape(2, 3, 2).copy()
    behaviour[0, 0, 1] = -390.0
    e = estimator_of("rloo", "token", clip)
    sizes = {"batch_size": 2, "group_size": 2, "behaviour": behaviour.reshape(-1)}
    if held:
        law = gt.gradient_law(c.problem, c.theta, e, **sizes)
        assert_law(law, batch_law(c, e, 2, 2, behaviour=behaviour.reshape(-1)))
    else:
        with pytest.raises(ValueError, match=r"The importance ratio is then .*e\+1\d\d, whose square is beyond double precision"):
            gt.gradient_law(c.problem, c.theta, e, **sizes)
    behaviour[0, 0, 1] = -200.0  # a large one that is not too large
    law = gt.gradient_law(c.problem, c.theta, e, batch_size=2, group_size=2, behaviour=behaviour.reshape(-1))
    assert np.isfinite([law.mse, *law.mean]).all()
