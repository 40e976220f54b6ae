"""The training simulator: against a plain transcription of the algorithm, and its contract."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from compiled_stages import compiled
from dense import TREES, Dense, token_case
from enumeration import NAMED, POLICIES, Case
from networks import network_case
from numba.core.dispatcher import Dispatcher
from streams_by_numpy import uniforms_of_runs

import grpo_theory as gt
from grpo_theory.compiler import FunctionValue
from grpo_theory.compiler.lanes import PICKED, WIDTH
from grpo_theory.exact import score_moments
from grpo_theory.schedule import step_sizes
from grpo_theory.simulate import training as training_module
from grpo_theory.simulate import training_blocks
from grpo_theory.simulate.advantage import affine, kernel_call, learned_norms, rewards, rollout, tables
from grpo_theory.simulate.covector import ratios
from grpo_theory.simulate.draw import elementary, network_rows, policy_draw, prompt_tables
from grpo_theory.simulate.draw import streams as random_streams
from grpo_theory.simulate.draw.policy_draw import CHUNK_WORDS
from grpo_theory.simulate.draw.prompt_tables import alias_rows
from grpo_theory.simulate.training_blocks import BLOCK_RUNS, TrainingBlocks
from grpo_theory.simulate.training_tables import make_advantage_rule
from grpo_theory.simulate.update import advance, ascent, iterates, two_layer
from grpo_theory.simulate.update import optimiser as optimisers
from grpo_theory.simulate.update import trace as traces


def ascend(theta, step, estimate):
    return theta + step * estimate


def transcription(dense, theta, estimator, steps, uniforms, inner_steps=1, move=ascend, lag=0):
    """Algorithm 1 in plain Python with dense scores: rollouts of B prompts, and the updates that each serves.

    Rollout i is drawn from the iterate before rollout i - lag, or from the start. Returns the iterates, the mean rewards of the
    rollouts, and how often a clip changed a token's weight, by the sign of the advantage.
    """
    table = alias_rows(dense.bandit.prompt_weights)
    path, rewards, clipped = [theta], [], np.zeros(2, dtype=int)
    for i, rows in enumerate(uniforms):
        then = dense.at(path[max(0, i - lag) * inner_steps])
        prompts, outcomes = dense.draw(then, table, rows)
        advantages = dense.advantages(then, estimator, prompts, outcomes)
        rewards.append(dense.seen(then, estimator).rewards[prompts[:, None], outcomes].mean())
        size = len(prompts) // inner_steps
        for j in range(inner_steps):
            own = slice(j * size, (j + 1) * size)
            now = dense.at(path[-1])
            sample = prompts[own], outcomes[own], advantages[own]
            clipped += dense.clipped(now, then, estimator, *sample)
            estimate = dense.estimates(now, then, estimator, *sample).mean(axis=0)
            path.append(move(path[-1], steps[i * inner_steps + j], estimate))
    return SimpleNamespace(path=np.array(path), mean_rewards=np.array(rewards), clipped=clipped)


@pytest.mark.parametrize("estimator", NAMED)
@pytest.mark.parametrize("policy", [*POLICIES, *TREES])
@pytest.mark.parametrize("penalty", ["plain", "kl"])
def test_iterates_are_those_of_the_algorithm(estimator, policy, penalty):
    c = token_case(policy, penalty)
    b, g, n = 2, 3, 25
    options = {"batch_size": b, "group_size": g, "steps": n, "replications": 3, "rng": 4}
    training = gt.simulate_training(c.problem, c.theta, estimator, gt.Power(0.8, 0.6), **options)
    uniforms, steps = uniforms_of_runs(4, b, g, n), gt.Power(0.8, 0.6).steps(n)
    for run in range(3):
        expected = transcription(Dense(c), c.theta, gt.estimators()[estimator], steps, uniforms[run]).path[-1]
        np.testing.assert_allclose(training.theta[run], expected, atol=1e-10)
    assert np.linalg.norm(training.theta[0] - training.theta[1]) > 1e-3


COMPOSITIONS = [
    {"ratio": "token", "clip": "by sign", "aggregation": "own length"},
    {"ratio": "trajectory", "clip": "by sign", "aggregation": "batch tokens", "kl": "k3 in loss"},
    {"ratio": "geometric", "clip": "by sign", "aggregation": "own length", "kl": "k2 in reward"},
    {"ratio": "token", "clip": "by sign", "aggregation": "batch tokens", "kl": "k2 in reward", "advantage": "optimal_loo"},
    {"ratio": "token", "clip": "cap", "aggregation": "group tokens", "kl": "k2 in loss", "advantage": "grpo"},
    {"ratio": "trajectory", "clip": "upper only", "aggregation": "constant", "advantage": "oracle"},
    {"ratio": "geometric", "clip": "two-sided", "aggregation": "own length", "kl": "k3 in reward", "advantage": "optimal"},
    {"ratio": "none", "aggregation": "batch tokens", "kl": "k3 in loss"},
    {"ratio": "none", "aggregation": "group tokens", "kl": "k1 in loss"},
]
IDS = [", ".join(parts.values()) for parts in COMPOSITIONS]


def composed(parts):
    """Compose an estimator; its clip is narrow, so that both sides of it are met."""
    parts = {"advantage": "rloo", "clip": "none"} | parts
    clip = gt.estimation.CLIPS[parts.pop("clip")].with_widths(0.02, 0.03)
    return gt.compose("composed_for_one_test", clip=clip, **parts)


@pytest.mark.parametrize("policy", ["linear", "tree", "linear tree", "head tree"])
@pytest.mark.parametrize("inner_steps", [1, 2, 4])
@pytest.mark.parametrize("parts", COMPOSITIONS, ids=IDS)
def test_iterates_of_compositions_are_those_of_the_algorithm(parts, inner_steps, policy, registry):
    c, found = token_case(policy, "kl"), composed(parts)
    b, g, n = 4, 3, 24
    options = {"batch_size": b, "group_size": g, "steps": n, "replications": 3, "rng": 5, "inner_steps": inner_steps}
    training = gt.simulate_training(c.problem, c.theta, found, gt.Power(0.8, 0.3), **options)
    uniforms, steps = uniforms_of_runs(5, b, g, n // inner_steps), gt.Power(0.8, 0.3).steps(n)
    clipped = 0
    for run in range(3):
        expected = transcription(Dense(c), c.theta, found, steps, uniforms[run], inner_steps)
        np.testing.assert_allclose(training.theta[run], expected.path[-1], atol=1e-10)
        np.testing.assert_allclose(training.average[run], expected.path[1:].mean(axis=0), atol=1e-10)
        clipped = clipped + expected.clipped
    if inner_steps == 1 or found.ratio.name == "none":
        assert (clipped == 0).all()
    else:
        assert (clipped > 0).all(), "tokens with positive and with negative advantages are clipped"


def test_inner_steps_are_told_from_their_neighbours(registry):
    """Power of the test above: what a rollout serves, at whose ratios, and which groups belong to which update, all matter."""
    c, found = token_case("linear tree", "kl"), composed(COMPOSITIONS[1])
    b, g, n = 4, 3, 24
    options = {"batch_size": b, "group_size": g, "steps": n, "replications": 1, "rng": 5, "inner_steps": 2}
    theta = gt.simulate_training(c.problem, c.theta, found, gt.Power(0.8, 0.3), **options).theta[0]
    uniforms, steps = uniforms_of_runs(5, b, g, n // 2)[0], gt.Power(0.8, 0.3).steps(n)
    without = gt.compose("without_ratio", advantage="rloo", aggregation="batch tokens", kl="k3 in loss")
    wrong = [
        transcription(Dense(c), c.theta, without, steps, uniforms, 2),
        transcription(Dense(c), c.theta, found, steps, uniforms[:, :, [0, 2, 1, 3]], 2),
        transcription(Dense(c), c.theta, found, steps, uniforms[:, :, [2, 3, 0, 1]], 2),
    ]
    for other in wrong:
        assert np.abs(other.path[-1] - theta).max() > 1e-3


def small(**changes):
    problem = gt.gallery.problem(changes.pop("problem", "conflict"))
    options = {"batch_size": 2, "group_size": 4, "steps": 300, "replications": 150, "rng": 9} | changes
    estimator, schedule = options.pop("estimator", "rloo"), options.pop("schedule", gt.Harmonic(5.0, 10))
    theta0 = options.pop("theta0", problem.theta)
    return gt.simulate_training(problem, theta0, estimator, schedule, **options)


SETTINGS = {
    "one update": {},
    "inner steps": {"inner_steps": 2, "estimator": "dapo"},
    "sequences": {"problem": "kl-sequence", "inner_steps": 2, "estimator": "gspo"},
    "lag": {"lag": 3, "estimator": "cispo"},
}


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_workers_checkpoints_and_number_of_runs_change_no_bit(setting):
    one = small(workers=1, checkpoints=[300], **setting)
    for other in (
        small(workers=2, checkpoints=[300], **setting),
        small(workers=5, checkpoints=[0, 2, 8, 124, 298, 300], **setting),
    ):
        np.testing.assert_array_equal(one.theta, other.theta)
        np.testing.assert_array_equal(one.average, other.average)
        np.testing.assert_array_equal(one.farthest, other.farthest)
        np.testing.assert_array_equal(one.objectives[:, -1], other.objectives[:, -1])
    if "inner_steps" not in setting:
        np.testing.assert_array_equal(one.theta, small(workers=5, checkpoints=[0, 1, 7, 123, 299, 300], **setting).theta)
    for number in (1, 3, 70):
        np.testing.assert_array_equal(one.theta[:number], small(replications=number, **setting).theta)


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_a_longer_run_begins_with_the_shorter(setting):
    long = small(steps=900, checkpoints=[300, 900], **setting)
    np.testing.assert_array_equal(long.objectives[:, 0], small(**setting).objectives[:, 0])


def test_more_words_than_a_chunk_has_are_drawn_chunk_by_chunk():
    """A run of three chunks, against the transcription with words drawn in the order in which a run needs them."""
    c = token_case("linear")
    sizes = {"batch_size": 16, "group_size": 15}
    chunk = CHUNK_WORDS // (BLOCK_RUNS * (16 + 16 * 15 // 2))
    n = 2 * chunk + 5
    training = gt.simulate_training(c.problem, c.theta, "rloo", gt.Constant(0.1), **sizes, steps=n, replications=2, rng=3)
    uniforms = uniforms_of_runs(3, 16, 15, n)
    for run in range(2):
        expected = transcription(Dense(c), c.theta, gt.estimators()["rloo"], np.full(n, 0.1), uniforms[run])
        np.testing.assert_allclose(training.theta[run], expected.path[-1], atol=1e-10)


def short_courses():
    """Problems whose runs go on so many at a time, with an estimator, prompts and updates of a rollout."""
    rng = np.random.default_rng(2)
    head = gt.Problem(gt.Bandit(rng.uniform(0.1, 0.9, (1, 3))), gt.SoftmaxHead(rng.normal(size=(1, 37)), 3))
    named = gt.gallery.problem("kl-tabular"), gt.gallery.problem("kl-sequence"), gt.gallery.problem("linear")
    return [(named[0], "rloo", 1, 1, 128), (named[1], "gspo", 4, 2, 128), (named[2], "rloo", 4, 1, 64), (head, "grpo", 4, 1, 1)]


@pytest.mark.parametrize("course", range(4))
def test_blocks_that_go_on_in_one_call_are_those_that_go_on_alone(course, monkeypatch):
    """Ten blocks, the last of them not whole, through some chunks; in calls that end in the middle of chunks, too."""
    problem, estimator, batch_size, inner_steps, share = short_courses()[course]
    shares, share_runs = [], TrainingBlocks.share_runs.fget
    monkeypatch.setattr(TrainingBlocks, "share_runs", property(lambda own: shares.append(share_runs(own)) or shares[-1]))
    blocks, block_streams = [], training_module.block_streams
    monkeypatch.setattr(training_module, "block_streams", lambda *which: blocks.append(which[1:]) or block_streams(*which))
    sizes = {"batch_size": batch_size, "group_size": 5, "steps": 150, "replications": 9 * BLOCK_RUNS + 30, "rng": 9}

    def train(**how):
        schedule = gt.Constant(0.1)
        return gt.simulate_training(problem, np.zeros(problem.policy.dimension), estimator, schedule, **sizes, **how)

    together = train(inner_steps=inner_steps, workers=1)
    assert blocks == [(first, 2) for first in range(0, 10, 2)]
    alone = [train(inner_steps=inner_steps, workers=2, checkpoints=[74, 150])]
    monkeypatch.setattr(training_blocks, "CALL_WORDS", 1 << 15)
    alone.append(train(inner_steps=inner_steps, workers=1))
    assert sorted(blocks[5:]) == sorted(2 * [(number, 1) for number in range(10)])
    assert set(shares) == {share}
    for other in alone:
        for name in ("theta", "average", "farthest"):
            np.testing.assert_array_equal(getattr(together, name), getattr(other, name))
        for name in ("objectives", "average_objectives"):
            np.testing.assert_array_equal(getattr(together, name)[:, -1], getattr(other, name)[:, -1])
    assert len(np.unique(together.theta[::BLOCK_RUNS, 0])) == 10


def test_blocks_that_go_on_together_go_to_their_end_at_once():
    """The words in the room are the last block's: whoever went on in the middle would get another's."""
    problem = gt.gallery.problem("tabular")
    made = TrainingBlocks.of(problem, gt.estimators()["rloo"], np.ones(20), (1, 2, 1), optimiser=gt.SGD())
    streams = random_streams.block_streams(np.random.SeedSequence(0), 0, 2)
    with made.start(streams, np.tile(problem.theta, (200, 1))) as runs, pytest.raises(ValueError, match="count must be 20"):
        runs.advance(10)


def test_a_second_block_has_uniforms_of_its_own():
    c = token_case("tree")
    sizes, n = {"batch_size": 2, "group_size": 3}, 10
    training = gt.simulate_training(
        c.problem, c.theta, "rloo", gt.Constant(0.5), **sizes, steps=n, replications=BLOCK_RUNS + 2, rng=6
    )
    uniforms = uniforms_of_runs(6, 2, 3, n, block=1)
    for run in range(2):
        expected = transcription(Dense(c), c.theta, gt.estimators()["rloo"], np.full(n, 0.5), uniforms[run])
        np.testing.assert_allclose(training.theta[BLOCK_RUNS + run], expected.path[-1], atol=1e-10)


def test_checkpoints_average_and_farthest():
    training = small(steps=40, replications=5, checkpoints=list(range(41)))
    problem = gt.gallery.problem("conflict")
    path = np.stack([small(steps=n, replications=5, schedule=gt.Harmonic(5.0, 10).steps(n)).theta for n in range(1, 41)])
    np.testing.assert_allclose(training.average, path.mean(axis=0), atol=1e-13)
    np.testing.assert_allclose(training.farthest, np.linalg.norm(path - problem.theta, axis=2).max(axis=0), rtol=1e-13)
    expected = gt.objective(problem, path)
    np.testing.assert_allclose(training.objectives[:, 1:].T, expected, atol=1e-14)
    assert training.objectives[0, 0] == pytest.approx(float(gt.objective(problem, problem.theta)))


def test_a_ball_holds_the_iterates():
    centre = np.array([0.1, -0.2])
    training = small(schedule=gt.Constant(5.0), ball=gt.Ball(centre, 0.5), theta0=centre)
    assert training.farthest.max() == pytest.approx(0.5)
    assert small(schedule=gt.Constant(5.0), theta0=centre).farthest.max() > 0.6


def test_a_ball_holds_every_inner_step(registry):
    """Two updates a rollout: the first, halfway, is projected too, against the transcription."""
    c, found = token_case("linear tree", "kl"), composed(COMPOSITIONS[0])
    ball, options = gt.Ball(c.theta, 0.2), {"batch_size": 4, "group_size": 3, "replications": 1, "rng": 5, "inner_steps": 2}
    training = gt.simulate_training(c.problem, c.theta, found, gt.Constant(1.5), **options, steps=2, ball=ball)
    (rows,) = uniforms_of_runs(5, 4, 3, 1)[0]
    dense = Dense(c)
    then = now = dense.at(c.theta)
    prompts, outcomes = dense.draw(then, alias_rows(c.bandit.prompt_weights), rows)
    advantages = dense.advantages(then, found, prompts, outcomes)
    theta, lengths = c.theta, []
    for own in (slice(0, 2), slice(2, 4)):
        now = dense.at(theta)
        step = 1.5 * dense.estimates(now, then, found, prompts[own], outcomes[own], advantages[own]).mean(axis=0)
        lengths.append(np.linalg.norm(theta + step - c.theta))
        theta = c.theta + (theta + step - c.theta) * min(1.0, 0.2 / lengths[-1])
    assert lengths[0] > 0.2
    np.testing.assert_allclose(training.theta[0], theta, atol=1e-12)
    np.testing.assert_allclose(training.farthest, 0.2, rtol=1e-12)


def test_a_start_outside_the_ball_is_kept_and_the_next_iterate_is_on_its_surface():
    ball = gt.Ball(np.zeros(2), 0.5)
    training = small(theta0=np.array([3.0, 4.0]), steps=1, schedule=gt.Constant(1e-6), ball=ball, checkpoints=[0, 1])
    start = gt.objective(gt.gallery.problem("conflict"), np.array([3.0, 4.0]))
    np.testing.assert_allclose(training.objectives[:, 0], start, rtol=1e-14)
    np.testing.assert_allclose(training.theta, np.tile([0.3, 0.4], (150, 1)), atol=1e-5)


def test_each_run_may_have_its_own_start():
    starts = np.random.default_rng(0).normal(size=(150, 2))
    training = small(theta0=starts, steps=5)
    np.testing.assert_array_equal(training.theta[3], small(theta0=np.tile(starts[3], (150, 1)), steps=5).theta[3])
    with pytest.raises(ValueError, match=r"theta0 must have shape \(150, 2\)"):
        small(theta0=starts[:10])


def test_divergence_is_counted_and_kept():
    """Every second run begins so far out that its logits are infinite, which is no fault of the kernel."""
    problem = gt.gallery.problem("linear")
    starts = np.tile(problem.theta, (150, 1))
    starts[1::2] = 1.7e308 * np.sign(problem.theta)
    sizes = {"batch_size": 2, "group_size": 6, "steps": 5, "replications": 150, "rng": 1}
    for estimator in ("rloo", "grpo", "optimal_loo"):
        with warnings.catch_warnings(action="ignore"):
            training = gt.simulate_training(problem, starts, estimator, gt.Constant(1e-3), **sizes)
        np.testing.assert_array_equal(training.diverged, np.arange(150) % 2 == 1)
        np.testing.assert_array_equal(np.isnan(training.objectives[:, 0]), training.diverged)


@pytest.fixture
def plain(monkeypatch):
    """Training runs as plain Python, its stages included, but for the generator; what is compiled has been compiled before.

    Returns a switch: nothing changes before it is called.
    """
    advance.advance.compile()
    values = [value for module in MODULES for value in vars(module).values() if isinstance(value, FunctionValue)]
    kinds = {id(value.value): value.function for value in values}

    made_by = {
        name: getattr(training_blocks, name)
        for name in ("advantage_functions", "covector_functions", "step_functions", "run_functions")
    }

    def switch():
        for module in MODULES:
            for name, value in vars(module).items():
                if isinstance(value, Dispatcher):
                    draws = value.py_func.__module__ == random_streams.__name__
                    monkeypatch.setattr(module, name, compiled(value) if draws else value.py_func)

        def functions(make):
            """Make functions in plain Python, none where nothing is to be called."""

            def plainly(value, own):
                if isinstance(value, tuple):
                    return type(value)._make(plainly(part, own) for part in value)
                if isinstance(value, np.ndarray):
                    return value
                function = kinds.get(id(value)) or own.get(id(value))
                assert bool(function) == bool(value.address)
                return function

            def made(*arguments, **keywords):
                found = [one for one in arguments if isinstance(one, gt.Estimator)]
                fills = [part.fill for one in found for part in (one.ratio, one.clip, one.kl)]
                return plainly(make(*arguments, **keywords), {id(fill.value): fill.function for fill in fills})

            return made

        def rule(problem, estimator, *arguments, **keywords):
            made = make_advantage_rule(problem, estimator, *arguments, **keywords)
            return made._replace(kernel=estimator.advantage.function)

        for name, make in made_by.items():
            monkeypatch.setattr(training_blocks, name, functions(make))
        monkeypatch.setattr(training_blocks, "make_advantage_rule", rule)
        monkeypatch.setattr(advance.advance, "run", advance.advance.function)

    return switch


MODULES = (
    *(
        advance,
        affine,
        ascent,
        elementary,
        iterates,
        kernel_call,
        learned_norms,
        network_rows,
        optimisers,
        policy_draw,
        prompt_tables,
        ratios,
        rewards,
        rollout,
        two_layer,
    ),
    *(tables, traces, score_moments),
)


@pytest.mark.parametrize("policy", [*POLICIES, *TREES, "network"])
@pytest.mark.parametrize("parts", [{}, *COMPOSITIONS[:5]], ids=["rloo", *IDS[:5]])
def test_compiled_driver_agrees_with_its_python_source(parts, policy, plain, registry):
    c = network_case("tree", "kl") if policy == "network" else token_case(policy, "kl")
    found = composed(parts) if parts else gt.estimators()["rloo"]
    sizes = {"batch_size": 2, "group_size": 4, "replications": 2, "rng": 9, "ball": gt.Ball(c.theta, 0.5)}
    sizes["optimiser"] = gt.Adam() if parts else gt.SGD()
    updates = {"steps": 6, "inner_steps": 2 if parts else 1}
    asked = c.problem, c.theta, found, gt.Constant(1.0)
    compiled = gt.simulate_training(*asked, **sizes, **updates)
    plain()
    again = gt.simulate_training(*asked, **sizes, **updates)
    assert advance.advance.run is advance.advance.function
    for name in ("theta", "average", "farthest"):
        np.testing.assert_allclose(getattr(again, name), getattr(compiled, name), atol=1e-13)


def adam_by_numpy(betas, eps):
    """Algorithm 1 of arXiv 1412.6980, upwards, with its state in a closure."""
    means, squares, count = 0.0, 0.0, 0

    def move(theta, step, estimate):
        nonlocal means, squares, count
        count += 1
        means = betas[0] * means + (1.0 - betas[0]) * estimate
        squares = betas[1] * squares + (1.0 - betas[1]) * estimate**2
        return theta + step * (means / (1.0 - betas[0] ** count)) / (np.sqrt(squares / (1.0 - betas[1] ** count)) + eps)

    return move


@pytest.mark.parametrize("inner_steps", [1, 2])
@pytest.mark.parametrize("policy", [*POLICIES, *TREES])
@pytest.mark.parametrize("adam", [gt.Adam(), gt.Adam((0.5, 0.9), 1e-3)], ids=["defaults", "short memory"])
def test_adam_makes_of_the_estimates_what_its_paper_says(adam, policy, inner_steps):
    c, b, g, n = token_case(policy, "kl"), 2, 3, 24
    options = {"batch_size": b, "group_size": g, "steps": n, "replications": 3, "rng": 4, "inner_steps": inner_steps}
    found = gt.simulate_training(c.problem, c.theta, "grpo", gt.Power(0.1, 0.6), optimiser=adam, **options)
    uniforms, steps = uniforms_of_runs(4, b, g, n // inner_steps), gt.Power(0.1, 0.6).steps(n)
    estimator = gt.estimators()["grpo"]
    for run in range(3):
        move = adam_by_numpy(adam.betas, adam.eps)
        expected = transcription(Dense(c), c.theta, estimator, steps, uniforms[run], inner_steps, move).path[-1]
        np.testing.assert_allclose(found.theta[run], expected, atol=1e-10)


def test_adam_drops_what_multiplies_all_gradients():
    """The two estimators differ by the factor 1 - 1/G."""
    problem = gt.gallery.problem("linear")
    sizes = {"batch_size": 4, "group_size": 2, "steps": 50, "replications": 3, "rng": 1}
    runs = [
        gt.simulate_training(problem, problem.theta, name, gt.Constant(0.1), optimiser=optimiser, **sizes).theta
        for optimiser in (gt.Adam(eps=1e-300), gt.SGD())
        for name in ("rloo", "dr_grpo")
    ]
    np.testing.assert_allclose(runs[0], runs[1], atol=1e-12)
    assert np.abs(runs[2] - runs[3]).max() > 0.01


def test_adam_is_not_warned_of_the_curvature_and_does_not_depend_on_workers_or_checkpoints():
    problem = gt.gallery.problem("kl-linear")
    asked = problem, np.zeros(3), "grpo", gt.Constant(40.0)
    sizes = {"batch_size": 4, "group_size": 4, "steps": 12, "replications": 300, "rng": 1, "optimiser": gt.Adam()}
    one, two = (gt.simulate_training(*asked, workers=w, checkpoints=at, **sizes) for w, at in ((1, [12]), (2, [3, 12])))
    np.testing.assert_array_equal(one.theta, two.theta)


def test_adam_that_is_wrong_is_refused():
    problem = gt.gallery.problem("linear")
    with pytest.raises(ValueError, match=r"betas must be two numbers in \[0, 1\), got \(0.9, 1.0\)"):
        gt.Adam((0.9, 1.0))
    with pytest.raises(ValueError, match="eps must be"):
        gt.Adam(eps=0.0)
    sizes = {"batch_size": 2, "group_size": 2, "steps": 2, "replications": 1}
    for optimiser, message in (("adam", "must be SGD"), (gt.Adam, r"must be an object, got the class Adam\. Write Adam\(\)")):
        with pytest.raises(TypeError, match=f"optimiser {message}"):
            gt.simulate_training(problem, problem.theta, "grpo", gt.Constant(1.0), optimiser=optimiser, **sizes)


def test_records_of_the_compiled_driver_agree_with_its_python_source(plain):
    for policy in ("linear", "tree"):
        c = token_case(policy, "kl")
        sizes = {"batch_size": 2, "group_size": 3, "steps": 20, "replications": 2, "rng": 9}
        asked = c.problem, c.theta, "rloo", gt.Constant(0.5)
        compiled = next(gt.simulate_records(*asked, **sizes))
        plain()
        again = next(gt.simulate_records(*asked, **sizes))
        for name in ("path", "mean_rewards", "hessian"):
            np.testing.assert_allclose(getattr(again, name), getattr(compiled, name), atol=1e-12)


@pytest.mark.parametrize("inner_steps", [1, 2])
def test_a_kernel_that_couples_groups_sees_one_batch_of_one_run(registry, inner_steps):
    """Declared, a run is the same among 70 as alone; undeclared, it is found out before anything runs."""

    def batch_mean(batch, advantages):
        mean = batch.rewards.mean()
        for b in range(batch.rewards.shape[0]):
            for g in range(batch.rewards.shape[1]):
                advantages[b, g] = batch.rewards[b, g] - mean

    undeclared = gt.estimator("batch_mean_undeclared")(batch_mean)
    with pytest.raises(ValueError, match="'batch_mean_undeclared' must give a group the same advantages whatever the other"):
        small(estimator=undeclared, steps=20, inner_steps=inner_steps)
    found = gt.estimator("batch_mean_of_a_run", couples_groups=True)(batch_mean)
    alone, among = (small(estimator=found, replications=n, steps=20, inner_steps=inner_steps).theta[0] for n in (1, 70))
    np.testing.assert_array_equal(alone, among)
    problem = gt.gallery.problem("conflict")
    dense = Dense(Case(problem, problem.policy.logit_map.features))
    uniforms = uniforms_of_runs(9, 2, 4, 20 // inner_steps)[0]
    expected = transcription(dense, problem.theta, found, gt.Harmonic(5.0, 10).steps(20), uniforms, inner_steps)
    np.testing.assert_allclose(alone, expected.path[-1], atol=1e-10)


@pytest.mark.parametrize("way", ["few", "picked", "stay", "spread again"])
@pytest.mark.parametrize("batch_size", [3, 1])
@pytest.mark.parametrize("policy", [*POLICIES, *TREES])
def test_logits_and_steps_are_those_of_the_policy(policy, batch_size, way, monkeypatch):
    """A share of runs, or one run where the policy's functions are for one; dense features in each of the ways they are read."""
    if way == "picked" and not PICKED:
        pytest.skip("this processor cannot pick")
    monkeypatch.setattr(ascent, "is_cheaper_for_all", lambda *_: way == "few")
    monkeypatch.setattr(ascent, "PICKED", PICKED if way == "picked" else 0)
    monkeypatch.setattr(ascent, "KEPT_NUMBERS", 1 << 17 if way == "stay" else 0)
    c = token_case(policy)
    found, rng = ascent.ascent(c.policy, batch_size), np.random.default_rng(6)
    runs, lanes = 1 if found.alone else 2 * WIDTH, 2 * WIDTH
    thetas = np.ascontiguousarray((c.theta + rng.normal(size=(runs, c.theta.size))).T)
    prompts = rng.integers(c.policy.n_prompts, size=(batch_size, lanes))
    covectors, rows = rng.normal(size=(batch_size, c.policy.n_logits, lanes)), np.empty((found.rows, lanes))
    logits, moved = np.empty(covectors.shape), thetas.copy()
    found.fill_logits(thetas, prompts, found.array, rows, logits)
    found.take_step(moved, prompts, found.array, rows, covectors, 0.3)
    expected = thetas.copy()
    for b in range(batch_size):
        for run in range(runs):
            features = c.features[prompts[b, run]]
            np.testing.assert_allclose(logits[b, :, run], features @ thetas[:, run], atol=1e-13)
            expected[:, run] += 0.3 * features.T @ covectors[b, :, run]
    np.testing.assert_allclose(moved, expected, atol=1e-13)


