"""Training runs: all that there can be, enumerated; the algorithm in plain Python; bits that nothing changes; and bad input."""

import warnings
from itertools import product

import numpy as np
import pytest
from dense import TREES, Dense, token_case
from enumeration import NAMED, POLICIES
from networks import network_case
from runs_by_hand import (
    COMPOSITIONS,
    Algorithm,
    adam_by_numpy,
    ascend,
    assert_match,
    composed,
    cubed,
    of_a_user,
    over_the_batch,
    placed,
    small_case,
)
from streams_by_numpy import uniforms_of_runs
from test_memory import KALMAN
from test_simulated_chains import short

import grpo_theory as gt
from grpo_theory.simulate import BLOCK_RUNS, policies
from grpo_theory.simulate.draws import LANES
from grpo_theory.simulate.policies import logit_rule
from grpo_theory.simulate.rollouts import draw_outcomes, make_policy_room, make_room, world_of
from grpo_theory.simulate.training import StepGrid

# ---- optimisers of a user's own


def lead_by_momentum(theta, gradient, moments, settings, step, count):
    """Heavy ball with two memories, of which the second is of counts, and a setting."""
    moments[0] = settings[0] * moments[0] + gradient
    moments[1] += count
    theta += step * moments[0] / moments[1]


class HeavyBall:
    """An optimiser of a user's own."""

    move, n_moments, settings = staticmethod(lead_by_momentum), 2, (0.7,)


def heavy_ball_by_numpy(theta, step, estimate, memory, count):
    velocity, counts = memory or (0.0, 0)
    velocity, counts = 0.7 * velocity + estimate, counts + count
    return theta + step * velocity / counts, (velocity, counts)


# ---- all runs that there can be

SPEEDY = gt.Adam((0.5, 0.9), 1e-3)
DROP, TWICE = gt.PowerLaw(0.9, 0.6), {"batch_size": 2, "inner_steps": 2}
COURSES = {
    "rloo": ("tabular", "binary plain", {}, "rloo", {"steps": 2}),
    "reads norms": ("linear tree", "graded kl", {}, "optimal_loo", {"steps": 2}),
    "reads baselines": ("linear", "graded kl", {}, "optimal", {"steps": 2}),
    "token ratio": ("linear tree", "graded plain", COMPOSITIONS[0], "", {"steps": 2} | TWICE),
    "trajectory ratio, k3 in loss": ("tabular tree", "graded kl", COMPOSITIONS[1], "", {"steps": 2, "lag": 1}),
    "geometric ratio, k2 in reward": ("head tree", "graded kl", COMPOSITIONS[2], "", {"steps": 2, "lag": 1}),
    "pools of the batch": ("linear tree", "binary kl", COMPOSITIONS[3], "", {"steps": 1, "batch_size": 2}),
    "pools of the group": ("linear tree", "binary plain", {"aggregation": "group tokens"}, "", {"steps": 1}),
    "upper only": ("linear tree", "graded plain", COMPOSITIONS[5], "", {"steps": 2, "lag": 1}),
    "lag": ("linear", "graded plain one", COMPOSITIONS[0], "", {"steps": 4, "lag": 2}),
    "adam": ("linear", "binary plain one", {}, "grpo", {"steps": 3, "optimiser": SPEEDY}),
    "ball": ("linear", "binary plain one", {}, "rloo", {"steps": 3, "ball": 0.5}),
    "a user's optimiser": ("linear", "binary plain one", {}, "rloo", {"steps": 3, "optimiser": HeavyBall()}),
    "a user's kernel of places": ("tabular", "graded plain one", {}, placed, {"steps": 2, "group_size": 3}),
    "a user's kernel of batches": ("linear tree", "binary plain one", {}, over_the_batch, {"steps": 1, "batch_size": 2}),
    "a user's kernel, penalty": ("linear", "graded kl", {}, cubed, {"steps": 2}),
}
MOVES = {SPEEDY: adam_by_numpy(SPEEDY.betas, SPEEDY.eps)}


