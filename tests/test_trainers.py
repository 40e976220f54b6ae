"""Kernels, named and of trainers: their formulas written out with numpy, exact laws, and what a lone or a uniform group gets."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from enumeration import NAMED, assert_law, batch_law, tree_case

import grpo_theory as gt
from grpo_theory.estimation import KL_TERMS
from grpo_theory.estimation.kernel import Batch
from grpo_theory.estimation.trainers import CONVENTIONS

ADVANTAGES = tuple(name for name in CONVENTIONS if not name.endswith("_loss"))
LOSSES = tuple(name for name in CONVENTIONS if name.endswith("_loss"))
LONE = {
    name: CONVENTIONS[name].advantage.parameters.get("alone", 0.0)
    for name in ADVANTAGES
    if CONVENTIONS[name].advantage.minimum_group_size == 1 and name not in ("trl_grpo_batch", "max_rl", "nemo_rl")
}


def z_score(z, ddof, epsilon):
    return (z - z.mean()) / (z.std(ddof=ddof) + epsilon)


def left_out_score(z, g):
    rest = np.delete(z, g)
    deviation = rest.std(ddof=1) if len(rest) > 1 else 0.0
    return (z[g] - rest.mean()) / (deviation + 1e-6 if deviation > 0.0 else 1.0)


def best_only(z):
    second, best = np.sort(z)[-2:]
    found = np.zeros(len(z))
    found[z.argmax()] = (best - second) / (z.std(ddof=1) + 1e-6)
    return found


def shrunk(z):
    """Transcribe arXiv 2511.03710, one response at a time."""
    n_groups, group_size = z.shape
    found = np.empty(z.shape)
    for b, g in product(range(n_groups), range(group_size)):
        elsewhere = np.delete(z, b, axis=0)
        v = np.mean([row.var(ddof=1) / group_size for row in elsewhere])
        s = np.mean((elsewhere.mean(axis=1) - elsewhere.mean()) ** 2)
        share = v / (v + s + 1e-6)
        found[b, g] = z[b, g] - (1.0 - share) * np.delete(z[b], g).mean() - share * elsewhere.mean()
    return found


def by_token(z, lengths):
    """Whiten the tokens' advantages, each written out."""
    a = z - z.mean(axis=1, keepdims=True)
    tokens = np.repeat(a.reshape(-1), lengths.reshape(-1))
    return (a - tokens.mean()) / np.sqrt(tokens.var(ddof=1) + 1e-8)


def known_to_oracles(n_groups):
    """Return made-up values, standard deviations and optimal baselines of the groups' prompts."""
    return np.linspace(0.1, 0.3, n_groups), np.linspace(0.5, 0.7, n_groups), np.linspace(-0.2, 0.4, n_groups)


def transcriptions(z, lengths, norms=None):
    """Return what the trainers' documentation and sources say, for groups of two or more."""
    size = z.shape[1]
    centred = z - z.mean(axis=1, keepdims=True)
    left_out = np.array([[row[g] - np.delete(row, g).mean() for g in range(size)] for row in z])
    means = z.mean(axis=1, keepdims=True)
    values, _, optimal = (known[:, None] for known in known_to_oracles(len(z)))
    weights = np.ones(z.shape) if norms is None else norms
    weighted = [[np.average(np.delete(z[b], g), weights=np.delete(weights[b], g)) for g in range(size)] for b in range(len(z))]
    return {
        "reinforce": z,
        "oracle": z - values,
        "optimal": z - optimal,
        "rloo": left_out,
        "dr_grpo": centred,
        "grpo": np.array([z_score(row, 1, 1e-4) for row in z]),
        "optimal_loo": z - weighted,
        "trl_grpo": np.array([z_score(row, 1, 1e-4) for row in z]),
        "trl_grpo_batch": centred / (z.std(ddof=1) + 1e-4),
        "trl_grpo_none": centred,
        "trl_rloo": left_out,
        "trl_rloo_whitened": (left_out - left_out.mean()) / (left_out.std(ddof=1) + 1e-4),
        "verl_grpo": np.array([z_score(row, 1, 1e-6) for row in z]),
        "verl_dr_grpo": centred,
        "verl_rloo": left_out,
        "verl_opo": z - (lengths * z).sum(axis=1, keepdims=True) / lengths.sum(axis=1, keepdims=True),
        "verl_grpo_passk": np.array([best_only(row) for row in z]),
        "verl_reinforce_plus_plus_baseline": by_token(z, lengths),
        "verl_gpg": centred * z.size / max(np.count_nonzero(z), 1),
        "openrlhf_rloo": left_out,
        "openrlhf_dr_grpo": centred,
        "openrlhf_group_norm": np.array([z_score(row, 1, 1e-9) for row in z]),
        "nemo_rl": np.array([[left_out_score(row, g) for g in range(size)] for row in z]),
        "rllm": np.array([z_score(row, 0, 1e-6) for row in z]),
        "prime_rl": centred,
        "tinker": centred,
        "max_rl": np.where(means > 0.0, centred / np.where(means > 0.0, means, 1.0), 0.0),
        "james_stein": shrunk(z),
    }


