"""The drivers of the gradient simulator: compiled and as plain Python, and against dense arithmetic on what they draw."""

from dataclasses import replace

import numpy as np
import pytest
from compiled_stages import compiled
from dense import TREES, Dense, token_case
from enumeration import NAMED, POLICIES, case
from numba import typeof
from numba.core.dispatcher import Dispatcher

import grpo_theory as gt
from grpo_theory.compiler import code_dependencies
from grpo_theory.compiler import plain_python as plain_throughout
from grpo_theory.simulate.advantage import affine, call_room, kernel_call, response_sums, tables
from grpo_theory.simulate.covector import combinations, contrasts, estimator_covectors, tabulated, token_weights
from grpo_theory.simulate.draw import batches, counting, order, outcome_law, prompt_tables
from grpo_theory.simulate.draw import sheet as sheets
from grpo_theory.simulate.draw import streams as random_streams
from grpo_theory.simulate.draw.streams import LANES
from grpo_theory.simulate.observe import errors, pairs, truth

MODULES = (
    *(affine, combinations, contrasts, counting, errors, kernel_call, order, response_sums),
    *(pairs, truth, prompt_tables, random_streams, tables, tabulated, token_weights),
)
CASES = (*POLICIES, *TREES)
SUMS = (
    response_sums.sum_tabulated,
    response_sums.sum_by_coefficients,
    response_sums.sum_called,
    response_sums.sum_ordered,
)
ERRORS = (errors.fill_errors_by_pairs, errors.fill_errors_by_prompt, errors.fill_errors_by_features)
DRIVERS = (
    counting.fill_counts,
    order.fill_ordered,
    contrasts.fill_contrasts,
    tabulated.fill_covectors,
    token_weights.fill_covectors_of_sums,
    *SUMS,
    *ERRORS,
)


STAGES = {name for module in MODULES for name, value in vars(module).items() if isinstance(value, Dispatcher)}
REACHED = {one.__name__ for driver in (*DRIVERS, random_streams.begin_streams) for one in code_dependencies(driver.function)[0]}


def composed(**parts):
    return gt.compose("composed_for_one_test", **{"advantage": "rloo"} | parts)


COMPOSITIONS = [
    {"ratio": "token"},
    {"ratio": "trajectory", "clip": "upper only", "aggregation": "constant"},
    {"ratio": "geometric", "clip": "two-sided", "aggregation": "own length"},
    {"ratio": "token", "clip": "by sign", "aggregation": "group tokens"},
    {"ratio": "token", "clip": "cap", "aggregation": "batch tokens", "advantage": "grpo"},
    {"ratio": "token", "clip": "by sign", "aggregation": "batch tokens", "kl": "k3 in loss"},
    {"ratio": "trajectory", "clip": "by sign", "aggregation": "own length", "kl": "k2 in reward", "advantage": "optimal_loo"},
    {"kl": "k2 in loss", "aggregation": "group tokens", "advantage": "oracle"},
    {"kl": "k1 in loss", "advantage": "optimal"},
    {"kl": "k3 in reward", "advantage": "optimal"},
]


