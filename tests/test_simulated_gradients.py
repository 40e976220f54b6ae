"""Simulated gradients: moments of all batches that there can be, exact laws, same bits, kernels of a user's, bad input.

A standard normal exceeds 4.9 with probability 1e-6, so a right prediction fails once in a million. A prediction that is wrong by
9.8 standard errors passes once in a million. Tests say how small a part of the number predicted that is.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
from dense import token_case
from enumeration import NAMED, case
from runs_by_hand import (
    COMPOSITIONS,
    all_observations,
    composed,
    cubed,
    of_a_user,
    over_the_batch,
    placed,
    small_case,
    z_of_moments,
)

import grpo_theory as gt

Z = 4.9
SIZES = {"batch_size": 4, "group_size": 4}


COUPLED = [name for name, one in gt.estimators().items() if one.advantage.couples_groups and one.advantage.name == name]
IN_LOSS = {"ratio": "none", "aggregation": "own length", "kl": "k2 in loss", "advantage": "optimal_loo"}
BATCHES = {
    "contrasts": ("tabular", "binary plain", NAMED, 3, 2, 1.0),
    "tables": ("linear", "graded plain", NAMED, 2, 3, 1.0),
    "tables of sure rewards": ("linear tree", "decided plain", NAMED, 2, 3, 1.0),
    "coefficients": ("head", "binary kl", NAMED, 2, 2, 1.0),
    "compositions, off policy": ("linear tree", "graded kl", COMPOSITIONS, 2, 2, 0.2),
    "heads, off policy": ("head tree", "binary kl", COMPOSITIONS[:4], 2, 2, 0.2),
    "tables, off policy": ("tabular tree", "graded kl", ("rloo", "grpo", "dapo", "gspo"), 2, 2, 0.5),
    "called, a penalty in the loss": ("linear tree", "binary kl", (IN_LOSS, COMPOSITIONS[8]), 2, 2, 0.5),
    "kernels that couple groups": ("linear tree", "binary plain", COUPLED, 2, 2, 1.0),
    "kernels of a user's": ("linear tree", "binary plain", (over_the_batch, placed, cubed), 2, 2, 1.0),
    "single responses": ("tabular", "graded kl", ("reinforce", "oracle", "optimal"), 3, 1, 1.0),
}


@pytest.mark.parametrize("batch", BATCHES)
def test_observations_have_the_moments_of_all_batches(batch, registry, seed):
    """Means, and covariances across estimators and directions, by exact second and fourth moments; 9.8 errors are under 10%."""
    kind, problem, chosen, batch_size, group_size, away = BATCHES[batch]
    c, sizes = small_case(kind, *problem.split()), {"batch_size": batch_size, "group_size": group_size}
    n = 100_000 if chosen is COUPLED else 400_000  # each of their batches is a call from Python
    if callable(chosen[0]):
        estimators = [of_a_user(kernel, couples_groups=kernel is over_the_batch) for kernel in chosen]
    elif isinstance(chosen[0], dict):
        estimators = [composed(parts, f"composed_{i}", (0.2, 0.25)) for i, parts in enumerate(chosen)]
    else:
        estimators = [gt.estimators()[name] for name in chosen]
    directions, behaviour = np.random.default_rng(8).normal(size=(2, c.policy.dimension)), away * c.theta
    chances, rows = all_observations(c, estimators, behaviour, directions, sizes)
    run = gt.simulate_gradients(
        c.problem, c.theta, estimators, **sizes, replications=n, rng=seed(2), behaviour=behaviour, directions=directions
    )
    z, relative = z_of_moments(run, chances, rows)
    assert z < Z
    assert relative < 0.1 / (2 * Z)
    for wrong in (np.roll(rows, 1, axis=0), np.sqrt(1.1) * rows):
        assert z_of_moments(run, chances, wrong)[0] > Z, "another estimator's, and means 5% larger"


def near(estimate, standard_error, prediction):
    return np.abs(np.asarray(estimate) - prediction) < Z * np.asarray(standard_error)


LAWS = [
    *((name, 4, 4) for name in ("graded", "sequence-shared")),
    *((name, 40, 3) for name in ("tabular", "linear")),
    ("kl-tabular", 2, 300),
    ("lm-few-shot", 4, 128),
    ("head", 40, 3),
    ("head of one prompt", 4, 4),
]


@pytest.mark.parametrize(("name", "batch_size", "group_size"), LAWS)
def test_estimates_have_their_exact_laws(name, batch_size, group_size, seed):
    """Of all named estimators: few groups and many, which are added up otherwise, and large groups, drawn by fewer bits."""
    alone = gt.Problem(gt.Bandit([[0.3, 0.8, 0.5]]), gt.SoftmaxHead([[2.0, 1.0]], 3))
    made = {"head": case("head", "graded", "kl").problem, "head of one prompt": alone}
    problem, sizes = made.get(name) or gt.gallery.problem(name), {"batch_size": batch_size, "group_size": group_size}
    named, n = (NAMED, 400_000 // batch_size) if group_size < 100 else (("reinforce", "rloo", "grpo"), 10_000)
    directions = np.random.default_rng(1).normal(size=(2, problem.policy.dimension))
    run = gt.simulate_gradients(problem, problem.theta, named, **sizes, replications=n, rng=seed(20), directions=directions)
    laws = [gt.gradient_law(problem, problem.theta, one, **sizes) for one in named]
    for i, law in enumerate(laws):
        assert near(run.mse[i], run.mse_standard_error[i], law.mse)
        assert near(run.prompt_mse[i], run.prompt_mse_standard_error[i], law.prompt_mse)
        assert (2 * Z * run.mse_standard_error[i] < 0.2 * law.mse) or law.mse < 1e-12
        variances = law.variance_along(directions)
        assert near(run.along[i], np.sqrt(variances / n) + 1e-15, directions @ law.mean).all()
        # A variance's relative standard error is sqrt((kurtosis - 1)/n).
        assert (np.abs(np.diag(run.along_covariance[i]) - variances) <= Z * np.sqrt(6.0 / n) * variances).all()
    i, j = run.index("rloo"), run.index("reinforce")
    for found, attribute in ((run.mse_difference, "mse"), (run.prompt_mse_difference, "prompt_mse")):
        difference, error = found("rloo", "reinforce")
        assert near(difference, error, getattr(laws[i], attribute) - getattr(laws[j], attribute))
        single = getattr(run, f"{attribute}_standard_error")
        assert 0.0 < error < np.hypot(single[i], single[j])
    assert not near(run.mse[i], run.mse_standard_error[i], 1.2 * laws[i].mse)


def simulate(c=None, estimators="rloo", **changes):
    c = c or case()
    how = {**SIZES, "replications": 10, "rng": 0, **changes}
    return gt.simulate_gradients(c.problem, c.theta, estimators, **how)


def shown(estimator):
    """Return a twin whose kernel reads lengths, so that it is called on every group."""
    advantage = replace(estimator.advantage, reads=estimator.advantage.reads | {"lengths"})
    return replace(estimator, name=f"{estimator.name}_shown", advantage=advantage)


@pytest.mark.parametrize("batch_size", [3, 40])
@pytest.mark.parametrize(("policy", "penalty"), [("head", "plain"), ("linear tree", "plain"), ("tree", "kl")])
def test_tables_coefficients_and_kernels_give_the_same_estimates_alone_and_in_company(policy, penalty, batch_size, registry):
    """To rounding by each way; to the bit alone and in company."""
    c = token_case(policy, penalty)
    made = [gt.estimators()[name] for name in ("grpo", "oracle", "reinforce", "optimal")]
    made.append(composed({"ratio": "token", "clip": "by sign", "advantage": "dr_grpo"}))
    how = {"batch_size": batch_size, "group_size": 6, "behaviour": 0.5 * c.theta, "replications": 500, "rng": 3}
    together = simulate(c, [*made, *map(shown, made)], **how)
    np.testing.assert_allclose(together.means[:5], together.means[5:], rtol=1e-11, atol=1e-13)
    for i, one in enumerate(made):
        alone, own = simulate(c, one, **how), np.ix_([i, 10 + i], [i, 10 + i])
        np.testing.assert_array_equal(alone.means[0], together.means[i])
        np.testing.assert_array_equal(alone.efficiency_scatter, together.efficiency_scatter[own])


@pytest.mark.parametrize(("n_estimators", "n_directions"), [(1, 0), (3, 2)])
@pytest.mark.parametrize("counts", [(33,), (20, 1, 29), (1600, 37)])
def test_moments_are_those_of_all_observations_and_survive_json(n_estimators, n_directions, counts):
    """By numpy's two passes, of observations whose means are large against their deviations, set after set."""
    names, total = ["rloo", "oracle", "grpo"][:n_estimators], sum(counts)
    rows = 30.0 + np.random.default_rng(2).normal(size=(n_estimators, total, 4 + n_directions)).cumsum(axis=2)
    found, *parts = [gt.GradientSimulation.of(names, part, 4.0) for part in np.split(rows, np.cumsum(counts)[:-1], axis=1)]
    for part in parts:
        found = found.merge(part)
    assert found.replications == total
    np.testing.assert_allclose(found.means, rows.mean(axis=1), rtol=1e-13)
    assert gt.GradientSimulation.from_dict(json.loads(json.dumps(found.to_dict()))).to_dict() == found.to_dict()
    away = rows - rows.mean(axis=1, keepdims=True)
    both = np.concatenate([away[:, :, 2], away[:, :, 3]])
    expected = away[:, :, 0] @ away[:, :, 0].T, away[:, :, 1] @ away[:, :, 1].T, both @ both.T
    for scatter, exact in zip((found.mse_scatter, found.prompt_mse_scatter, found.efficiency_scatter), expected, strict=True):
        np.testing.assert_allclose(scatter, exact, rtol=0.0, atol=1e-12 * np.abs(exact).max())
    along = [np.cov(one[:, 4:].T) for one in rows]
    np.testing.assert_allclose(found.along_covariance, np.reshape(along, found.along_covariance.shape), rtol=1e-11)
    np.testing.assert_allclose(found.mse_standard_error, rows[:, :, 0].std(axis=1, ddof=1) / np.sqrt(total), rtol=1e-12)
    if n_estimators > 1:
        for j, difference in enumerate((found.mse_difference, found.prompt_mse_difference)):
            apart = rows[0, :, j] - rows[1, :, j]
            np.testing.assert_allclose(difference(*names[:2]), [apart.mean(), apart.std(ddof=1) / np.sqrt(total)], rtol=1e-10)


