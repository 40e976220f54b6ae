"""Networks of two layers: derivatives, laws, Hessians, training, the limit of infinite width; and what is refused."""

import numpy as np
import pytest
from dense import Dense
from enumeration import NAMED, Prompt, group_law
from networks import ACTIVATIONS, KINDS, DenseNetwork, derivatives_of, logits_of, network_case
from runs_by_hand import COMPOSITIONS, IDS, adam_by_numpy, ascend, composed, transcription
from streams_by_numpy import uniforms_of_runs

import grpo_theory as gt
from grpo_theory.exact import directional_derivatives, gradient
from grpo_theory.exact.stability import StabilityWarning
from grpo_theory.exact.surface import hessian_along
from grpo_theory.simulate.records import simulate_iterates

CLOSE = {"rtol": 1e-12, "atol": 1e-13}


def differences(function, theta, step=1e-5):
    """Return the derivative of a function in theta, last axis, by differences of fourth order."""
    shifts = step * np.eye(theta.size)
    one, two = (
        np.stack([function(theta + n * shift) - function(theta - n * shift) for shift in shifts], axis=-1) for n in (1, 2)
    )
    return (8.0 * one - two) / (12.0 * step)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_scores_and_their_derivatives(kind):
    c = network_case(kind)
    policy, theta, network = c.policy, c.theta, c.policy.logit_map
    phi = derivatives_of(network, theta)
    np.testing.assert_allclose(policy.logits(theta), logits_of(network, theta), **CLOSE)
    several = np.stack([theta, 2.0 * theta, -theta])
    np.testing.assert_allclose(policy.logits(several), [logits_of(network, one) for one in several], **CLOSE)
    np.testing.assert_allclose(policy.jacobian(theta), phi, **CLOSE)
    at = DenseNetwork(c).at(theta)
    np.testing.assert_allclose(policy.probabilities(theta), at.responses, **CLOSE)
    np.testing.assert_allclose(policy.scores(theta), at.scores, **CLOSE)


@pytest.mark.parametrize("kind", KINDS)
def test_the_tangent_is_its_dense_features(kind):
    c = network_case(kind)
    tangent, phi = c.policy.tangent(c.theta), derivatives_of(c.policy.logit_map, c.theta)
    rng = np.random.default_rng(5)
    covectors, several = rng.normal(size=phi.shape[:2]), rng.normal(size=(4, c.policy.dimension))
    forms = rng.normal(size=(*phi.shape[:2], phi.shape[1]))
    np.testing.assert_allclose(tangent.logits(several), np.einsum("mkd,jd->jmk", phi, several), **CLOSE)
    np.testing.assert_allclose(c.policy.logit_slopes(c.theta, several[0]), phi @ several[0], **CLOSE)
    np.testing.assert_allclose(tangent.adjoint_by_prompt(covectors), np.einsum("mkd,mk->md", phi, covectors), **CLOSE)
    np.testing.assert_allclose(tangent.adjoint(covectors), np.einsum("mkd,mk->d", phi, covectors), **CLOSE)
    np.testing.assert_allclose(tangent.gram(), phi @ phi.transpose(0, 2, 1), **CLOSE)
    np.testing.assert_allclose(tangent.congruence(forms), sum(p.T @ a @ p for p, a in zip(phi, forms, strict=True)), **CLOSE)
    assert tangent.at(several[0]) is tangent


def enumerated(c):
    """Write out the outcomes of every prompt at theta."""
    dense = DenseNetwork(c)
    at = dense.at(c.theta)
    seen = dense.seen(at, gt.estimators()["rloo"])
    scores = np.repeat(at.scores, c.bandit.values.size, axis=1)
    fields = seen.values, seen.standard_deviations, seen.optimal_baselines
    by_prompt = zip(at.outcomes, seen.rewards, scores, *fields, strict=True)
    return [Prompt(p, z, w, *known, (p * z) @ w) for p, z, w, *known in by_prompt]


