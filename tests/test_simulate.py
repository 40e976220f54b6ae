"""Monte Carlo against exact values: z-tests at |z| < 4.9, each with its power and a negative control.

A standard normal exceeds 4.9 with probability 1e-6, so a right prediction fails once in a million. A prediction that is wrong by
9.8 standard errors passes once in a million. Each test asserts that these are a small part of the number predicted.
"""

import json

import numpy as np
import pytest
from enumeration import NAMED, case, coupled_mse

import grpo_theory as gt

Z = 4.9
SIZES = {"batch_size": 4, "group_size": 4}
PROBLEMS = ("tabular", "linear", "graded", "sequence-shared")


def near(estimate, standard_error, prediction):
    return np.abs(np.asarray(estimate) - prediction) < Z * np.asarray(standard_error)


@pytest.fixture(scope="module", params=PROBLEMS)
def run(request):
    problem = gt.gallery.problem(request.param)
    arguments = problem, problem.theta
    directions = np.random.default_rng(1).normal(size=(2, problem.policy.dimension))
    seed = 20 + 1_000_003 * request.config.getoption("--vary-seed")
    simulation = gt.simulate_gradients(*arguments, NAMED, **SIZES, replications=200_000, rng=seed, directions=directions)
    laws = {name: gt.gradient_law(*arguments, name, **SIZES) for name in NAMED}
    return simulation, laws, directions


@pytest.mark.parametrize("name", NAMED)
def test_mse(run, name):
    simulation, laws, _ = run
    i = simulation.index(name)
    assert near(simulation.mse[i], simulation.mse_standard_error[i], laws[name].mse)
    assert 2 * Z * simulation.mse_standard_error[i] < 0.04 * laws[name].mse


@pytest.mark.parametrize("name", NAMED)
def test_prompt_mse(run, name):
    simulation, laws, _ = run
    i = simulation.index(name)
    assert near(simulation.prompt_mse[i], simulation.prompt_mse_standard_error[i], laws[name].prompt_mse)
    assert 2 * Z * simulation.prompt_mse_standard_error[i] < 0.03 * laws[name].prompt_mse


@pytest.mark.parametrize("name", NAMED)
def test_means_along_directions(run, name):
    simulation, laws, directions = run
    i = simulation.index(name)
    assert near(simulation.along[i], simulation.along_standard_error[i], directions @ laws[name].mean).all()
    assert (2 * Z * simulation.along_standard_error[i] < 0.03 * np.sqrt(laws[name].variance_along(directions))).all()


@pytest.mark.parametrize("name", NAMED)
def test_covariance_along_directions(run, name):
    """A variance's relative standard error is sqrt((kurtosis - 1) / n), 0.5% at a kurtosis of 6."""
    simulation, laws, directions = run
    found = simulation.along_covariance[simulation.index(name)]
    exact = directions @ laws[name].covariance() @ directions.T
    scale = np.sqrt(np.outer(np.diag(exact), np.diag(exact)))
    assert (np.abs(found - exact) < Z * 0.005 * scale).all()


@pytest.mark.parametrize("pair", [("reinforce", "oracle"), ("rloo", "oracle"), ("dr_grpo", "rloo"), ("optimal_loo", "rloo")])
def test_paired_differences(run, pair):
    simulation, laws, _ = run
    first, second = pair
    i, j = map(simulation.index, pair)
    for found, single, attribute in (
        (simulation.mse_difference(*pair), simulation.mse_standard_error, "mse"),
        (simulation.prompt_mse_difference(*pair), simulation.prompt_mse_standard_error, "prompt_mse"),
    ):
        assert near(*found, getattr(laws[first], attribute) - getattr(laws[second], attribute))
        assert 0.0 < found[1] < np.hypot(single[i], single[j])