def forgetful(batch, advantages):
    """Leave the last response of a group out if all rewards are equal."""
    size = batch.rewards.shape[1]
    for b in range(batch.rewards.shape[0]):
        low, high = batch.rewards[b].min(), batch.rewards[b].max()
        for g in range(size - 1 if low == high else size):
            advantages[b, g] = batch.rewards[b, g]


def forgetful_of_single_tokens(batch, advantages):
    """Leave the last response of a group out if all have one token."""
    for b in range(batch.rewards.shape[0]):
        missing = 1 if batch.lengths[b].max() == 1 else 0
        for g in range(batch.rewards.shape[1] - missing):
            advantages[b, g] = batch.rewards[b, g]


def test_a_kernel_that_leaves_gaps_is_told_where_they_are_drawn(registry):
    """Problems without and with a penalty, and of sequences; no group of 40 here has equal rewards."""
    # In a group of one outcome the first response has an advantage. The second kernel has no gap on made-up lengths.
    sure = gt.Problem(gt.Bandit([[1.0, 0.5]]), gt.TabularSoftmax(1, 2), theta=[50.0, 0.0])
    made = [of_a_user(kernel) for kernel in (forgetful, forgetful_of_single_tokens)]
    asked = [
        *((made[0], one) for one in (sure, *map(gt.gallery.problem, ("mixed", "kl-tabular", "sequence-shared")))),
        (made[1], sure),
    ]
    for found, problem in asked:
        sizes = {"batch_size": 2, "group_size": 6 if found is made[1] else 3, "replications": 500, "rng": 1}
        for workers in (1, 2):
            with pytest.raises(ValueError, match=f"estimator '{found.name}' must fill finite advantages"):
                gt.simulate_gradients(problem, problem.theta, ["rloo", found], **sizes, workers=workers)
        with pytest.raises(ValueError, match=rf"'{found.name}' must fill finite advantages.*\[(\S+), \1, \1[\],]"):
            gt.simulate_training(problem, problem.theta, found, gt.Constant(0.1), steps=3, **sizes)
    problem = gt.Problem(gt.Bandit([[0.5, 0.5]]), gt.TabularSoftmax(1, 2))
    large = SIZES | {"group_size": 40, "replications": 500, "rng": 1}
    assert np.isfinite(gt.simulate_gradients(problem, [0.0, 0.3], made[0], **large).mse)