@pytest.mark.parametrize("picked", [0, 16])
def test_dense_features_are_read_in_the_way_that_costs_less(picked, monkeypatch):
    """Those of all prompts where they are few beside the batch and have many dimensions; their room has a bound."""
    monkeypatch.setattr(ascent, "PICKED", picked)
    for (n_prompts, dimension, batch_size), way, rows in (
        ((12, 5, 4), "picked", 4 * 26),
        ((8, 32, 16), "few", 8 * 5),
        ((4, 2, 1), "picked", 10),
        ((16, 128, 4), "picked", 640),
        ((100, 64, 16), "dense", 320),
    ):
        features = np.random.default_rng(0).normal(size=(n_prompts, 5, dimension))
        found = ascent.ascent(gt.LinearSoftmax(features), batch_size)
        way, rows = (way, 0) if picked and way == "picked" else (way.replace("picked", "dense"), rows)
        assert found.fill_logits is getattr(ascent, f"{way}_logits").value
        assert found.rows == rows


@pytest.mark.parametrize("runs", [1, WIDTH, BLOCK_RUNS])
def test_runs_advance_a_few_at_a_time(monkeypatch, runs, registry):
    """So many side by side, or one where the policy's functions are for one; the last are fewer; all are the transcription's."""
    c, found = token_case("head tree" if runs == 1 else "linear tree", "kl"), composed(COMPOSITIONS[1])
    assert ascent.ascent(c.policy, 4).alone == (runs == 1)
    monkeypatch.setattr(TrainingBlocks, "share_runs", runs)
    sizes = {"batch_size": 4, "group_size": 3, "steps": 6, "inner_steps": 2, "rng": 5}
    together = gt.simulate_training(c.problem, c.theta, found, gt.Constant(1.0), **sizes, replications=64).theta
    uniforms = uniforms_of_runs(5, 4, 3, 3)
    for run in (0, 1, 31, 32, 63):
        expected = transcription(Dense(c), c.theta, found, np.ones(6), uniforms[run], 2)
        np.testing.assert_allclose(together[run], expected.path[-1], atol=1e-10)
    for number in (1, 4, 33, 62):
        fewer = gt.simulate_training(c.problem, c.theta, found, gt.Constant(1.0), **sizes, replications=number).theta
        np.testing.assert_array_equal(fewer, together[:number])