def test_the_tests_above_reject_wrong_predictions(run):
    """The oracle's value for rloo at G = 4, the own mean's, and the mean of one for the other."""
    simulation, laws, directions = run
    i = simulation.index("rloo")
    for wrong in ("oracle", "dr_grpo", "reinforce"):
        assert not near(simulation.prompt_mse[i], simulation.prompt_mse_standard_error[i], laws[wrong].prompt_mse)
    assert not near(*simulation.prompt_mse_difference("rloo", "oracle"), 0.0)
    assert not near(simulation.along[i], simulation.along_standard_error[i], directions @ laws["reinforce"].mean * 0.5).all()
    assert not near(simulation.mse[i], simulation.mse_standard_error[i], 1.05 * laws["rloo"].mse)


def test_standard_errors_are_those_of_the_replications(seed):
    """Runs of one seed each: the spread of their means is the standard error that they state, within 4.9 of its own error."""
    problem = gt.gallery.problem("linear")
    arguments = problem, problem.theta
    runs = [gt.simulate_gradients(*arguments, "rloo", **SIZES, replications=200, rng=seed(i), workers=1) for i in range(400)]
    spread = np.std([run.mse[0] for run in runs], ddof=1)
    stated = np.sqrt(np.mean([run.mse_standard_error[0] ** 2 for run in runs]))
    assert abs(spread / stated - 1.0) < Z / np.sqrt(2 * 399)
    assert Z / np.sqrt(2 * 399) < 0.18


def test_kl_and_the_head(seed):
    c = case("head", "graded", "kl")
    run = gt.simulate_gradients(c.problem, c.theta, NAMED, **SIZES, replications=100_000, rng=seed(3))
    for i, name in enumerate(NAMED):
        exact = gt.gradient_law(c.problem, c.theta, name, **SIZES)
        assert near(run.mse[i], run.mse_standard_error[i], exact.mse)
        assert near(run.prompt_mse[i], run.prompt_mse_standard_error[i], exact.prompt_mse)
    plain = gt.gradient_law(c.replace(kl=None).problem, c.theta, "rloo", **SIZES)
    i = run.index("rloo")
    assert not near(run.prompt_mse[i], run.prompt_mse_standard_error[i], plain.prompt_mse)


COMPOSITIONS = {
    "token": {"ratio": "token", "clip": "by sign", "aggregation": "own length"},
    "trajectory": {"ratio": "trajectory", "clip": "upper only", "aggregation": "constant", "kl": "k3 in loss"},
    "geometric": {"ratio": "geometric", "clip": "two-sided", "aggregation": "group tokens", "kl": "k2 in reward"},
}


def test_compositions_off_policy(registry, seed):
    """Of sequences drawn by another policy: exact laws with ratio, clip, aggregation and KL term, and what each would hide."""
    problem = gt.gallery.problem("kl-sequence")
    theta, behaviour = np.array([0.6, -0.4]), np.array([-0.3, 0.5])
    made = [gt.compose(f"{name}_for_one_test", advantage="rloo", **parts) for name, parts in COMPOSITIONS.items()]
    sizes = {**SIZES, "behaviour": behaviour}
    directions = np.eye(2)
    run = gt.simulate_gradients(
        problem, theta, [*made, "rloo"], **sizes, replications=200_000, rng=seed(6), directions=directions
    )
    laws = [gt.gradient_law(problem, theta, one, **sizes) for one in (*made, "rloo")]
    for i, exact in enumerate(laws):
        assert near(run.mse[i], run.mse_standard_error[i], exact.mse)
        assert near(run.prompt_mse[i], run.prompt_mse_standard_error[i], exact.prompt_mse)
        assert near(run.along[i], run.along_standard_error[i], exact.mean).all()
        variances = np.diag(run.along_covariance[i])
        np.testing.assert_allclose(variances, np.diag(exact.covariance()), rtol=Z * 0.005)
        for j, other in enumerate(laws):
            assert i == j or not near(run.along[i], run.along_standard_error[i], other.mean).all()
    on_policy = gt.gradient_law(problem, theta, "rloo", **SIZES)
    assert not near(run.along[-1], run.along_standard_error[-1], on_policy.mean).all()