@pytest.mark.parametrize("course", COURSES)
def test_runs_are_those_that_there_can_be_and_come_as_often_as_they_should(course, registry):
    """To 1e-9, and by Pearson's statistic; chances that are wrong by a quarter do not pass."""
    kind, problem, parts, chosen, how = COURSES[course]
    rewards, penalty, *one = problem.split()
    if callable(chosen):
        found = of_a_user(chosen, couples_groups=chosen is over_the_batch)
    else:
        found = composed(parts) if parts else gt.estimators()[chosen]
    c, how = small_case(kind, rewards, penalty, 1 if one else 2), {"optimiser": gt.SGD(), "batch_size": 1, "group_size": 2} | how
    if "ball" in how:
        how["ball"] = gt.Ball(c.theta + 0.1, how["ball"])
    runs = gt.simulate_training(c.problem, c.theta, found, DROP, **how, replications=20_000, rng=1)
    optimiser, steps, *sizes = (how.pop(name) for name in ("optimiser", "steps", "batch_size", "group_size"))
    move = ascend if optimiser == gt.SGD() else MOVES.get(optimiser, heavy_ball_by_numpy)
    algorithm = Algorithm(Dense(c), found, DROP.steps(steps), move=move, **how)
    assert_match(runs, c.problem, algorithm.runs(c.theta, *sizes, in_order=chosen is placed))


@pytest.mark.parametrize("rule", [None, "sgpo"])
def test_each_run_may_have_its_own_start(rule):
    c, sizes = small_case(), {"batch_size": 4, "group_size": 6, "steps": 3, "replications": 4, "rng": 3, "allocation": rule}
    starts = np.stack([c.theta, -2.0 * c.theta])
    runs = gt.simulate_training(c.problem, starts[np.arange(4) % 2], "rloo", DROP, **sizes, checkpoints=[0, 3])
    np.testing.assert_allclose(runs.objectives[:2, 0], gt.objective(c.problem, starts), rtol=1e-14)
    for first, start in enumerate(starts):
        alone = gt.simulate_training(c.problem, start, "rloo", DROP, **sizes)
        np.testing.assert_array_equal(runs.theta[first::2], alone.theta[first::2])


def test_checkpoints_are_those_of_the_iterates_and_of_their_averages():
    problem, schedule = gt.gallery.problem("conflict"), gt.Harmonic(5.0, 10)
    runs = train(replications=5, steps=12, checkpoints=range(13))
    grid = StepGrid.of(problem, gt.estimators()["rloo"], [1.0], schedule.steps(12), (2, 4), keeps=True)
    (path,) = grid.iterates(5, rng=9)
    np.testing.assert_allclose(runs.objectives, gt.objective(problem, path), atol=1e-14)
    averages = np.cumsum(path[:, 1:], axis=1) / np.arange(1, 13)[:, None]
    np.testing.assert_allclose(runs.average_objectives[:, 1:], gt.objective(problem, averages), atol=1e-13)


# ---- longer runs, on the same uniforms


def test_logits_made_by_prompt_and_for_all_prompts_first_give_the_same_runs(monkeypatch):
    """Which is made depends on how many prompts there are for each group."""
    rng = np.random.default_rng(3)
    policy = gt.LinearSoftmax(rng.normal(size=(9, 3, 2)))
    problem, how = gt.Problem(gt.Bandit(rng.uniform(size=(9, 3))), policy), {"batch_size": 2, "group_size": 3, "steps": 8}
    runs = []
    for few in (0, 100):
        monkeypatch.setattr(policies, "FEW_PROMPTS", few)
        runs.append(gt.simulate_training(problem, [0.3, -0.2], "rloo", gt.Constant(0.3), **how, replications=5, rng=1).theta)
    np.testing.assert_allclose(*runs, rtol=1e-11)