class Simulated:
    """A simulation taken apart: what it draws, response by response, and how each estimator is worked out."""

    def __init__(self, c, estimators, *, batch_size, group_size, behaviour=None, directions=None, tiles=1, seed=0):
        self.dense, self.estimators = Dense(c), estimators
        self.theta, self.behaviour = c.theta, c.theta if behaviour is None else behaviour
        self.directions = np.empty((0, c.policy.dimension)) if directions is None else directions
        current, sampler = c.problem.at(self.theta), c.problem.at(self.behaviour)
        self.law = outcome_law.outcome_law(sampler, group_size)
        self.found = estimator_covectors.covectors_of(current, sampler, estimators, batch_size, group_size)
        self.geometry = errors.geometry(current, self.directions, batch_size)
        self.sizes = tiles, batch_size, group_size
        self.seed = np.random.SeedSequence(seed)
        self.batches = self.draw()

    def draw(self):
        tiles, batch_size, _ = self.sizes
        drawn = batches.make_batches(self.law, tiles, batch_size, in_order=True)
        for fill in (lambda one: one.fill(drawn.counts), lambda one: one.fill_ordered(drawn.counts, drawn.ordered)):
            stream = batches.BatchStream(self.law)
            stream.begin(random_streams.stream_words(self.seed), 0)
            fill(stream)
        return drawn

    def observe(self, estimator):
        """Observe an estimator as the simulator does, shape (replications, 4 + J)."""
        for one in self.found:
            if estimator in one.estimators:
                n_observations = 4 + len(self.directions)
                rows = np.full((len(one.estimators), n_observations, 1 + self.sizes[0], LANES), np.nan)
                driver, measure = self.geometry.fill_errors.run, self.geometry.truth
                place = 0
                for found in one.fill(self.batches, batches.Buffers()):
                    sizes = found.rows.shape, len(found.owners), len(found.columns), self.sizes[1], n_observations
                    room = errors.make_error_room(*self.geometry, *sizes)
                    driver(measure, self.batches.counts.prompts, found, room, 1, rows[place : place + len(found.columns)])
                    place += len(found.columns)
                assert np.isnan(rows[:, :, 0]).all()
                own = rows[one.estimators.index(estimator), :, 1:]
                return own.reshape(len(own), -1).T
        raise LookupError(estimator.name)

    def by_replication(self):
        """Return prompts (R, B) and outcomes (R, B, G) in the order drawn."""
        _, batch_size, group_size = self.sizes
        prompts = self.batches.counts.prompts.transpose(0, 2, 1).reshape(-1, batch_size)
        return prompts, self.batches.ordered.astype(int).transpose(0, 3, 1, 2).reshape(-1, batch_size, group_size)

    def by_hand(self, estimator, replications):
        """The squared errors and projections of the first estimates, from dense scores and the kernel as plain Python."""
        dense = self.dense
        now, then = dense.at(self.theta), dense.at(self.behaviour)
        gradients = dense.gradients(now)[1]
        gradient = dense.bandit.prompt_weights @ gradients
        rows = []
        for prompts, outcomes in zip(*(part[:replications] for part in self.by_replication()), strict=True):
            advantages = dense.advantages(then, estimator, prompts, outcomes)
            by_group = dense.estimates(now, then, estimator, prompts, outcomes, advantages)
            estimate = by_group.mean(axis=0)
            error = ((estimate - gradient) ** 2).sum()
            prompt_error = ((by_group - gradients[prompts]) ** 2).sum(axis=1).mean()
            rows.append([error, prompt_error, estimate @ estimate, estimate @ gradient, *(self.directions @ estimate)])
        return np.array(rows)


# ---- what is observed


@pytest.mark.parametrize("policy", CASES)
@pytest.mark.parametrize("group_size", [1, 2, 5])
def test_observations_against_dense_arithmetic(policy, group_size):
    """The squared errors and projections of the estimates of all named estimators."""
    c = token_case(policy, "kl")
    directions = np.random.default_rng(8).normal(size=(2, c.policy.dimension))
    for problem in (c, c.replace(kl=None)):
        estimators = [gt.estimators()[name] for name in NAMED]
        estimators = [one for one in estimators if group_size >= one.advantage.minimum_group_size]
        run = Simulated(problem, estimators, batch_size=4, group_size=group_size, directions=directions)
        for estimator in estimators:
            by_hand = run.by_hand(estimator, 7)
            np.testing.assert_allclose(run.observe(estimator)[:7], by_hand, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("batch_size", "group_size"), [(1, 5), (3, 1), (4, 2), (5, 5)])
def test_observations_of_binary_rewards(policy, batch_size, group_size):
    """All named estimators, whose parts are one, two or three for each group, of batches that are even and odd."""
    c = case(policy, "binary")
    directions = np.random.default_rng(8).normal(size=(2, c.policy.dimension))
    estimators = [gt.estimators()[name] for name in NAMED]
    estimators = [one for one in estimators if group_size >= one.advantage.minimum_group_size]
    run = Simulated(c, estimators, batch_size=batch_size, group_size=group_size, directions=directions)
    together, called = estimator_covectors.ContrastCovectors, estimator_covectors.OwnCovectors
    assert {type(one) for one in run.found} == {together, *([called] if group_size > 1 else [])}
    for estimator in estimators:
        by_hand = run.by_hand(estimator, 9)
        np.testing.assert_allclose(run.observe(estimator)[:9], by_hand, rtol=1e-11, atol=1e-12)