def test_arguments_are_checked(check_refused):
    check_refused((lambda: simulate(replications=1e3), "replications must be an integer"), error=TypeError)
    check_refused(
        (lambda: simulate(group_size=1), "group_size must be at least 2 for estimator 'rloo'"),
        (lambda: simulate(group_size=32769), "group_size must be at most 32768"),
        (lambda: simulate(None, ["rloo", "orcale"]), "must be one of oracle, .* more, got 'orcale'"),
        (lambda: simulate(None, ["grpo", "grpo"]), "estimators must name each estimator once"),
        (lambda: simulate(directions=np.ones((1, 5))), r"directions must have shape \(1, 6\)"),
        (lambda: simulate(behaviour=np.ones(5)), r"behaviour must have shape \(6,\)"),
    )


def test_a_table_that_would_be_too_large_is_said_to_be():
    """Of a kernel that then is called for every group, by either simulator, once; of smaller groups there is one."""
    problem = gt.Problem(gt.Bandit.from_law(np.arange(6.0), np.full((1, 6, 6), 1.0 / 6.0)), gt.TabularSoftmax(1, 6))
    sizes = {"batch_size": 1, "group_size": 64, "replications": 2, "rng": 0}
    for simulated, more in ((gt.simulate_gradients, {}), (gt.simulate_training, {"schedule": [0.1], "steps": 1})):
        with pytest.warns(gt.exact.TableSizeWarning, match="estimator 'grpo' is called for every group") as caught:
            simulated(problem, np.zeros(6), "grpo", **sizes, **more)
        assert [warning.filename for warning in caught] == [__file__]
        simulated(problem, np.zeros(6), "rloo", **sizes | {"group_size": 4}, **more)
