"""The compiled drivers and norms: as plain Python, and against dense arithmetic."""

import numpy as np
import pytest
from enumeration import NAMED, POLICIES, case

import grpo_theory as gt
from grpo_theory.estimator.kernel import SIGNATURE as KERNEL_SIGNATURE
from grpo_theory.estimator.kernel import compile_function, first_class
from grpo_theory.exact.moments import moments
from grpo_theory.exact.outcomes import outcomes
from grpo_theory.simulate.alias import alias_table
from grpo_theory.simulate.driver import (
    Draws,
    Tables,
    Truth,
    compiled_fill_draws,
    compiled_fill_observations,
    fill_draws,
    fill_observations,
)
from grpo_theory.simulate.geometry import SIGNATURE, _dense_norm, _head_norm, _tabular_norm, geometry

NORMS = {"tabular": _tabular_norm, "linear": _dense_norm, "head": _head_norm}
SHAPE = 7, 5, 4


def tabulate(c):
    table = outcomes(c.bandit, c.policy, c.theta, c.kl)
    norms = np.ascontiguousarray(table.squared_score_norms[:, table.responses])
    prompts, responses = alias_table(c.bandit.prompt_weights[None]), alias_table(table.probabilities)
    return Tables(*prompts, *responses, table.responses, table.rewards, norms)


def empty_draws(shape=SHAPE):
    integers = np.full(shape[:2], -1), np.full(shape, -1)
    return Draws(*integers, np.full(shape, np.nan), np.full(shape, np.nan))


def draw(c, function=fill_draws, number=0, shape=SHAPE):
    rng = np.random.default_rng(number)
    draws = empty_draws(shape)
    function(rng.random(shape[:2]), rng.random(shape), tabulate(c), draws)
    return draws


def truth_of(c, directions):
    m = moments(c.bandit, c.policy, c.theta, c.kl)
    logits = np.ascontiguousarray(c.policy.logits(np.concatenate([m.gradient[None], directions])))
    return Truth(
        c.policy.probabilities(c.theta),
        m.value,
        m.standard_deviation,
        m.optimal_baseline,
        m.gradient_covectors,
        logits,
        np.array([m.gradient_power]),
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_compiled_draws_agree_with_plain_python(policy):
    c = case(policy, "graded", "kl")
    plain, compiled = draw(c), draw(c, compiled_fill_draws())
    assert compiled_fill_draws().py_func is fill_draws
    for one, other in zip(plain, compiled, strict=True):
        assert np.array_equal(one, other)


def test_draws_are_outcomes_of_their_prompt():
    c = case("linear", "binary", "kl")
    draws, table = draw(c), outcomes(c.bandit, c.policy, c.theta, c.kl)
    penalty = c.kl.penalty(table.policy_probabilities)
    m = draws.prompts[:, :, None]
    value = draws.rewards + penalty[m, draws.responses]
    np.testing.assert_allclose(value, np.round(value), atol=1e-12)
    assert set(np.unique(np.round(value))) == {0.0, 1.0}
    assert np.array_equal(draws.squared_score_norms, table.squared_score_norms[m, draws.responses])
    assert set(np.unique(draws.prompts)) == {0, 1}
    # The first response to the first prompt never succeeds, the second to the second always does.
    assert (np.round(value)[(m == 0) & (draws.responses == 0)] == 0.0).all()
    assert (np.round(value)[(m == 1) & (draws.responses == 1)] == 1.0).all()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("name", "group_size"),
    [(name, size) for name in NAMED for size in (1, 2, 5) if size >= gt.estimators()[name].minimum_group_size],
)
def test_observations_against_dense_arithmetic(name, policy, group_size):
    """The squared errors and projections of the estimate, from dense scores and the kernel as plain Python."""
    found = gt.estimators()[name]
    c = case(policy, "graded", "kl")
    directions = np.random.default_rng(8).normal(size=(2, c.policy.dimension))
    draws, truth = draw(c, shape=(6, 4, group_size)), truth_of(c, directions)
    kernel, norm = found.function, NORMS[policy]
    plain = np.full((6, 4), np.nan)
    array = geometry(c.policy).array
    fill_observations(kernel, norm, array, found.parameter_array, draws, truth, plain)

    m, scores = moments(c.bandit, c.policy, c.theta, c.kl), c.policy.scores(c.theta)
    for r in range(6):
        prompts = draws.prompts[r]
        batch = gt.Batch(
            draws.rewards[r],
            draws.squared_score_norms[r],
            np.ones((4, group_size), dtype=np.int64),
            m.value[prompts],
            m.standard_deviation[prompts],
            m.optimal_baseline[prompts],
            found.parameter_array,
        )
        advantages = np.full((4, group_size), np.nan)
        kernel(batch, advantages)
        by_group = np.einsum("bg,bgd->bd", advantages, scores[prompts[:, None], draws.responses[r]]) / group_size
        error = ((by_group.mean(axis=0) - m.gradient) ** 2).sum()
        prompt_error = ((by_group - m.prompt_gradients[prompts]) ** 2).sum(axis=1).mean()
        expected = [error, prompt_error, *(directions @ by_group.mean(axis=0))]
        np.testing.assert_allclose(plain[r], expected, rtol=1e-11, atol=1e-13)

    compiled = np.full((6, 4), np.nan)
    kernel_value = first_class(found.kernel, KERNEL_SIGNATURE)
    compiled_fill_observations()(kernel_value, *geometry(c.policy), found.parameter_array, draws, truth, compiled)
    np.testing.assert_allclose(compiled, plain, rtol=1e-11, atol=1e-13)
    assert compiled_fill_observations().py_func is fill_observations


