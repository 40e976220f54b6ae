"""The training simulator: against a plain transcription of the algorithm, and its contract."""

import numpy as np
import pytest
from enumeration import NAMED, POLICIES, case

import grpo_theory as gt
from grpo_theory.schedule import step_sizes
from grpo_theory.simulate import ascent as ascent_module
from grpo_theory.simulate import trainer
from grpo_theory.simulate.streams import as_seed_sequence, block_generator
from grpo_theory.simulate.training import BLOCK_RUNS, CHUNK_UNIFORMS


def draw(bandit, policy, theta, prompt_row, response_rows, kl):
    """Draw prompts (B,), responses and rewards (B, G) from uniforms: by the alias table's inverse, and by inversion."""
    from grpo_theory.simulate.alias import alias_table

    threshold, choices = alias_table(bandit.prompt_weights[None])
    pi = policy.probabilities(theta)
    penalty = np.zeros_like(pi) if kl is None else kl.penalty(pi)
    prompts, responses, rewards = [], [], []
    for x, row in zip(prompt_row * bandit.n_prompts, response_rows, strict=True):
        j = int(x)
        m = choices[0, 2 * j + int(x - j >= threshold[0, j])]
        cumulative = np.cumsum(pi[m])
        k = np.minimum(np.searchsorted(cumulative, row, side="right"), len(pi[m]) - 1)
        rest = (row - (cumulative[k] - pi[m][k])) / pi[m][k]
        law = np.cumsum(bandit.probabilities[m], axis=1)[k]
        value = np.minimum((rest[:, None] >= law).sum(axis=1), bandit.values.size - 1)
        prompts.append(m)
        responses.append(k)
        rewards.append(bandit.values[value] - penalty[m, k])
    return np.array(prompts), np.array(responses), np.array(rewards)


def transcription(bandit, policy, theta, estimator, steps, uniforms, kl):
    """Algorithm 1 in plain Python with dense scores."""
    found = gt.estimators()[estimator]
    theta = theta.copy()
    for eta, prompt_row, response_rows in zip(steps, *uniforms, strict=False):
        exact, scores = gt.moments(bandit, policy, theta, kl), policy.scores(theta)
        prompts, responses, rewards = draw(bandit, policy, theta, prompt_row, response_rows, kl)
        norms = (scores[prompts[:, None], responses] ** 2).sum(axis=-1)
        oracle = (field[prompts] for field in (exact.value, exact.standard_deviation, exact.optimal_baseline))
        advantages = np.empty(rewards.shape)
        batch = gt.Batch(rewards, norms, np.ones(rewards.shape, dtype=np.int64), *oracle, found.parameter_array)
        found.function(batch, advantages)
        theta = theta + eta * np.mean(advantages[..., None] * scores[prompts[:, None], responses], axis=(0, 1))
    return theta


@pytest.mark.parametrize("estimator", NAMED)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("penalty", ["plain", "kl"])
def test_iterates_are_those_of_the_algorithm(estimator, policy, penalty):
    bandit, chosen, theta, _, kl = case(policy, "graded", penalty)
    b, g, n = 2, 3, 25
    training = gt.simulate_training(
        bandit, chosen, theta, estimator, gt.Power(0.8, 0.6), batch_size=b, group_size=g, steps=n, replications=3, rng=4, kl=kl
    )
    generator = block_generator(as_seed_sequence(4), 0)
    chunk = CHUNK_UNIFORMS // (BLOCK_RUNS * b * (1 + g))
    uniforms = generator.random((BLOCK_RUNS, chunk, b)), generator.random((BLOCK_RUNS, chunk, b, g))
    steps = gt.Power(0.8, 0.6).steps(n)
    for run in range(3):
        expected = transcription(bandit, chosen, theta, estimator, steps, [array[run] for array in uniforms], kl)
        np.testing.assert_allclose(training.theta[run], expected, atol=1e-10)
    assert np.linalg.norm(training.theta[0] - training.theta[1]) > 1e-3


def small(**changes):
    problem = gt.gallery.training_problem("conflict")
    options = {"batch_size": 2, "group_size": 4, "steps": 300, "replications": 150, "rng": 9} | changes
    estimator, schedule = options.pop("estimator", "rloo"), options.pop("schedule", gt.Harmonic(5.0, 10))
    theta0 = options.pop("theta0", problem.theta)
    return gt.simulate_training(problem.bandit, problem.policy, theta0, estimator, schedule, **options)