def test_one_response_a_group(seed):
    c = case("tabular", "binary")
    sizes = {"batch_size": 1, "group_size": 1}
    run = gt.simulate_gradients(c.problem, c.theta, ["reinforce", "dr_grpo"], **sizes, replications=50_000, rng=seed(4))
    exact = gt.gradient_mse(c.problem, c.theta, "reinforce", **sizes)
    assert near(run.mse[0], run.mse_standard_error[0], exact)
    gradient = gt.moments(c.problem, c.theta).gradient
    assert run.mse[1] == pytest.approx(gradient @ gradient, rel=1e-12)
    assert run.mse_standard_error[1] < 1e-15


def test_a_kernel_that_couples_groups_is_simulated(registry, seed):
    @gt.estimator("batch_mean", couples_groups=True)
    def batch_mean(batch, advantages):
        mean = batch.rewards.mean()
        for b in range(batch.rewards.shape[0]):
            for g in range(batch.rewards.shape[1]):
                advantages[b, g] = batch.rewards[b, g] - mean

    bandit = gt.Bandit([[0.1, 0.8], [0.9, 0.4]], [0.6, 0.4])
    c = case("linear", "graded").replace(bandit=bandit)
    exact = coupled_mse(c, batch_mean, 2, 2)
    sizes = {"batch_size": 2, "group_size": 2}
    run = gt.simulate_gradients(c.problem, c.theta, ["batch_mean", "rloo"], **sizes, replications=200_000, rng=seed(5))
    assert near(run.mse[0], run.mse_standard_error[0], exact)
    assert not near(run.mse[1], run.mse_standard_error[1], exact)
    with pytest.raises(gt.NotEnumerableError, match="estimator 'batch_mean' couples groups: use simulate_gradients"):
        gt.gradient_mse(c.problem, c.theta, "batch_mean", **sizes)


def test_merged_moments_are_those_of_all_the_observations():
    observations = np.random.default_rng(2).normal([3.0, -2.0, 5.0, 1.0, 0.0, 9.0], size=(2, 50, 6))
    observations[:, 20:] += 5.0
    names = ["rloo", "oracle"]
    merged = gt.GradientSimulation.of(names, observations[:, :20], 4.0)
    for part in (slice(20, 21), slice(21, 50)):
        merged = merged.merge(gt.GradientSimulation.of(names, observations[:, part], 4.0))
    np.testing.assert_allclose(merged.means, observations.mean(axis=1), rtol=1e-13)
    for j, found in enumerate((merged.mse_standard_error, merged.prompt_mse_standard_error)):
        np.testing.assert_allclose(found, observations[:, :, j].std(axis=1, ddof=1) / np.sqrt(50), rtol=1e-13)
    np.testing.assert_allclose(merged.along_covariance, [np.cov(one[:, 4:].T) for one in observations], rtol=1e-12)
    differences = observations[0] - observations[1]
    for j, found in enumerate((merged.mse_difference(*names), merged.prompt_mse_difference(*names))):
        expected = differences[:, j].mean(), differences[:, j].std(ddof=1) / np.sqrt(50)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def simulate(**changes):
    c = case()
    arguments = {"estimators": "rloo", **SIZES, "replications": 10, "rng": 0, **changes}
    return gt.simulate_gradients(c.problem, c.theta, arguments.pop("estimators"), **arguments)