def fill(name, rewards, lengths=None, plain=False, norms=None, **parameters):
    """Run a kernel, compiled or as plain Python; what it says that it does not read is NaN."""
    advantage = gt.estimators()[name].with_parameters(**parameters).advantage
    rewards = np.ascontiguousarray(rewards, dtype=np.float64)
    lengths = np.ones(rewards.shape, dtype=np.int64) if lengths is None else np.ascontiguousarray(lengths)
    norms = np.ones(rewards.shape) if norms is None else np.ascontiguousarray(norms)
    batch = Batch(rewards, norms, lengths, -norms, *known_to_oracles(len(rewards)), advantage.parameter_array)
    unread = set(Batch._fields[:-2]) - advantage.reads - {"lengths"}
    batch = batch._replace(**{field: np.full(getattr(batch, field).shape, np.nan) for field in unread})
    found = np.full(rewards.shape, np.nan)
    if plain:
        advantage.function(batch, found)
    else:
        advantage.run(batch[:-2], found)
    return found


def drawn(kind, size, seed=0):
    rng = np.random.default_rng(seed)
    rewards = rng.integers(0, 2, (5, size)).astype(float) if kind == "binary" else rng.normal(size=(5, size))
    return rewards, rng.integers(1, 5, (5, size))


@pytest.mark.parametrize(("kind", "size"), [("binary", 2), ("graded", 3), ("binary", 8), ("graded", 8)])
def test_kernels_are_what_their_sources_say(kind, size):
    rewards, lengths = drawn(kind, size)
    norms = np.random.default_rng(1).uniform(0.1, 2.0, rewards.shape)
    for name, expected in transcriptions(rewards, lengths, norms).items():
        found, plain = (fill(name, rewards, lengths, plain, norms) for plain in (False, True))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12, err_msg=name)
        np.testing.assert_allclose(plain, found, rtol=1e-13, atol=1e-15, err_msg=name)


def test_optimal_loo_is_accurate_where_one_norm_dwarfs_the_others():
    """The rare response of a policy that is nearly certain: the others' mean must not be what rounding leaves of a difference."""
    rewards, lengths = np.tile([1.0, 0.3, 0.7, 0.1], (2, 1)), np.ones((2, 4), dtype=np.int64)
    for small in (1e-3, 1e-7, 1e-14):
        norms = np.tile([1.9, small, 2 * small, 3 * small], (2, 1))
        expected = transcriptions(rewards, lengths, norms)["optimal_loo"]
        np.testing.assert_allclose(fill("optimal_loo", rewards, norms=norms), expected, rtol=1e-12)
    assert fill("optimal_loo", [[1.0, 2.0, 3.0]], norms=[[4.0, 0.0, 0.0]]).tolist() == [[1.0, 1.0, 2.0]]