def test_workers_checkpoints_and_number_of_runs_change_no_bit():
    one = small(workers=1, checkpoints=[300])
    for other in (small(workers=2, checkpoints=[300]), small(workers=5, checkpoints=[0, 1, 7, 123, 299, 300])):
        np.testing.assert_array_equal(one.theta, other.theta)
        np.testing.assert_array_equal(one.average, other.average)
        np.testing.assert_array_equal(one.objectives[:, -1], other.objectives[:, -1])
    np.testing.assert_array_equal(one.theta[:70], small(replications=70).theta)


def test_a_longer_run_begins_with_the_shorter():
    long = small(steps=900, checkpoints=[300, 900])
    np.testing.assert_array_equal(long.objectives[:, 0], small().objectives[:, 0])


def test_checkpoints_average_and_farthest():
    training = small(steps=40, replications=5, checkpoints=list(range(41)))
    problem = gt.gallery.training_problem("conflict")
    path = np.stack([small(steps=n, replications=5, schedule=gt.Harmonic(5.0, 10).steps(n)).theta for n in range(1, 41)])
    np.testing.assert_allclose(training.average, path.mean(axis=0), atol=1e-13)
    np.testing.assert_allclose(training.farthest, np.linalg.norm(path - problem.theta, axis=2).max(axis=0), rtol=1e-13)
    expected = gt.objective(problem.bandit, problem.policy, path)
    np.testing.assert_allclose(training.objectives[:, 1:].T, expected, atol=1e-14)
    assert training.objectives[0, 0] == pytest.approx(float(gt.objective(problem.bandit, problem.policy, problem.theta)))


def test_a_ball_holds_the_iterates():
    centre = np.array([0.1, -0.2])
    training = small(schedule=gt.Constant(5.0), ball=gt.Ball(centre, 0.5), theta0=centre)
    assert training.farthest.max() == pytest.approx(0.5)
    assert small(schedule=gt.Constant(5.0), theta0=centre).farthest.max() > 0.6


def test_a_start_outside_the_ball_is_kept_and_the_next_iterate_is_on_its_surface():
    ball = gt.Ball(np.zeros(2), 0.5)
    training = small(theta0=np.array([3.0, 4.0]), steps=1, schedule=gt.Constant(1e-6), ball=ball, checkpoints=[0, 1])
    problem = gt.gallery.training_problem("conflict")
    start = gt.objective(problem.bandit, problem.policy, np.array([3.0, 4.0]))
    np.testing.assert_allclose(training.objectives[:, 0], start, rtol=1e-14)
    np.testing.assert_allclose(training.theta, np.tile([0.3, 0.4], (150, 1)), atol=1e-5)


def test_each_run_may_have_its_own_start():
    starts = np.random.default_rng(0).normal(size=(150, 2))
    training = small(theta0=starts, steps=5)
    np.testing.assert_array_equal(training.theta[3], small(theta0=np.tile(starts[3], (150, 1)), steps=5).theta[3])
    with pytest.raises(ValueError, match=r"theta0 must have shape \(150, 2\)"):
        small(theta0=starts[:10])


def test_divergence_is_counted_and_kept():
    @gt.estimator("explosive_for_one_test")
    def explosive(batch, advantages):
        for b in range(batch.rewards.shape[0]):
            for g in range(batch.rewards.shape[1]):
                advantages[b, g] = np.inf if batch.rewards[b].min() == 1.0 else batch.rewards[b, g]

    training = small(estimator="explosive_for_one_test", steps=30, group_size=6)
    share = training.diverged.mean()
    assert 0.0 < share < 1.0
    assert len(training.objectives) == 150
    np.testing.assert_array_equal(np.isnan(training.objectives[:, 0]), training.diverged)


def test_compiled_driver_agrees_with_its_python_source(monkeypatch):
    compiled = small(replications=2, steps=6)
    monkeypatch.setattr("grpo_theory.simulate.training.compiled_advance", lambda: trainer.advance)
    for stage in ("draw_prompts", "fill_policies", "draw_responses", "fill_covectors", "project", "follow"):
        monkeypatch.setattr(trainer, stage, getattr(trainer, stage).py_func)
    monkeypatch.setattr("grpo_theory.simulate.training.first_class", lambda kernel, signature: kernel.py_func)
    monkeypatch.setattr(
        "grpo_theory.simulate.training.ascent",
        lambda policy: ascent_module.Ascent(ascent_module._dense_logits, ascent_module._dense_step, policy.features),
    )
    np.testing.assert_allclose(small(replications=2, steps=6).theta, compiled.theta, atol=1e-13)