def test_nothing_is_left_of_the_panel_before(registry):
    """A kernel that is called, on a second panel in the same room."""
    c = case("tabular", "binary")
    estimator = gt.estimators()["optimal_loo"]
    one, other = (Simulated(c, [estimator], batch_size=3, group_size=4, seed=seed) for seed in (0, 1))
    (own,), buffers = other.found, batches.Buffers()
    counts = one.batches.counts._replace(prompts=one.batches.counts.prompts.copy(), outcomes=one.batches.counts.outcomes.copy())
    used = batches.Batches(counts, one.batches.ordered)
    own.fill(used, buffers)
    for mine, others in zip(counts, other.batches.counts, strict=True):
        mine[:] = others
    (again,), (alone,) = own.fill(used, buffers), own.fill(other.batches, batches.Buffers())
    assert alone.rows[:, :3].any(axis=(2, 3)).all()
    for found, expected in zip(again, alone, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("batch_size", [3, 40])
def test_an_estimator_gives_the_same_bits_alone_and_in_company(policy, batch_size):
    """Whose kernels have mean 0 are one part alone, and one of two in company; the batches are added up in all three ways."""
    c = case(policy, "binary")
    names = ["rloo", "oracle", "grpo", "reinforce", "optimal"]
    sizes = {"batch_size": batch_size, "group_size": 7, "replications": 500, "directions": np.eye(c.policy.dimension)[:2]}
    together = gt.simulate_gradients(c.problem, c.theta, names, **sizes, rng=3)
    for name, means in zip(names, together.means, strict=True):
        alone = gt.simulate_gradients(c.problem, c.theta, name, **sizes, rng=3)
        np.testing.assert_array_equal(alone.means[0], means)


@pytest.mark.parametrize("policy", CASES)
@pytest.mark.parametrize("parts", COMPOSITIONS, ids=lambda parts: ", ".join(parts.values()))
def test_observations_of_compositions_off_policy(parts, policy, registry):
    """Responses drawn by another policy, far enough away that ratios are clipped on both sides."""
    c, found = token_case(policy, "kl"), composed(**parts)
    directions, behaviour = np.random.default_rng(9).normal(size=(2, c.policy.dimension)), -0.6 * c.theta
    run = Simulated(c, [found], batch_size=4, group_size=3, behaviour=behaviour, directions=directions)
    ratios = run.dense.at(c.theta).responses / run.dense.at(behaviour).responses
    prompts, outcomes = run.by_replication()
    met = ratios[prompts[:, :, None], outcomes // c.bandit.values.size][:10]
    assert met.min() < 0.8
    assert met.max() > 1.28
    np.testing.assert_allclose(run.observe(found)[:10], run.by_hand(found, 10), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("policy", ["tabular", "head", "linear"])
def test_observations_of_large_batches(policy):
    """More groups than prompts: they are added up prompt by prompt."""
    c = token_case(policy)
    estimator = gt.estimators()["grpo"]
    run = Simulated(c, [estimator], batch_size=40, group_size=3)
    expected = errors.fill_errors_by_features if policy == "linear" else errors.fill_errors_by_prompt
    assert run.geometry.fill_errors is expected
    np.testing.assert_allclose(run.observe(estimator)[:4], run.by_hand(estimator, 4), rtol=1e-11, atol=1e-12)


def test_a_kernel_may_read_lengths_and_the_whole_batch(registry):
    def kernel(batch, advantages):
        mean = batch.rewards.mean()
        for b in range(batch.rewards.shape[0]):
            for g in range(batch.rewards.shape[1]):
                advantages[b, g] = (batch.rewards[b, g] - mean) / batch.lengths[b, g] + batch.squared_score_norms[b, g]

    found = gt.estimator("reads_for_one_test", couples_groups=True)(kernel)
    c = token_case("linear tree", "kl")
    run = Simulated(c, [found], batch_size=4, group_size=3, directions=np.eye(3))
    assert not run.found[0].in_order
    np.testing.assert_allclose(run.observe(found)[:9], run.by_hand(found, 9), rtol=1e-11, atol=1e-13)
    undeclared = gt.estimator("undeclared_for_one_test")(kernel)
    with pytest.raises(ValueError, match=r"'undeclared_for_one_test' must give a group the same .*couples_groups=True"):
        gt.simulate_gradients(c.problem, c.theta, undeclared, batch_size=4, group_size=3, replications=10, rng=0)


def test_an_affine_kernel_is_not_asked_for_coefficients_where_a_reward_is_infinite(registry):
    """That of a response with a probability of 1e-315, which is never drawn; 0 times infinity would be no number."""
    problem, theta = gt.gallery.problem("kl-tabular"), gt.gallery.problem("kl-tabular").theta.copy()
    sizes = {"batch_size": 2, "group_size": 4, "replications": 1000, "rng": 1}
    found = composed(kl="k3 in reward")
    advantage = replace(found.advantage, reads=found.advantage.reads | {"lengths"})
    called = replace(found, name="called_for_one_test", advantage=advantage)
    for height, source in ((72.5, response_sums.Affine), (725.0, response_sums.Called)):
        theta[0] = height
        point = problem.at(theta)
        with np.errstate(invalid="ignore"):
            assert type(estimator_covectors.own_covectors(point, point, found, 2, 4).source) is source
            run = gt.simulate_gradients(problem, theta, [found, called], **sizes)
        np.testing.assert_allclose(*run.means, rtol=1e-12)
        assert np.isfinite(run.means).all()


def test_a_kernel_that_looks_at_places_sees_the_order_drawn(registry):
    def kernel(batch, advantages):
        for b in range(batch.rewards.shape[0]):
            for g in range(batch.rewards.shape[1]):
                advantages[b, g] = batch.rewards[b, g] - batch.rewards[b, g - 1] * (g + 1.0)

    c, placed = token_case("tree", "kl"), gt.estimator("placed_for_one_test")(kernel)
    for found in (placed, composed(advantage=placed, ratio="token", clip="by sign")):
        run = Simulated(c, [found], batch_size=3, group_size=4, behaviour=-0.6 * c.theta)
        assert run.found[0].in_order
        np.testing.assert_allclose(run.observe(found)[:9], run.by_hand(found, 9), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("policy", CASES)
def test_the_simulator_draws_and_observes_what_is_written_out_here(policy, registry):
    """Means over the first replications of the first block, of two estimators, off policy."""
    c, found = token_case(policy, "kl"), composed(ratio="token", clip="by sign", kl="k3 in loss")
    estimators = [gt.estimators()["grpo"], found]
    directions, behaviour = np.random.default_rng(4).normal(size=(2, c.policy.dimension)), 0.7 * c.theta
    sizes = {"batch_size": 8, "group_size": 7, "behaviour": behaviour, "directions": directions}
    taken_apart = Simulated(c, estimators, **sizes, seed=5)
    run = gt.simulate_gradients(c.problem, c.theta, estimators, **sizes, replications=6, rng=5, workers=1)
    for means, estimator in zip(run.means, estimators, strict=True):
        np.testing.assert_allclose(means, taken_apart.by_hand(estimator, 6).mean(axis=0), rtol=1e-11, atol=1e-13)


# ---- tables and responses


@pytest.mark.parametrize("rewards", ["binary", "offset", "graded", "unsorted"])
@pytest.mark.parametrize("policy", ["tabular", "linear", "head", "tree"])
def test_a_table_and_a_kernel_that_is_shown_everything_give_the_same_estimates(policy, rewards, registry):
    """To the last bit, unless rewards are binary and the table's covectors are made of contrasts: then to rounding."""
    if policy == "tree" and rewards in ("binary", "offset"):
        pytest.skip("trees are graded")
    c = token_case(policy) if policy == "tree" or rewards in ("graded", "unsorted") else case(policy, "binary")
    if rewards == "offset":  # sums of such rewards are rounded
        c = c.replace(bandit=gt.Bandit.from_law([0.1, 0.7], c.bandit.probabilities, c.bandit.prompt_weights))
    if rewards == "unsorted":
        c = c.replace(bandit=gt.Bandit.from_law([2.0, -0.5, 1.0], c.bandit.probabilities, c.bandit.prompt_weights))
    made = [gt.estimators()["grpo"], gt.estimators()["oracle"], composed(ratio="token", clip="by sign", advantage="dr_grpo")]
    twins = [
        replace(one, name=f"{one.name}_shown", advantage=replace(one.advantage, reads=one.advantage.reads | {"lengths"}))
        for one in made
    ]
    sizes = {"batch_size": 3, "group_size": 6, "behaviour": 0.5 * c.theta, "directions": np.eye(c.policy.dimension)[:2]}
    run = Simulated(c, [*made, *twins], **sizes, tiles=2)
    by_table = [one for one in run.found if not isinstance(getattr(one, "source", None), response_sums.Called)]
    assert {estimator for one in by_table for estimator in one.estimators} == set(made)
    found = gt.simulate_gradients(c.problem, c.theta, [*made, *twins], **sizes, replications=1000, rng=3)
    together = [one for one in run.found if isinstance(one, estimator_covectors.ContrastCovectors)]
    contrasted = [estimator for one in together for estimator in one.estimators]
    assert contrasted == (made[:2] if c.bandit.values.size == 2 else [])
    for i, (one, other) in enumerate(zip(made, twins, strict=True)):
        rtol, atol = (1e-12, 1e-14) if one in contrasted else (0.0, 0.0)
        np.testing.assert_allclose(run.observe(one), run.observe(other), rtol=rtol, atol=atol)
        np.testing.assert_allclose(found.means[i], found.means[3 + i], rtol=rtol, atol=atol)


def test_a_kernel_whose_table_has_gaps_is_shown_what_is_drawn(registry):
    """Not a number where all rewards are equal, which no group of forty here is."""

    @gt.estimator("gaps_for_one_test")
    def gaps(batch, advantages):
        for b in range(batch.rewards.shape[0]):
            total = 0.0
            for g in range(batch.rewards.shape[1]):
                total += batch.rewards[b, g]
            rate = total / batch.rewards.shape[1]
            for g in range(batch.rewards.shape[1]):
                advantages[b, g] = (batch.rewards[b, g] - rate) / (rate * (1.0 - rate)) ** 0.5

    problem = gt.Problem(gt.Bandit([[0.5, 0.5]]), gt.TabularSoftmax(1, 2))
    run = gt.simulate_gradients(problem, [0.0, 0.3], gaps, batch_size=2, group_size=40, replications=500, rng=1)
    assert np.isfinite(run.mse).all()
    message = r"the kernel of estimator 'gaps_for_one_test' must fill finite advantages, and does not for a batch of 2 x 3 resp"
    with pytest.raises(ValueError, match=message):
        gt.simulate_gradients(problem, [0.0, 0.3], gaps, batch_size=2, group_size=3, replications=500, rng=1)


def last_of_equals(batch, advantages):
    """Leave the last response of a group out if all rewards are equal."""
    size = batch.rewards.shape[1]
    for b in range(batch.rewards.shape[0]):
        low, high = batch.rewards[b].min(), batch.rewards[b].max()
        for g in range(size - 1 if low == high else size):
            advantages[b, g] = batch.rewards[b, g]


@pytest.mark.parametrize("name", ["mixed", "kl-tabular", "sequence-shared"])
def test_a_gap_after_the_first_of_equal_responses_is_seen(name, registry):
    """Advantages are read off the first of them; the problems are without and with a penalty, and of sequences."""
    problem, found = gt.gallery.problem(name), gt.estimator("last_of_equals")(last_of_equals)
    sizes = {"batch_size": 2, "group_size": 3, "replications": 500, "rng": 1}
    with pytest.raises(ValueError, match="estimator 'last_of_equals' must fill finite advantages"):
        gt.simulate_gradients(problem, problem.theta, found, **sizes)
    with pytest.raises(ValueError, match=r"estimator 'last_of_equals' must fill finite advantages.*\[(\S+), \1, \1\]"):
        gt.simulate_training(problem, problem.theta, found, gt.Constant(0.1), steps=3, **sizes)


def test_groups_have_a_largest_size():
    problem = gt.gallery.problem("two-arms")
    sizes = {"batch_size": 1, "replications": 2, "rng": 0}
    with pytest.raises(ValueError, match="group_size must be at most 32768, got 32769"):
        gt.simulate_gradients(problem, problem.theta, "rloo", group_size=32769, **sizes)
    with pytest.warns(gt.exact.TableSizeWarning, match="'reinforce' is called for every group"):
        run = gt.simulate_gradients(problem, problem.theta, "reinforce", group_size=32768, **sizes)
    assert run.mse[0] < 0.01


# ---- drivers


@pytest.mark.parametrize("policy", ["tree", "head"])
@pytest.mark.parametrize("group_size", [1, 3, 4, 9, 31, 32, 70, 600])
def test_counts_are_those_of_the_outcomes_in_the_order_drawn(policy, group_size):
    """Drawn by 16 bits and by 8, with rewards that are random and that response and prompt decide."""
    c = token_case(policy)
    run = Simulated(c, [gt.estimators()["reinforce"]], batch_size=5, group_size=group_size, tiles=3)
    assert (len(run.law.coarse) > 0) == (group_size >= outcome_law.COARSE_GROUP)
    counts, ordered = run.batches.counts.outcomes, run.batches.ordered
    for outcome in range(counts.shape[2]):
        np.testing.assert_array_equal(counts[:, :, outcome], (ordered == outcome).sum(axis=2))


@pytest.fixture
def plain(monkeypatch):
    """Stages run as plain Python; what is compiled has been compiled before."""
    for driver in DRIVERS:
        driver.compile()
    for module in MODULES:
        for name, value in vars(module).items():
            if isinstance(value, Dispatcher):
                monkeypatch.setattr(module, name, value.py_func)


def copy(value):
    if isinstance(value, sheets.Sheet):  # its arrays look at one another
        words, parts = value.words.copy(), value[1:]
        memory = np.split(words.reshape(-1), np.cumsum([part.nbytes // 8 for part in parts]))[:-1]
        views = (own.view(part.dtype).reshape(part.shape) for own, part in zip(memory, parts, strict=True))
        return sheets.Sheet(words, *views)
    if isinstance(value, tuple):
        return type(value)._make(copy(part) for part in value) if hasattr(value, "_fields") else tuple(map(copy, value))
    return value.copy() if isinstance(value, np.ndarray) else value


class Twins:
    """In place of a driver's machine code: runs each call as plain Python too, and compares what both make of the arguments."""

    def __init__(self, driver, kernel):
        self.driver, self.compiled, self.kernel = driver, driver.run, kernel

    def __call__(self, *arguments):
        copies = [copy(argument) for argument in arguments]
        if self.driver in SUMS[2:]:
            copies[0] = self.kernel
        with np.errstate(over="ignore"):
            self.driver.function(*copies)
        self.compiled(*arguments)
        same(arguments[1:], copies[1:])
        same(arguments[0], copies[0])
        TRIED.add(self.driver)


TRIED = set()


def same(one, other):
    if isinstance(one, tuple | list):
        for parts in zip(one, other, strict=True):
            same(*parts)
    elif isinstance(one, np.ndarray) and one.dtype != np.float64:
        np.testing.assert_array_equal(one, other)
    elif isinstance(one, np.ndarray):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-13)


TWINNED = [
    ("tabular", {"advantage": "grpo"}, (2, 300), False),
    ("tree", {"advantage": "rloo", "kl": "k1 in reward"}, (2, 5), False),
    ("linear", {"advantage": "oracle", "ratio": "token", "clip": "by sign", "kl": "k2 in reward"}, (3, 5), False),
    ("tabular", {"advantage": "grpo", "kl": "k2 in reward"}, (3, 40), False),
    ("binary tabular", {"advantage": "grpo", "kl": "k2 in reward"}, (5, 1200), False),
    ("head", {"advantage": "optimal_loo"}, (2, 40), False),
    ("linear tree", {"ratio": "token", "clip": "by sign", "aggregation": "group tokens", "kl": "k3 in loss"}, (2, 3), False),
    ("tree", {"ratio": "token", "clip": "by sign", "advantage": "optimal_loo", "aggregation": "batch tokens"}, (2, 3), True),
    ("tabular", {"advantage": "dr_grpo"}, (33, 3), False),
    ("binary tabular", {"advantage": "grpo"}, (3, 40), False),
    ("binary head", {"advantage": "oracle"}, (2, 5), False),
    ("binary tabular", {"advantage": "optimal_loo"}, (3, 4), False),
]


def problem_of(policy):
    """A problem with graded rewards, or a binary one."""
    if policy.startswith("binary "):
        return case(policy.removeprefix("binary "), "binary", "kl")
    return token_case(policy, "kl")


def test_compiled_drivers_agree_with_plain_python(registry, plain, monkeypatch):
    """Every driver, and with them every stage that they are made of."""
    compiled = {driver: driver.run for driver in DRIVERS}
    assert random_streams.begin_streams.value  # compiled before what it calls is plain
    for policy, composition, (batch_size, group_size), in_order in TWINNED:
        registry.pop("composed_for_one_test", None)
        c, estimator = problem_of(policy), composed(**composition)
        if "kl" not in composition and "head" not in policy:
            c = c.replace(kl=None)
        kernel = estimator.advantage.function
        for driver, run in compiled.items():
            monkeypatch.setattr(driver, "run", run)
            monkeypatch.setattr(driver, "run", Twins(driver, kernel))
        sizes = {"batch_size": batch_size, "group_size": group_size, "behaviour": -0.6 * c.theta}
        run = Simulated(c, [estimator], **sizes, directions=np.eye(c.policy.dimension)[:1])
        if in_order:
            run.found[0] = replace(run.found[0], source=replace(run.found[0].source, in_order=True))
        assert np.isfinite(run.observe(estimator)).all()
    assert set(DRIVERS) == TRIED
    unused = STAGES - REACHED
    assert unused == {"read_blocks", "add_to_blocks"}, "which training uses"


@pytest.mark.parametrize("policy", CASES)
def test_records_have_the_types_that_drivers_declare(policy, registry):
    c = token_case(policy, "kl")
    made = [gt.estimators()["rloo"], gt.estimators()["optimal_loo"], gt.estimators()["oracle"], composed(kl="k3 in loss")]
    for problem in (c, c.replace(kl=None)):
        run = Simulated(problem, made[: 4 if problem.kl else 3], batch_size=2, group_size=3)
        sheet = sheets.make_sheet(run.law)
        room = counting.make_counting_room(run.law, sheet)
        declared_types = [
            (random_streams.block_streams(run.seed, 0), random_streams.STREAMS),
            (run.law, outcome_law.OUTCOME_LAW),
            (room, counting.COUNTING_ROOM),
            (sheet, sheets.SHEET),
            (run.batches.counts, counting.COUNTS),
            (run.geometry.truth, truth.TRUTH),
        ]
        for one in run.found:
            if isinstance(one, estimator_covectors.TableCovectors):
                declared_types.append((one.tables, tables.TABLES))
                continue
            declared_types.append((one.weighing, token_weights.TOKEN_WEIGHING))
            if isinstance(one.source, response_sums.Tabulated):
                declared_types.append((one.source.tables, tables.TABLES))
            elif isinstance(one.source, response_sums.Affine):
                declared_types.append((one.source.coefficients, affine.COEFFICIENTS))
            else:
                room, _ = one.source.room(batches.Buffers())
                declared_types += [(one.source.view, call_room.KERNEL_VIEW), (room, call_room.CALL_ROOM)]
                declared_types.append((room.batch, call_room.BATCH))
        for value, declared in declared_types:
            for name, field, expected in zip(value._fields, value, declared.types, strict=True):
                assert typeof(field) == expected, name


def test_the_streams_of_a_block_let_their_first_words_go():
    states = np.random.default_rng(3).integers(0, 1 << 63, (4, 5), dtype=np.uint64)
    for state in states.T:
        column = compiled(random_streams.mix)(*state)
        numpys = np.random.SFC64(0)
        numpys.state = numpys.state | {"state": {"state": state.copy()}}
        numpys.random_raw(random_streams.WARM_UP)
        np.testing.assert_array_equal(column, numpys.state["state"]["state"])


@pytest.mark.parametrize("block", [0, 1, 1 << 40])
def test_streams_begin_alike_compiled_and_as_plain_python(block):
    """A lane's state is the seed's words, the third with the lane's number added; the lone stream's has the block's number."""
    words = np.array([5, (1 << 64) - 7, (1 << 64) - 2], dtype=np.uint64)
    by_machine, by_python = random_streams.make_streams(2), random_streams.make_streams(2)
    random_streams.begin_streams(words, block, by_machine)
    with np.errstate(over="ignore"):
        plain_throughout(random_streams.begin_streams.function)(words, block, by_python)
    for one, other in zip(by_machine, by_python, strict=True):
        np.testing.assert_array_equal(one, other)
    first, second, third = map(int, words)
    numbers = [block * random_streams.LANES + j for j in range(random_streams.LANES)]
    begun = [(first, second, (third + number) % (1 << 64), 1) for number in numbers]
    begun.append((first ^ ((1 << 64) - 1), second, (third + block) % (1 << 64), 1))
    begun += [(one, second, (last + (random_streams.LANES if one == first else 1)) % (1 << 64), 1) for one, _, last, _ in begun]
    states = [one for rows in (slice(4), slice(4, 8)) for one in (*by_machine.lanes[rows].T, by_machine.lone[rows])]
    for state, found in zip(begun, states, strict=True):
        numpys = np.random.SFC64(0)
        numpys.state = numpys.state | {"state": {"state": np.array(state, dtype=np.uint64)}}
        numpys.random_raw(random_streams.WARM_UP)
        np.testing.assert_array_equal(found, numpys.state["state"]["state"])