LONG = [
    *((name, {}, {"batch_size": 2}) for name in NAMED),
    *(("", parts, {"inner_steps": (2, 4, 1)[i % 3], "lag": (0, 0, 3)[i % 3]}) for i, parts in enumerate(COMPOSITIONS)),
    ("", COMPOSITIONS[1], {"inner_steps": 2, "lag": 2}),
    ("", COMPOSITIONS[0], {"inner_steps": 2, "ball": 0.4}),
    ("grpo", {}, {"inner_steps": 2, "optimiser": SPEEDY}),
    ("rloo", {}, {"batch_size": 16, "group_size": 15, "steps": 40}),
    ("rloo", {}, {"network": "tanh", "inner_steps": 2}),
    ("optimal_loo", {}, {"network": "relu"}),
    ("optimal", {}, {"network": "identity", "optimiser": SPEEDY}),
    ("optimal_loo", {}, {"network": "tree"}),
    ("dapo", {}, {"network": "tree", "optimiser": SPEEDY, "inner_steps": 2}),
]


@pytest.mark.parametrize(("number", "how"), list(enumerate(LONG)))
def test_long_runs_are_those_of_the_algorithm(number, how, registry):
    """Of all maps, single responses, sequences and networks; the last runs are a second block's."""
    name, parts, how = how
    how, found = {"batch_size": 4, "group_size": 3, "steps": 24} | how, composed(parts) if parts else gt.estimators()[name]
    network = how.pop("network", None)
    c = network_case(network, "kl") if network else token_case([*POLICIES, *TREES][number % 6], "kl")
    options, sizes = dict(how), [how.pop(one) for one in ("batch_size", "group_size", "steps")]
    optimiser = how.pop("optimiser", gt.SGD())
    if "ball" in how:
        options["ball"] = how["ball"] = gt.Ball(c.theta, how["ball"])
    schedule = gt.PowerLaw(0.1 if optimiser != gt.SGD() or sizes[2] > 24 else 0.4, 0.3)
    runs = gt.simulate_training(c.problem, c.theta, found, schedule, **options, replications=BLOCK_RUNS + 2, rng=5)
    algorithm = Algorithm(Dense(c), found, schedule.steps(sizes[2]), move=MOVES.get(optimiser, ascend), **how)
    clipped = np.zeros(2)
    for block, run in ((0, 0), (0, 33), (1, 1)):
        uniforms = uniforms_of_runs(5, c.bandit.n_prompts, *sizes[:2], sizes[2] // algorithm.inner_steps, block)[run]
        path, own = algorithm.run(c.theta, uniforms)
        clipped += own
        np.testing.assert_allclose(runs.theta[block * BLOCK_RUNS + run], path[-1], atol=1e-10)
        np.testing.assert_allclose(runs.average[block * BLOCK_RUNS + run], path[1:].mean(axis=0), atol=1e-10)
    moves = algorithm.inner_steps > 1 or algorithm.lag > 0
    if parts.get("clip") == "by sign" and moves:
        assert (clipped > 0).all(), "tokens with positive and with negative advantages are clipped"


# ---- the same bits


def head_alone():
    """A head of so many parameters that its runs go on one by one."""
    rng = np.random.default_rng(2)
    bandit = gt.Bandit(rng.uniform(0.1, 0.9, (1, 3)))
    return gt.Problem(bandit, gt.SoftmaxHead(rng.normal(size=(1, 37)), 3), theta=np.zeros(111))


def train(problem="conflict", estimator="rloo", theta0=None, schedule=gt.Harmonic(5.0, 10), **changes):  # noqa: B008
    problem = gt.gallery.problem(problem) if isinstance(problem, str) else problem
    how = {"batch_size": 2, "group_size": 4, "steps": 60, "replications": 150, "rng": 9} | changes
    return gt.simulate_training(problem, problem.theta if theta0 is None else theta0, estimator, schedule, **how)


SETTINGS = {
    "one update": {},
    "inner steps": {"inner_steps": 2, "estimator": "dapo", "batch_size": 4},
    "sequences": {"problem": "kl-sequence", "inner_steps": 2, "estimator": "gspo"},
    "lag": {"lag": 3, "estimator": "cispo"},
    "one by one": {"problem": head_alone(), "estimator": "grpo", "batch_size": 4},
    "kernel that couples": {"estimator": "james_stein"},
    "memory": {"estimator": KALMAN},
    "allocation": {"problem": "tabular", "allocation": "neyman"},
    "allocation by what was seen": {"problem": "tabular", "allocation": "vip_seen"},
    "chain": {"problem": short(), "estimator": "gspo", "inner_steps": 2, "schedule": gt.Constant(0.5), "steps": 6},
    "penalty": {"problem": "kl-tabular", "schedule": gt.Constant(0.1), "batch_size": 1, "group_size": 5},
}


@pytest.mark.filterwarnings("ignore::grpo_theory.exact.derivatives.StabilityWarning")
@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_workers_checkpoints_length_and_number_of_runs_change_no_bit(setting):
    """Ten blocks, the last of them not whole: on one thread, on several, in calls that end at checkpoints, and fewer of them."""
    many, ends = 9 * BLOCK_RUNS + 30, [0, 2, 26, 60] if "steps" not in setting else [0, 2, 6]
    one = train(**setting, workers=1, replications=many)
    others = [train(**setting, workers=workers, replications=n, checkpoints=ends) for workers, n in ((2, many), (5, 3))]
    for other in (*others, train(**setting, workers=1, replications=70)):
        for name in ("theta", "average", "farthest"):
            np.testing.assert_array_equal(getattr(other, name), getattr(one, name)[: len(other.theta)])
        np.testing.assert_array_equal(other.objectives[:, -1], one.objectives[: len(other.theta), -1])
    assert len(np.unique(one.theta, axis=0)) > many // 2


@pytest.mark.parametrize(
    ("problem", "estimator", "sizes", "optimiser", "rule"),
    [
        ("single", "grpo", (4, 4, 1, 0), gt.SGD(), None),
        ("sequence-shared", "rloo", (8, 5, 4, 0), gt.Adam(), None),
        ("tabular", "grpo", (4, 4, 2, 2), gt.SGD(), None),
        (head_alone(), "rloo", (2, 4, 1, 0), gt.Adam(), None),
        *(("tabular", "rloo", (3, 4, 1, 0), *both) for both in product((gt.SGD(), gt.Adam()), ("neyman", "vip_seen"))),
    ],
)
def test_several_rates_side_by_side_give_the_runs_that_each_gives_alone(problem, estimator, sizes, optimiser, rule):
    """For numbers of runs that fill a block and that do not; iterates end where runs do."""
    problem = gt.gallery.problem(problem) if isinstance(problem, str) else problem
    rates, shape = np.array([0.05, 0.3, 0.11]), 1.0 / np.arange(1.0, 13.0)
    more = {"optimiser": optimiser, "allocation": rule and gt.allocation_rules()[rule].between(2, 8)}
    made = [StepGrid.of(problem, gt.estimators()[estimator], rates, shape, sizes, **more, keeps=keeps) for keeps in (0, 1)]
    how = dict(zip(("batch_size", "group_size", "inner_steps", "lag"), sizes, strict=True)) | {"steps": 12, "rng": 7} | more
    for runs in (5, 50):
        found, paths = made[0].objectives(runs, 7, [4, 12]), made[1].iterates(runs, rng=7)
        for rate, own, path in zip(rates, found, paths, strict=True):
            asked = problem, problem.theta, estimator, rate * shape
            alone = gt.simulate_training(*asked, **how, replications=runs, checkpoints=[4, 12])
            np.testing.assert_allclose(own, alone.objectives, rtol=1e-10)
            np.testing.assert_allclose(path[:, -1], alone.theta, rtol=1e-9, atol=1e-12)
        assert np.abs(found[0] - found[1]).max() > 1e-4
    still = StepGrid.of(problem, gt.estimators()[estimator], [0.0, 0.0], shape, sizes, keeps=True)
    assert (still.iterates(2, rng=7) == problem.theta).all()


# ---- ends, and bad input


def test_divergence_is_counted_and_kept():
    """Every second run begins so far out that its logits are infinite, which is no fault of the kernel."""
    problem = gt.gallery.problem("linear")
    starts = np.tile(problem.theta, (150, 1))
    starts[1::2] = 1.7e308 * np.sign(problem.theta)
    for estimator in ("rloo", "grpo", "optimal_loo"):
        with warnings.catch_warnings(action="ignore"):
            runs = train("linear", estimator, starts, gt.Constant(1e-3), group_size=6, steps=5)
        np.testing.assert_array_equal(runs.diverged, np.arange(150) % 2 == 1)
        np.testing.assert_array_equal(np.isnan(runs.objectives[:, 0]), runs.diverged)


def test_where_every_run_diverges_all_objectives_are_nan():
    policy = gt.LinearSoftmax(1e6 * np.random.default_rng(0).normal(size=(2, 3, 2)))
    problem, sizes = (
        gt.Problem(gt.Bandit(np.eye(3)[:2]), policy),
        {"batch_size": 2, "group_size": 4, "steps": 4, "replications": 3},
    )
    with warnings.catch_warnings(action="ignore"):
        runs = gt.simulate_training(problem, None, "rloo", gt.Constant(1e308), **sizes, rng=1, workers=1)
    assert np.isnan(runs.objectives).all()


def test_numbers_that_mean_nothing_are_counts_all_the_same():
    """Where a run has left the numbers: counts of G responses, none below 0, so that they lead out of no table."""
    problem, rng = gt.gallery.problem("tabular"), np.random.default_rng(0)
    logits = logit_rule(problem.policy, 1)
    world = world_of(problem, logits)
    policy = make_policy_room((1, LANES), world, problem.policy.n_logits, wants_logs=False)
    for in_order in (False, True):
        room = make_room(world, (1, 8), 0, LANES, in_order=in_order)
        room.prompts[:] = 0
        for _ in range(40):
            policy.pi[:] = rng.choice([np.nan, np.inf, -np.inf, 1e300, -1e300, 0.1], policy.pi.shape)
            room.words[:] = rng.integers(0, 1 << 62, room.words.shape, dtype=np.uint64) * np.uint64(2)
            room.short[:] &= -2
            draw_outcomes(world, 8, room, policy)
            assert room.counts.min() >= 0
            assert (room.counts.sum(axis=1) == 8).all()
    assert room.counts.shape[-1] == LANES


def test_schedules():
    np.testing.assert_allclose(gt.Harmonic(2.0, 8).steps(2), [2.0 / 9.0, 0.2])
    np.testing.assert_allclose(gt.PowerLaw(1.0, 0.5).steps(4), [1.0, 2**-0.5, 3**-0.5, 0.5])


BAD = [
    (lambda: gt.PowerLaw(1.0, 1.5), r"exponent must lie in \(0, 1\]"),
    (lambda: train(schedule=np.linspace(1.0, 0.0, 60)), "schedule must have steps above 0, got 0 at step 60"),
    (lambda: train(checkpoints=[5, 3]), "checkpoints must rise and end at most at steps = 60"),
    (lambda: train(group_size=1), "group_size must be at least 2 for estimator 'rloo'"),
    (lambda: train(theta0=np.zeros((10, 2))), r"theta0 must have shape \(150, 2\)"),
    (lambda: train(inner_steps=2, checkpoints=[0, 2, 7, 9]), "checkpoints must be divisible by inner_steps = 2"),
    (lambda: train(lag=10**7), "lag must be at most .* iterates of each run are held in memory"),
    (lambda: train(estimator=of_a_user(over_the_batch)), "'over_the_batch_for_one_test' must give a group the same advantages"),
    (lambda: train(optimiser=gt.Adam), r"optimiser must be an object, got the class Adam"),
    (lambda: train(optimiser=type("Changed", (HeavyBall,), {"n_moments": 1})()), "leaves its arrays .*raise n_moments"),
]


def test_mistakes_are_told(check_refused, registry):
    check_refused(*BAD, error=(TypeError, ValueError))