@pytest.mark.parametrize("policy", POLICIES)
def test_logits_and_steps_are_those_of_the_policy(policy):
    """Two runs, two prompts each, the second run's the same one twice."""
    _, chosen, theta, features, _ = case(policy)
    found = ascent_module.ascent(chosen)
    rng = np.random.default_rng(6)
    thetas, prompts, covectors = np.stack([theta, -theta]), np.array([1, 0, 1, 1]), rng.normal(size=(chosen.n_responses, 4))
    logits, moved = np.empty(covectors.shape), thetas.copy()
    found.fill_logits(thetas, prompts, found.array, logits)
    found.take_step(moved, prompts, found.array, covectors, 0.3)
    expected = thetas.copy()
    for i, (run, prompt) in enumerate(zip((0, 0, 1, 1), prompts, strict=True)):
        np.testing.assert_allclose(logits[:, i], features[prompt] @ thetas[run], atol=1e-14)
        expected[run] += 0.3 * features[prompt].T @ covectors[:, i]
    np.testing.assert_allclose(moved, expected, atol=1e-14)


@pytest.mark.parametrize("coupled", [True, False])
def test_a_kernel_that_couples_groups_sees_one_batch_of_one_run(registry, coupled):
    """Declared, a run is the same among 70 as alone; undeclared, groups of other runs are in the mean: the test has power."""

    def batch_mean(batch, advantages):
        mean = batch.rewards.mean()
        for b in range(batch.rewards.shape[0]):
            for g in range(batch.rewards.shape[1]):
                advantages[b, g] = batch.rewards[b, g] - mean

    found = gt.estimator("batch_mean_of_a_run", couples_groups=coupled)(batch_mean)
    alone, among = (small(estimator=found, replications=n, steps=20).theta[0] for n in (1, 70))
    assert np.array_equal(alone, among) is coupled


def test_runs_advance_a_few_at_a_time_and_nothing_depends_on_how_many(monkeypatch):
    together = small(steps=30)
    monkeypatch.setattr("grpo_theory.simulate.training.SIDE_BY_SIDE", 5 * 2 * (4 + 3))
    apart = small(steps=30)
    for name in ("theta", "average", "farthest", "objectives"):
        np.testing.assert_array_equal(getattr(apart, name), getattr(together, name))


def test_schedules():
    np.testing.assert_array_equal(gt.Constant(0.5).steps(3), [0.5, 0.5, 0.5])
    np.testing.assert_allclose(gt.Harmonic(2.0).steps(3), [2.0, 1.0, 2.0 / 3.0])
    np.testing.assert_allclose(gt.Harmonic(2.0, 8).steps(2), [2.0 / 9.0, 0.2])
    np.testing.assert_allclose(gt.Power(1.0, 0.5).steps(4), [1.0, 2**-0.5, 3**-0.5, 0.5])
    np.testing.assert_array_equal(step_sizes([0.1, 0.2], 2), [0.1, 0.2])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: gt.Constant(0.0), ValueError, "step must be finite and above 0, got 0"),
        (lambda: gt.Harmonic(-1.0), ValueError, "scale must be finite and above 0, got -1"),
        (lambda: gt.Harmonic(1.0, -1), ValueError, "offset must be at least 0, got -1"),
        (lambda: gt.Power(1.0, 1.5), ValueError, r"exponent must lie in \(0, 1\], got 1.5"),
        (lambda: small(schedule=np.linspace(1.0, 0.0, 300)), ValueError, "schedule must have steps above 0, got 0 at step 300"),
        (lambda: small(schedule=[0.1, 0.2]), ValueError, r"schedule must have shape \(300,\)"),
        (lambda: small(checkpoints=[5, 3]), ValueError, "checkpoints must rise and end at most at steps = 300"),
        (lambda: small(checkpoints=[301]), ValueError, "checkpoints must rise and end at most at steps = 300"),
        (lambda: small(steps=0), ValueError, "steps must be at least 1, got 0"),
        (lambda: small(group_size=1), ValueError, "group_size must be at least 2 for estimator 'rloo', got 1"),
        (lambda: small(checkpoints=5), TypeError, "checkpoints must be a sequence of integers, got 5"),
        (lambda: small(theta0=[0.0]), ValueError, r"theta0 must have shape \(2,\) = \(d,\), the policy's parameters, got \(1,\)"),
        (lambda: small(theta0=0.0), ValueError, r"theta0 must have 1 dimensions, got shape \(\)"),
        (lambda: small(kl=0.1), TypeError, "kl must be a KL"),
        (lambda: small(ball=([0.0, 0.0], 1.0)), TypeError, "ball must be a Ball"),
        (lambda: small(ball=gt.Ball([0.0], 1.0)), ValueError, r"centre must have shape \(2,\)"),
        (lambda: gt.Ball([0.0], 0.0), ValueError, "radius must be finite and above 0"),
    ],
)
def test_bad_input(make, error, message):
    with pytest.raises(error, match=message):
        make()