def test_schedules():
    np.testing.assert_array_equal(gt.Constant(0.5).steps(3), [0.5, 0.5, 0.5])
    np.testing.assert_allclose(gt.Harmonic(2.0).steps(3), [2.0, 1.0, 2.0 / 3.0])
    np.testing.assert_allclose(gt.Harmonic(2.0, 8).steps(2), [2.0 / 9.0, 0.2])
    np.testing.assert_allclose(gt.Power(1.0, 0.5).steps(4), [1.0, 2**-0.5, 3**-0.5, 0.5])
    np.testing.assert_array_equal(step_sizes([0.1, 0.2], 2), [0.1, 0.2])


def without_penalty():
    """Train with a KL term in the loss where the problem has no penalty."""
    found = gt.Estimator("penalised", gt.estimators()["rloo"].advantage, kl=gt.estimation.KL_TERMS["k3 in loss"])
    return small(estimator=found)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: gt.Constant(0.0), ValueError, "step must be finite and above 0, got 0"),
        (lambda: gt.Harmonic(-1.0), ValueError, "step_scale must be finite and above 0, got -1"),
        (lambda: gt.Harmonic(1.0, -1), ValueError, "offset must be at least 0, got -1"),
        (lambda: gt.Power(1.0, 1.5), ValueError, r"exponent must lie in \(0, 1\], got 1.5"),
        (lambda: small(schedule=np.linspace(1.0, 0.0, 300)), ValueError, "schedule must have steps above 0, got 0 at step 300"),
        (lambda: small(schedule=[0.1, 0.2]), ValueError, r"schedule must have shape \(300,\)"),
        (lambda: small(schedule=[]), ValueError, "schedule must have 300 steps, got none: give one for each update"),
        (lambda: small(schedule=None), TypeError, "or an array of 300 steps, got None. Make one with gt.Constant"),
        (lambda: small(schedule="constant"), TypeError, "or an array of 300 steps, got 'constant'. Make one with gt.Constant"),
        (lambda: small(schedule=gt.Constant), TypeError, "got the class Constant. Make one with gt.Constant"),
        (lambda: small(checkpoints=[5, 3]), ValueError, "checkpoints must rise and end at most at steps = 300"),
        (lambda: small(checkpoints=[301]), ValueError, "checkpoints must rise and end at most at steps = 300"),
        (lambda: small(steps=0), ValueError, "steps must be at least 1, got 0"),
        (lambda: small(group_size=1), ValueError, "group_size must be at least 2 for estimator 'rloo', got 1"),
        (lambda: small(checkpoints=5), TypeError, "checkpoints must be a sequence of integers, got 5"),
        (lambda: small(theta0=[0.0]), ValueError, r"theta0 must have shape \(2,\) = \(d,\), the policy's parameters, got \(1,\)"),
        (lambda: small(theta0=0.0), ValueError, r"theta0 must have 1 dimensions, got shape \(\)"),
        (without_penalty, ValueError, "problem must have a kl for the KL term 'k3 in loss' of estimator 'penalised'"),
        (lambda: small(ball=([0.0, 0.0], 1.0)), TypeError, "ball must be a Ball"),
        (lambda: small(ball=gt.Ball([0.0], 1.0)), ValueError, r"centre must have shape \(2,\)"),
        (lambda: gt.Ball([0.0], 0.0), ValueError, "radius must be finite and above 0"),
        (lambda: small(inner_steps=0), ValueError, "inner_steps must be at least 1, got 0"),
        (lambda: small(inner_steps=1.5), TypeError, "inner_steps must be an integer of at least 1, got 1.5"),
        (lambda: small(inner_steps=3), ValueError, "inner_steps must divide batch_size = 2, got 3"),
        (lambda: small(inner_steps=4), ValueError, "inner_steps must divide batch_size = 2, got 4"),
        (lambda: small(lag=-1), ValueError, "lag must be at least 0, got -1"),
        (lambda: small(lag=1.0), TypeError, "lag must be an integer of at least 0, got 1.0"),
        (lambda: small(inner_steps=2, steps=299), ValueError, "steps must be divisible by inner_steps = 2, got 299"),
        (
            lambda: small(inner_steps=2, checkpoints=[0, 2, 7, 9]),
            ValueError,
            "checkpoints must be divisible by inner_steps = 2, got 7",
        ),
        (
            lambda: gt.simulate_training("conflict", [0.0], "rloo", [1.0], batch_size=1, group_size=2, steps=1, replications=1),
            TypeError,
            "problem must be a Problem, got 'conflict'",
        ),
    ],
)
def test_bad_input(make, error, message):
    with pytest.raises(error, match=message):
        make()