def test_a_uniform_batch_gets_nothing_to_the_last_bit():
    """Without epsilon too: the rounding of a mean would be divided by a deviation of its own size."""
    sums = ("none", "dr_grpo", "rloo", "opo", "gpg", "prime_rl", "tinker")  # centred by a sum, whose rounding they keep
    for name in sorted(set(ADVANTAGES) - {"james_stein", "verl_reinforce_plus_plus_baseline"}):
        bare = {"epsilon": 0.0} if "epsilon" in CONVENTIONS[name].advantage.parameters else {}
        for value, size in product((0.1, 0.7, 1.0 / 3.0, -1e9, 1e-300), (2, 3, 7, 64)):
            largest = np.abs([fill(name, np.full((2, size), value), **more) for more in ({}, bare)]).max()
            assert largest <= (size * 1e-15 * abs(value) if name.endswith(sums) else 0.0), (name, value, size)
    naive = np.full(3, 0.1)
    assert np.abs((naive - naive.mean()) / naive.std(ddof=1)).max() > 0.5, "the control: numpy's own make noise of order 1 of it"


def test_every_convention_is_transcribed_and_has_a_source():
    assert set(transcriptions(*drawn("graded", 3))) == {*ADVANTAGES, *NAMED}
    assert all(len(found.source) > 30 for found in CONVENTIONS.values())


@pytest.mark.parametrize("name", LONE)
def test_what_a_lone_response_gets(name):
    kept = name.startswith(("verl", "rllm"))
    whitened = name == "verl_reinforce_plus_plus_baseline"
    found = fill(name, [[0.7], [0.2]])
    if whitened:
        expected = np.array([0.7, 0.2]) - 0.45
        expected = expected / np.sqrt(expected.var(ddof=1) + 1e-8)
        np.testing.assert_allclose(found[:, 0], expected, rtol=1e-12)
    else:
        np.testing.assert_allclose(found[:, 0], [0.7 * kept, 0.2 * kept], rtol=2e-6)
    assert bool(LONE[name]) == kept


# Exact laws.


@pytest.mark.parametrize("name", [name for name in LOSSES if not CONVENTIONS[name].couples_groups])
def test_exact_moments_of_losses_off_policy(name):
    c = tree_case("shared", "binary", distance=1.1)
    law = gt.gradient_law(c.problem, c.theta, name, batch_size=2, group_size=3, behaviour=c.behaviour)
    assert_law(law, batch_law(c, CONVENTIONS[name], 2, 3, behaviour=c.behaviour))


def test_ratios_of_whole_sequences_are_their_sources():
    """TRL's importance_sampling_level="sequence" and verl's gspo give every token exp(mean_t log r_t)."""
    logs = np.log([[1.1], [0.7], [1.3]])
    for name in ("trl_gspo_loss", "verl_gspo_loss"):
        found = np.empty_like(logs)
        CONVENTIONS[name].ratio.fill(logs, 3, found)
        np.testing.assert_allclose(found, np.exp(logs.mean()), rtol=1e-14, err_msg=name)


def vanishing(behaviour_too=False):
    """Return a tree with a penalty where token 1 after prefix (1,) of prompt 1 has probability exp(-1000)."""
    c = tree_case("tabular", "binary", "kl", end_token=None, horizon=2)
    theta, behaviour = (v.reshape(2, 3, 2).copy() for v in (c.theta, c.behaviour))
    theta[1, 2, 1] = -1000.0
    if behaviour_too:
        behaviour[1, 2, 1] = -1000.0
    return replace(c.replace(theta=theta.reshape(-1)), behaviour=behaviour.reshape(-1))


def test_a_sampled_token_with_an_infinite_slope_is_refused():
    c = vanishing()
    e = replace(gt.estimators()["rloo"], kl=KL_TERMS["k3 in loss"])
    message = r"the KL term 'k3 in loss' has a slope beyond double precision at response 3 of prompt 1\. The response is sampled"
    sizes = {"batch_size": 2, "group_size": 2, "behaviour": c.behaviour}
    with pytest.raises(ValueError, match=message):
        gt.gradient_law(c.problem, c.theta, e, **sizes)
    with pytest.raises(ValueError, match=message):
        gt.simulate_gradients(c.problem, c.theta, e, **sizes, replications=10, rng=0)
    both = vanishing(behaviour_too=True)
    law = gt.gradient_law(both.problem, both.theta, e, batch_size=2, group_size=2, behaviour=both.behaviour)
    assert np.isfinite(law.mse)