@pytest.mark.parametrize("estimator", NAMED)
def test_laws_are_sums_over_all_groups(estimator):
    c, found = network_case("tanh"), gt.estimators()[estimator]
    law = gt.gradient_law(c.problem, c.theta, estimator, batch_size=2, group_size=2)
    laws, weights = [group_law(prompt, found, 2) for prompt in enumerated(c)], c.bandit.prompt_weights
    mean = sum(w * one.mean for w, one in zip(weights, laws, strict=True))
    second = sum(w * one.second for w, one in zip(weights, laws, strict=True))
    np.testing.assert_allclose(law.mean, mean, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(law.covariance(), (second - np.outer(mean, mean)) / 2.0, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(law.trace, np.trace(law.covariance()), rtol=1e-11)


def test_what_is_known_at_a_point_needs_only_the_tangent():
    """A linear policy with the network's tangent, and its logits as one more feature, has the same law but for that one."""
    c = network_case("tanh", "kl")
    phi = np.concatenate([c.policy.jacobian(c.theta), c.policy.logits(c.theta)[:, :, None]], axis=2)
    twin = gt.Problem(c.bandit, gt.LinearSoftmax(phi), c.kl, np.eye(phi.shape[2])[-1])
    sizes = {"batch_size": 3, "group_size": 4}
    one, two = (gt.gradient_law(problem, problem.theta, "grpo", **sizes).covariance() for problem in (c.problem, twin))
    np.testing.assert_allclose(one, two[:-1, :-1], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("penalty", ["plain", "kl"])
def test_gradient_and_hessian_are_derivatives_of_the_objective(kind, penalty):
    c = network_case(kind, penalty)
    slope = differences(lambda theta: gt.objective(c.problem, theta), c.theta)
    np.testing.assert_allclose(gradient(c.problem, c.theta), slope, rtol=1e-6, atol=1e-9)
    bent = differences(lambda theta: gradient(c.problem, theta), c.theta)
    found = gt.hessian(c.problem, c.theta)
    np.testing.assert_allclose(found, bent, rtol=1e-6, atol=1e-8)
    flat = c.policy.tangent(c.theta).congruence(np.zeros((2, c.policy.n_logits, c.policy.n_logits)))
    bend = c.policy.logit_map.bend(c.theta, np.ones((2, c.policy.n_logits)))
    assert np.abs(bend - flat).max() > 0.1, "without the second derivatives of the logits the Hessian would be another"


def test_derivatives_along_directions_at_many_points():
    c = network_case("tanh", "kl")
    rng = np.random.default_rng(1)
    thetas, along = rng.normal(size=(2, 3, c.policy.dimension)), rng.normal(size=(2, c.policy.dimension))
    slopes, forms = directional_derivatives(c.problem, thetas, along), hessian_along(c.problem, thetas, along)
    for i in np.ndindex(2, 3):
        np.testing.assert_allclose(slopes[i], along @ gradient(c.problem, thetas[i]), **CLOSE)
        np.testing.assert_allclose(forms[i], along @ gt.hessian(c.problem, thetas[i]) @ along.T, **CLOSE)


def test_a_network_too_narrow_for_its_problem_has_a_limit_law():
    """Logits pull at its maximiser, so that the Hessian has a part from their second derivatives; the drift knows none of it."""
    rng = np.random.default_rng(3)
    policy = gt.TwoLayerSoftmax(rng.normal(size=(4, 2)), 1, 3)
    bandit = gt.Bandit(rng.uniform(0.1, 0.9, size=(4, 3)))
    problem = gt.Problem(bandit, policy, gt.KL(0.5, np.full((4, 3), 1.0 / 3.0)), rng.normal(size=policy.dimension))
    best = gt.find_optimum(problem, problem.theta)
    slopes = gt.moments(problem, best).gradient_covectors
    assert np.abs(slopes).max() > 1e-2
    linear = gt.theory.linearise(problem, best, "rloo", batch_size=2, group_size=4)
    np.testing.assert_allclose(linear.drift, np.diag(linear.curvatures), rtol=1e-6, atol=1e-8 * linear.curvatures.max())
    law = gt.limit_law(problem, best, "rloo", batch_size=2, group_size=4, step_scale=2.0 / linear.slowest)
    assert law.mean() > 0.0


@pytest.mark.parametrize("inner_steps", [1, 2])
@pytest.mark.parametrize("optimiser", [gt.SGD(), gt.Adam((0.5, 0.9), 1e-3)], ids=["sgd", "adam"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("estimator", ["rloo", "grpo", "optimal", "optimal_loo", "dapo"])
def test_iterates_are_those_of_the_algorithm(estimator, kind, optimiser, inner_steps):
    c, (b, g, n) = network_case(kind, "kl"), (4, 3, 12)
    options = {"batch_size": b, "group_size": g, "steps": n, "replications": 2, "rng": 4, "inner_steps": inner_steps}
    found = gt.simulate_training(c.problem, c.theta, estimator, gt.Power(0.2, 0.3), optimiser=optimiser, **options)
    uniforms, steps = uniforms_of_runs(4, b, g, n // inner_steps), gt.Power(0.2, 0.3).steps(n)
    for run in range(2):
        move = ascend if optimiser == gt.SGD() else adam_by_numpy(optimiser.betas, optimiser.eps)
        course = transcription(DenseNetwork(c), c.theta, gt.estimators()[estimator], steps, uniforms[run], inner_steps, move)
        np.testing.assert_allclose(found.theta[run], course.path[-1], atol=1e-10)
    assert np.linalg.norm(found.theta[0] - found.theta[1]) > 1e-3


@pytest.mark.parametrize("inner_steps", [1, 4])
@pytest.mark.parametrize("parts", COMPOSITIONS, ids=IDS)
def test_iterates_of_compositions_are_those_of_the_algorithm(parts, inner_steps, registry):
    c, found, (b, g, n) = network_case("tree", "kl"), composed(parts), (4, 3, 8)
    options = {"batch_size": b, "group_size": g, "steps": n, "replications": 2, "rng": 5, "inner_steps": inner_steps}
    training = gt.simulate_training(c.problem, c.theta, found, gt.Power(0.4, 0.3), **options)
    uniforms, steps = uniforms_of_runs(5, b, g, n // inner_steps), gt.Power(0.4, 0.3).steps(n)
    for run in range(2):
        expected = transcription(DenseNetwork(c), c.theta, found, steps, uniforms[run], inner_steps)
        np.testing.assert_allclose(training.theta[run], expected.path[-1], atol=1e-10)


def test_features_that_stay_are_told_from_those_that_move():
    """Power of the tests above: with the derivatives of the start kept, runs end elsewhere."""
    c, (b, g, n) = network_case("tanh", "kl"), (4, 3, 24)
    uniforms, steps = uniforms_of_runs(4, b, g, n)[0], gt.Power(0.2, 0.3).steps(n)
    frozen = Dense(c.replace()._replace(features=derivatives_of(c.policy.logit_map, c.theta)))
    rloo = gt.estimators()["rloo"]
    moving, kept = (transcription(dense, c.theta, rloo, steps, uniforms).path[-1] for dense in (DenseNetwork(c), frozen))
    assert np.abs(moving - kept).max() > 1e-2


def test_one_step_has_the_mean_that_the_law_says():
    c, runs, step = network_case("tanh", "kl"), 20_000, 1e-3
    sizes = {"batch_size": 2, "group_size": 3}
    found = gt.simulate_training(c.problem, c.theta, "optimal_loo", [step], steps=1, replications=runs, rng=1, **sizes)
    law = gt.gradient_law(c.problem, c.theta, "optimal_loo", **sizes)
    errors = np.sqrt(np.diag(law.covariance()) / runs)
    z = ((found.theta - c.theta).mean(axis=0) / step - law.mean) / errors
    assert np.abs(z).max() < 4.9
    assert np.abs(law.mean / errors).max() > 20.0, "a mean of 0 would be told from it"


def test_simulated_errors_are_those_of_the_law():
    c, sizes = network_case("tanh"), {"batch_size": 2, "group_size": 3}
    run = gt.simulate_gradients(c.problem, c.theta, ["rloo", "grpo"], replications=40_000, rng=2, **sizes)
    exact = [gt.gradient_mse(c.problem, c.theta, name, **sizes) for name in ("rloo", "grpo")]
    assert np.abs((run.mse - exact) / run.mse_standard_error).max() < 4.9


def replicated(base, theta, copies):
    """Return a network of so many copies of the units of another, and its start, at the scale of its width."""
    network = base.network
    width, scale = copies * network.width, (copies * network.width) ** -0.5
    first, second = network.layers(theta)
    layers = np.tile(first, (copies, 1)), np.tile(second, (1, copies))
    policy = gt.TwoLayerSoftmax(network.inputs, width, base.n_responses, network.activation, scale)
    return policy, np.concatenate([layer.reshape(-1) for layer in layers])


def gap_to_linear(base, theta, copies, bandit):
    """Return how far the logits of eight exact steps are from those of the linear policy of the start's tangent."""
    policy, wide = replicated(base, theta, copies)
    assert np.abs(policy.logits(wide)).max() < 1e-9
    linear = gt.Policy(policy.tangent(wide))
    learned, frozen = wide, np.zeros(wide.size)
    for _ in range(8):
        learned = learned + 2.0 * gradient(gt.Problem(bandit, policy, theta=learned), learned)
        frozen = frozen + 2.0 * gradient(gt.Problem(bandit, linear), frozen)
    moved = linear.logits(frozen)
    assert np.abs(moved).max() > 0.5, "the policy has moved"
    return np.abs(policy.logits(learned) - moved).max()


def slope_of(gaps, copies):
    return np.log(gaps[1] / gaps[0]) / np.log(copies[1] / copies[0])


def test_wide_networks_are_linear_policies():
    """From a paired start the gap falls as 1/H (docs/derivations, wide networks); from another, as 1/sqrt(H)."""
    rng, copies = np.random.default_rng(2), (1024, 4096)
    base = gt.TwoLayerSoftmax(rng.normal(size=(3, 2)), 8, 3, scale=8**-0.5)
    bandit, theta = gt.Bandit(rng.uniform(size=(3, 3))), base.start(rng)
    paired = [gap_to_linear(base, theta, n, bandit) for n in copies]
    assert slope_of(paired, copies) == pytest.approx(-1.0, abs=0.02)
    first, second = base.network.layers(theta)
    first = rng.normal(size=first.shape)
    hidden = np.tanh(base.network.inputs @ first.T)
    second = rng.normal(size=second.shape)
    second -= second @ np.linalg.pinv(hidden) @ hidden
    unpaired = np.concatenate([first.reshape(-1), second.reshape(-1)])
    other = [gap_to_linear(base, unpaired, n, bandit) for n in copies]
    assert slope_of(other, copies) == pytest.approx(-0.5, abs=0.05)


@pytest.mark.parametrize("width", [1, 4, 5])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_start_is_uniform_and_has_a_gradient(width, activation):
    policy = gt.TwoLayerSoftmax([[1.0, 0.5], [0.2, -1.0], [0.3, 0.3]], width, 3, activation)
    theta = policy.start(rng=0)
    np.testing.assert_allclose(policy.probabilities(theta), 1.0 / 3.0, atol=1e-15)
    np.testing.assert_array_equal(theta, policy.start(rng=np.random.default_rng(0)))
    assert np.linalg.norm(gradient(gt.Problem(gt.Bandit(np.eye(3)), policy, theta=theta), theta)) > 1e-3


def test_the_second_layer_of_a_start_does_not_grow_with_the_width():
    """Its sum of squares for one response is 1/scale^2, so that its products with features of order 1 are."""
    for scale in (1.0, 0.1):
        policy = gt.TwoLayerSoftmax([[1.0]], 40_000, 1, scale=scale)
        second = policy.network.layers(policy.start(rng=1))[1]
        assert (second**2).sum() == pytest.approx(scale**-2, rel=0.05)
        assert policy.network.layers(policy.start(rng=1))[0].std() == pytest.approx(1.0, rel=0.05)


def test_training_that_leaves_double_precision_is_counted():
    policy = gt.TwoLayerSoftmax([[1.0, 0.0]], 2, 2, "identity")
    problem = gt.Problem(gt.Bandit([[1.0, 0.0]]), policy, theta=policy.start(rng=0))
    sizes = {"batch_size": 2, "group_size": 2, "steps": 60, "replications": 2, "rng": 1}
    with pytest.warns(StabilityWarning, match="too large for stability"):
        runs = gt.simulate_training(problem, problem.theta, "reinforce", gt.Constant(1e180), **sizes)
    assert runs.diverged.all()
    assert np.isnan(runs.objectives).all()
    assert "diverged=2" in repr(runs)
    with pytest.raises(ValueError, match=r"theta must lie in \[-1e\+50, 1e\+50\], got 1e\+60"):
        gt.moments(problem, np.full(8, 1e60))


POLICY = gt.TwoLayerSoftmax([[1.0, 0.0], [0.0, 1.0]], 2, 2)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: gt.TwoLayerSoftmax([[1.0]], 0, 2), ValueError, "width must be at least 1, got 0"),
        (lambda: gt.TwoLayerSoftmax([[np.nan]], 2, 2), ValueError, "inputs must be finite, got nan at index"),
        (lambda: gt.TwoLayerSoftmax([[1.0, 1e300]], 2, 2), ValueError, r"inputs must lie in .*got 1e\+300 at index \(0, 1\)"),
        (lambda: gt.TwoLayerSoftmax([[1.0]], 2, 2, scale=1e300), ValueError, r"scale must be at most 1e\+50, got 1e\+300"),
        (lambda: gt.TwoLayerSoftmax([1.0], 2, 2), ValueError, r"inputs must have 2 dimensions, got shape \(1,\)"),
        (
            lambda: gt.TwoLayerSoftmax([[1.0]], 2, 2, "gelu"),
            ValueError,
            "'tanh', 'relu', 'identity', got 'gelu'",
        ),
        (lambda: gt.TwoLayerSoftmax([[1.0]], 2, 2, np.tanh), ValueError, "activation must be one of"),
        (lambda: gt.TwoLayerSoftmax([[1.0]], 2, 2, scale=0.0), ValueError, "scale must be"),
        (lambda: gt.Problem(gt.Bandit(np.eye(2)), POLICY), ValueError, "theta must be given for TwoLayerSoftmax.*draws a start"),
        (lambda: POLICY.jacobian(), ValueError, "theta must be given for the derivatives of TwoLayerSoftmax"),
        (lambda: POLICY.logits(np.zeros(3)), ValueError, r"theta must have shape \(\.\.\., d\) with d = 8, got \(3,\)"),
        (lambda: POLICY.start(rng="seed"), TypeError, "rng must be"),
    ],
)
def test_bad_input(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_records_of_networks_are_refused_and_iterates_are_not():
    problem = gt.Problem(gt.Bandit(np.eye(2)), POLICY, theta=POLICY.start(rng=0))
    sizes = {"batch_size": 2, "group_size": 2, "steps": 200, "replications": 1, "rng": 1}
    with pytest.raises(ValueError, match="policy must have logits that are linear in theta for records"):
        gt.simulate_records(problem, problem.theta, "rloo", gt.Constant(0.1), **sizes)
    paths = list(simulate_iterates(problem, problem.theta, "rloo", gt.Constant(0.1), **sizes))
    last = gt.simulate_training(problem, problem.theta, "rloo", gt.Constant(0.1), **sizes).theta
    np.testing.assert_array_equal(paths[0][:, -1], last)


def test_the_cost_of_noise_has_its_first_order_and_not_its_second():
    """That of one step is half the trace of curvature, where the step ends, times covariance, where it begins."""
    c, step = network_case("tanh", "kl"), 0.5
    law = gt.theory.training_law(c.problem, c.theta, gt.Constant(step), steps=1)
    covariance = gt.gradient_covariance(c.problem, c.theta, "rloo", batch_size=2, group_size=4)
    curvature = gt.hessian(c.problem, c.theta + step * gradient(c.problem, c.theta))
    assert law.loss(8, 4) == pytest.approx(-0.5 * step**2 * np.trace(curvature @ covariance), rel=1e-9)
    with pytest.raises(ValueError, match="policy must have logits that are linear in theta for the second order of the loss"):
        law.second_order(8, 4)


class Cubes(gt.SmoothMap):
    """Logits that are cubes of parameters: a map of a user's own, with derivatives and no way to train it in lanes."""

    n_prompts, n_logits, dimension = 1, 2, 2

    def logits(self, theta):
        return theta[..., None, :] ** 3

    def at(self, theta):
        return gt.LinearSoftmax(np.diag(3.0 * theta**2)[None]).logit_map

    def bend(self, theta, slopes):
        return np.diag(slopes[0] * 6.0 * theta)


def test_a_map_of_ones_own_has_laws_and_hessians_and_is_not_trained():
    problem = gt.Problem(gt.Bandit([[0.9, 0.2]]), gt.Policy(Cubes()), theta=[0.5, -0.4])
    bent = differences(lambda theta: gradient(problem, theta), problem.theta)
    np.testing.assert_allclose(gt.hessian(problem, problem.theta), bent, rtol=1e-6, atol=1e-9)
    with pytest.raises(ValueError, match="linear in theta, or be a TwoLayerSoftmax, to be trained"):
        gt.simulate_training(
            problem, problem.theta, "rloo", gt.Constant(0.1), batch_size=2, group_size=2, steps=2, replications=1, rng=1
        )