@pytest.mark.parametrize("policy", POLICIES)
def test_norms_are_those_of_the_gradient(policy):
    c = case(policy)
    n_prompts, n_responses = c.features.shape[:2]
    rng = np.random.default_rng(3)
    chosen, compiled = geometry(c.policy), compile_function(NORMS[policy], SIGNATURE)
    for used in (0, 1, 2):
        prompts = rng.permutation(n_prompts)
        covectors = rng.normal(size=(n_prompts, n_responses))
        gradient = sum((covectors[u] @ c.features[prompts[u]] for u in range(used)), np.zeros(c.policy.dimension))
        plain = NORMS[policy](used, prompts, covectors, chosen.array)
        assert plain == pytest.approx(gradient @ gradient, rel=1e-13)
        assert compiled(used, prompts, covectors, chosen.array) == pytest.approx(plain, rel=1e-13)


class Shifted(gt.Policy):
    """A policy of a user's own: logits theta_0 k + theta_1 m k."""

    n_prompts, n_responses, dimension = 2, 3, 2
    features = np.array([[[k, m * k] for k in range(3)] for m in range(2)], dtype=np.float64)

    def logits(self, theta):
        return np.einsum("mkd,...d->...mk", self.features, theta)

    def adjoint_by_prompt(self, covectors):
        return np.einsum("mkd,mk->md", self.features, covectors)

    def adjoint(self, covectors):
        return self.adjoint_by_prompt(covectors).sum(axis=0)

    def gram(self):
        return self.features @ self.features.transpose(0, 2, 1)

    def congruence(self, forms):
        return np.einsum("mkd,mkl,mle->de", self.features, forms, self.features)


def test_a_policy_of_the_users_own_needs_only_the_five_maps():
    policy, bandit, theta = Shifted(), gt.Bandit(np.random.default_rng(5).uniform(size=(2, 3))), [0.3, -0.2]
    twin = gt.LinearSoftmax(policy.features)
    sizes = {"batch_size": 3, "group_size": 4}
    laws = [gt.gradient_law(bandit, one, theta, "optimal_loo", **sizes) for one in (policy, twin)]
    np.testing.assert_allclose(laws[0].covariance(), laws[1].covariance(), rtol=1e-12)
    assert np.array_equal(geometry(policy).array, policy.features)
    sizes |= {"replications": 400, "rng": 1, "workers": 1}
    runs = [gt.simulate_gradients(bandit, one, theta, "rloo", **sizes) for one in (policy, twin)]
    np.testing.assert_allclose(runs[0].means, runs[1].means, rtol=1e-13)


def test_a_subclass_with_maps_of_its_own_is_simulated_by_them():
    class Doubled(gt.LinearSoftmax):
        """Features twice as large, by way of the maps alone."""

        def logits(self, theta):
            return 2.0 * super().logits(theta)

        def adjoint_by_prompt(self, covectors):
            return 2.0 * super().adjoint_by_prompt(covectors)

        def adjoint(self, covectors):
            return 2.0 * super().adjoint(covectors)

        def gram(self):
            return 4.0 * super().gram()

        def congruence(self, forms):
            return 4.0 * super().congruence(forms)

    c = case("linear")
    arguments = {"batch_size": 3, "group_size": 4, "replications": 400, "rng": 1, "workers": 1}
    own = gt.simulate_gradients(c.bandit, Doubled(c.features), c.theta, "rloo", **arguments)
    twin = gt.simulate_gradients(c.bandit, gt.LinearSoftmax(2.0 * c.features), c.theta, "rloo", **arguments)
    np.testing.assert_allclose(own.means, twin.means, rtol=1e-13)