def test_state_survives_json_to_the_bit():
    for directions in (None, np.ones((2, 6))):
        run = simulate(estimators=["rloo", "oracle"], replications=100, directions=directions)
        back = gt.GradientSimulation.from_dict(json.loads(json.dumps(run.to_dict())))
        assert back.to_dict() == run.to_dict()
        assert back.along_scatter.shape == run.along_scatter.shape
        assert np.array_equal(back.mse_standard_error, run.mse_standard_error)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"replications": 0}, ValueError, r"replications must be at least 1, got 0"),
        ({"replications": 1e3}, TypeError, r"replications must be an integer of at least 1, got 1000\.0"),
        ({"batch_size": 0}, ValueError, r"batch_size must be at least 1, got 0"),
        ({"group_size": -3}, ValueError, r"group_size must be at least 1, got -3"),
        ({"group_size": 1}, ValueError, r"group_size must be at least 2 for estimator 'rloo', got 1"),
        ({"workers": 0}, ValueError, r"workers must be at least 1, got 0"),
        ({"first_block": -1}, ValueError, r"first_block must be at least 0, got -1"),
        ({"estimators": []}, ValueError, r"estimators must name at least one estimator, got none"),
        ({"estimators": ["rloo", "orcale"]}, ValueError, r"got 'orcale'; did you mean 'oracle'\?"),
        ({"estimators": 5}, TypeError, r"estimators? must be .*, got 5"),
        ({"directions": np.ones(6)}, ValueError, r"directions must have 2 dimensions, got shape \(6,\)"),
        ({"directions": np.ones((1, 5))}, ValueError, r"directions must have shape \(1, 6\) = \(J, d\), got \(1, 5\)"),
        (
            {"behaviour": np.ones(5)},
            ValueError,
            r"behaviour must have shape \(6,\) = \(d,\), the policy's parameters, got \(5,\)",
        ),
        ({"directions": [[np.nan] * 6]}, ValueError, r"directions must be finite, got nan at index \(0, 0\)"),
    ],
)
def test_arguments_are_checked(changes, error, message):
    with pytest.raises(error, match=message):
        simulate(**changes)


def test_two_settings_of_one_estimator_are_told_apart_and_one_named_twice_is_refused():
    wide = gt.estimators()["grpo"].with_parameters(epsilon=1.0)
    run = simulate(estimators=["grpo", wide])
    assert run.estimators == ("grpo", "grpo(epsilon=1.0)")
    assert run.mse_difference("grpo", "grpo(epsilon=1.0)")[0] != 0.0
    with pytest.raises(ValueError, match="estimators must name each estimator once, got grpo, grpo"):
        simulate(estimators=["grpo", "grpo"])


def test_summaries_name_what_they_lack():
    run = simulate(replications=1)
    with pytest.raises(ValueError, match="replications must be at least 2 for a standard error, got 1"):
        _ = run.mse_standard_error
    with pytest.raises(ValueError, match="estimator must be one of rloo, got 'oracle'"):
        run.mse_difference("rloo", "oracle")
    with pytest.raises(ValueError, match="only runs of the same estimators merge"):
        run.merge(simulate(estimators="oracle"))


def test_a_kernel_that_leaves_nan_is_caught(registry):
    @gt.estimator("forgets_the_last")
    def forgets_the_last(batch, advantages):
        for b in range(batch.rewards.shape[0]):
            for g in range(batch.rewards.shape[1] - 1):
                advantages[b, g] = batch.rewards[b, g]

    message = r"the kernel of estimator 'forgets_the_last' must fill finite advantages, and does not for a batch of 4 x 4 resp"
    for workers in (1, 2):
        with pytest.raises(ValueError, match=message):
            simulate(estimators=["rloo", "forgets_the_last"], workers=workers, replications=20_000)


def test_a_kernel_that_writes_on_the_rewards_spoils_nothing_for_the_others(registry):
    @gt.estimator("centres_in_place")
    def centres_in_place(batch, advantages):
        for b in range(batch.rewards.shape[0]):
            mean = batch.rewards[b].mean()
            for g in range(batch.rewards.shape[1]):
                batch.rewards[b, g] -= mean
                advantages[b, g] = batch.rewards[b, g]

    alone = simulate(estimators="reinforce", replications=1000).mse[0]
    try:
        together = simulate(estimators=["centres_in_place", "reinforce"], replications=1000).mse[1]
    except TypeError:  # refusing such a kernel is as good
        together = alone
    assert together == alone
