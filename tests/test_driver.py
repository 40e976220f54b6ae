"""The stages and drivers of the simulators: compiled and as plain Python, and against dense arithmetic."""

from functools import partial

import numpy as np
import pytest
from dense import TREES, Dense, token_case
from enumeration import NAMED, PENALTIES, POLICIES, case
from numba import typeof
from numba.core.dispatcher import Dispatcher

import grpo_theory as gt
from grpo_theory.compilation import FunctionValue, first_class
from grpo_theory.estimation.clip import CLIPS
from grpo_theory.estimation.kernel import SIGNATURE
from grpo_theory.estimation.kl_term import KL_TERMS
from grpo_theory.estimation.ratio import RATIOS
from grpo_theory.exact import weights
from grpo_theory.problem.logit_map import FeatureMap, HeadMap, TabularMap
from grpo_theory.simulate import (
    advance,
    alias,
    ascent,
    covector,
    draw,
    geometry,
    learner,
    observation,
    record,
    show,
    world,
)
from grpo_theory.simulate.draws import block_draws, by_replication, strip_replications, tabulate
from grpo_theory.simulate.gradients import make_plan
from grpo_theory.simulate.streams import as_seed_sequence, block_generator

MODULES = (alias, ascent, covector, draw, geometry, learner, observation, record, show, weights)
CASES = (*POLICIES, *TREES)
MAPS = {"tabular": TabularMap, "dense": FeatureMap, "head": HeadMap}
NORMS = {map_class: getattr(geometry, f"{kind}_norm") for kind, map_class in MAPS.items()}


# ---- every stage, compiled and as plain Python on the same arrays


def stages():
    """Return all stages by name: those that are compiled into their drivers, and those that drivers take as values."""
    found = {}
    for module in MODULES:
        for name, value in vars(module).items():
            if isinstance(value, Dispatcher | FunctionValue):
                found[name] = value
    return found


def twins(stage, *arguments):
    """Run a stage compiled and as plain Python on copies of the arguments; return what both have made of them.

    A `FunctionValue` and an `Advantage` among the arguments are given to each in its own form.
    """

    def given(argument, compiled):
        if isinstance(argument, FunctionValue):
            return argument.value if compiled else argument.function
        if isinstance(argument, gt.Estimator):
            kernel = argument.advantage
            return first_class(kernel.kernel, SIGNATURE) if compiled else kernel.function
        if isinstance(argument, tuple):
            return type(argument)._make(given(part, compiled) for part in argument)
        return argument.copy() if isinstance(argument, np.ndarray) else argument

    plain = stage.function if isinstance(stage, FunctionValue) else stage.py_func
    results = []
    for function, compiled in ((stage, True), (plain, False)):
        copies = [given(argument, compiled) for argument in arguments]
        results.append((function(*copies), *copies))
    same(*results)
    return results[0]


def same(one, other):
    """Compare arrays and numbers, within tuples too, to rounding; integers to the bit."""
    if isinstance(one, tuple):
        for parts in zip(one, other, strict=True):
            same(*parts)
    elif isinstance(one, np.ndarray) and one.dtype == np.int64:
        np.testing.assert_array_equal(one, other)
    elif isinstance(one, np.ndarray | float):
        np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-14)


class Arrays:
    """Arrays of the shapes that a step on a tree has: B groups of G responses of each of R runs, and what they know of it."""

    def __init__(self, policy="linear tree", runs=3, batch_size=4, group_size=3):
        self.dense = Dense(token_case(policy, "kl"))
        self.problem = self.dense.problem
        self.paths = self.problem.policy.paths
        self.rng = np.random.default_rng(0)
        self.runs, self.n, self.g = runs, runs * batch_size, group_size
        self.o = self.problem.bandit.values.size * self.paths.n_responses
        self.k, self.d, self.m = self.paths.n_responses, self.paths.n_logits, self.problem.policy.n_prompts
        self.prompts = self.integers(self.m, self.n)
        self.outcomes = self.integers(self.o, self.g, self.n)
        self.places = np.arange(self.n) % runs * batch_size + np.arange(self.n) // runs
        self.point = self.problem.at(self.problem.theta)
        self.tokens = np.ascontiguousarray(self.point.token_probabilities[self.prompts].T)

    def integers(self, below, *shape):
        return self.rng.integers(below, size=shape)

    def numbers(self, *shape):
        return self.rng.normal(size=shape)

    def uniforms(self, *shape):
        return self.rng.random(shape)

    def ascent_case(self):
        """Two runs, two prompts each, lane by lane in turn; the second run's are the same one twice."""
        theta = np.stack([self.problem.theta, -self.problem.theta])
        return theta, np.array([1, 0, 0, 0]), ascent.ascent(self.problem.policy).array

    def trace(self):
        window = np.array([0, 2])
        paths, features = self.paths, self.dense.features
        shapes = (self.runs, 3, features.shape[2]), (self.runs, 2), (self.runs, features.shape[2], features.shape[2])
        kept = (self.numbers(*shape) for shape in shapes)
        return record.Trace(
            *kept, window, features, paths.edges, paths.lengths, self.point.outcome_responses, paths.vocabulary_size
        )


def try_fill_alias(stage):
    law = np.random.default_rng(1).dirichlet(np.ones(5), size=2)
    twins(stage, law, np.empty((2, 5)), np.empty((2, 10), dtype=np.int64))


def try_draw_prompts(stage):
    a = Arrays()
    table = alias.alias_table(np.array([[0.2, 0.5, 0.3]]))
    *_, found = twins(stage, a.uniforms(200), *table, np.zeros(200, dtype=np.int64))
    assert set(found) == {0, 1, 2}


def try_look_up(stage):
    a = Arrays()
    table = a.numbers(5, a.m)
    *_, found = twins(stage, table, a.prompts, np.empty((5, a.n)))
    np.testing.assert_array_equal(found, table[:, a.prompts])


def try_draw_outcomes(stage):
    a = Arrays()
    thresholds = np.sort(a.uniforms(a.o - 1, a.n), axis=0)
    uniforms = a.uniforms(a.g, a.n)
    uniforms[0, 0] = thresholds[2, 0]
    *_, found = twins(stage, uniforms, thresholds, np.zeros((a.g, a.n), dtype=np.int64))
    np.testing.assert_array_equal(found, (uniforms >= thresholds[:, None]).sum(axis=0))


def try_show_prompts(stage):
    a = Arrays()
    fields = a.numbers(3, a.m)
    *_, rows, _, values, deviations, baselines = twins(stage, fields, a.prompts, a.places, *np.zeros((3, a.n)))
    for field, shown in zip(fields, (values, deviations, baselines), strict=True):
        np.testing.assert_array_equal(shown[a.places], field[rows])
    twins(stage, np.empty((0, 0)), a.prompts, a.places, *np.zeros((3, a.n)))


def try_show_responses(stage):
    a = Arrays()
    rewards, norms, lengths = a.numbers(a.o, a.m), a.numbers(a.k, a.m), a.paths.lengths
    responses, shape = a.point.outcome_responses, (a.n, a.g)
    room = np.zeros(shape), np.full(shape, np.nan), np.ones(shape, dtype=np.int64)
    for read in (True, False):
        asked = (norms, lengths) if read else (norms[:0], lengths[:0])
        *_, shown, seen_norms, seen_lengths = twins(stage, a.outcomes, a.prompts, a.places, responses, rewards, *asked, *room)
        at = a.outcomes.T, a.prompts[:, None]
        np.testing.assert_array_equal(shown[a.places], rewards[at])
        np.testing.assert_array_equal(seen_norms[a.places], norms[responses[at[0]], at[1]] if read else room[1])
        np.testing.assert_array_equal(seen_lengths[a.places], lengths[responses[at[0]]] if read else room[2])


def try_fill_advantages(stage):
    a = Arrays()
    shape = a.n, a.g
    batch = gt.Batch(a.numbers(*shape), a.numbers(*shape) ** 2, a.integers(3, *shape) + 1, *a.numbers(3, a.n), np.array([0.1]))
    for name in ("grpo", "optimal_loo"):
        for at_a_time in (a.n, 4):
            twins(stage, gt.estimators()[name], batch, at_a_time, np.zeros(shape))


def try_add_tokens(stage):
    a = Arrays()
    advantages = a.numbers(a.n, a.g)
    gains, drifts = a.numbers(a.k, 2, 3, 6), a.numbers(a.k, 3, 6)
    fixed = a.outcomes, 6, a.places, advantages, a.point.outcome_responses, a.paths.edges, a.paths.lengths
    for offered in (drifts, drifts[:0]):
        twins(stage, *fixed, gains, offered, np.arange(6), np.zeros((a.d, 6)))
    twins(stage, *fixed, gains[..., :1].copy(), drifts[:0], np.zeros(6, dtype=np.int64), np.zeros((a.d, 6)))


def try_pool_tokens(stage):
    a = Arrays()
    for pools in (0, 3, 6):
        twins(stage, a.outcomes, 6, pools, a.point.outcome_responses, a.paths.lengths, a.numbers(a.d, 6))


def try_centre(stage):
    a = Arrays()
    sums = a.numbers(a.d, a.n)
    *_, centred, tokens, size = twins(stage, sums, a.tokens, a.paths.vocabulary_size)
    np.testing.assert_allclose(centred, a.paths.centre(sums.T, tokens.T).T, atol=1e-14)
    assert size == 2


def try_fill_tokens(stage):
    a = Arrays()
    logits = np.ascontiguousarray(30.0 * a.problem.policy.logits(a.problem.theta)[a.prompts].T)
    for room in (np.empty((a.d, a.n)), np.empty((0, 0))):
        *_, tokens, logs = twins(stage, logits, a.paths.vocabulary_size, np.empty((a.d, a.n)), room)
        expected = a.paths.log_probabilities(logits.T).T
        np.testing.assert_allclose(tokens, np.exp(expected), rtol=1e-12)
        if room.size:
            np.testing.assert_allclose(logs, expected, rtol=1e-12, atol=1e-14)


def try_fill_responses(stage):
    a = Arrays()
    *_, pi = twins(stage, a.tokens, a.paths.edges, a.paths.lengths, np.empty((a.k, a.n)))
    np.testing.assert_allclose(pi, a.point.probabilities[a.prompts].T, rtol=1e-13)


def try_fill_thresholds(stage):
    a = Arrays()
    pi = np.ascontiguousarray(a.point.probabilities[a.prompts].T)
    *_, thresholds = twins(stage, pi, a.problem.bandit.probabilities, a.prompts, np.empty((a.o - 1, a.n)))
    expected = np.cumsum(a.point.outcome_probabilities, axis=1)[a.prompts, :-1].T
    np.testing.assert_allclose(thresholds, expected, rtol=1e-12)


def try_fill_rewards(stage):
    a = Arrays()
    penalties = a.numbers(a.k, a.n)
    *_, rewards = twins(stage, a.problem.bandit.values, penalties, np.empty((a.o, a.n)))
    np.testing.assert_allclose(rewards, np.tile(a.problem.bandit.values, a.k)[:, None] - penalties.repeat(3, axis=0))


def try_fill_log_ratios(stage):
    a = Arrays()
    logs, reference = a.numbers(a.d, a.n), a.numbers(a.d, a.m)
    *_, found = twins(stage, logs, reference, a.prompts, np.empty((a.d, a.n)))
    np.testing.assert_array_equal(found, logs - reference[:, a.prompts])


def try_fill_penalties(stage):
    a = Arrays()
    terms = a.numbers(a.d, a.n)
    *_, found = twins(stage, terms, a.paths.edges, a.paths.lengths, 0.3, np.ones((a.k, a.n)))
    np.testing.assert_allclose(found, 0.3 * a.paths.along(terms.T).T, atol=1e-14)


def try_fill_norms(stage):
    a = Arrays()
    gram = np.array(a.problem.policy.logit_map.gram())
    fixed = a.tokens, gram, a.paths.edges, a.paths.lengths, a.paths.vocabulary_size, a.prompts
    *_, norms = twins(stage, *fixed, np.empty((a.k, a.n)))
    np.testing.assert_allclose(norms, a.point.squared_score_norms[a.prompts].T, rtol=1e-11, atol=1e-13)
    twins(stage, *fixed, np.empty((0, 0)))


def try_fill_fields(stage):
    a = Arrays()
    pi, penalties, norms = (
        np.ascontiguousarray(table[a.prompts].T)
        for table in (a.point.probabilities, a.point.penalties, a.point.squared_score_norms)
    )
    bandit = a.problem.bandit
    squares = np.ascontiguousarray((bandit.probabilities @ bandit.values**2).T)
    means = np.ascontiguousarray(bandit.mean_reward.T)
    *_, fields = twins(stage, pi, penalties, norms, means, squares, a.prompts, np.empty((3, a.n)))
    m = a.point.moments
    expected = np.stack([m.value, m.standard_deviation, m.optimal_baseline])[:, a.prompts]
    np.testing.assert_allclose(fields, expected, rtol=1e-11)
    *_, fields = twins(stage, pi, penalties, norms[:0], means, squares, a.prompts, np.empty((3, a.n)))
    np.testing.assert_allclose(fields[:2], expected[:2], rtol=1e-11)
    twins(stage, pi, penalties, norms, means, squares, a.prompts, np.empty((0, 0)))


def try_fill_drift(stage):
    a = Arrays()
    now, then = a.numbers(a.d, 6), a.numbers(a.d, a.n)
    *_, found = twins(stage, now, then, 6, np.empty((a.d, 6)))
    np.testing.assert_array_equal(found, now - then[:, 6:])


def try_fill_drifts(stage):
    a = Arrays()
    slopes, shares = a.numbers(a.d, a.n), a.uniforms(a.k)
    *_, drifts = twins(stage, slopes, a.paths.edges, a.paths.lengths, 0.3, shares, np.zeros((a.k, 3, a.n)))
    expected = -0.3 * a.paths.gather(slopes.T) * shares[:, None]
    np.testing.assert_allclose(drifts, np.moveaxis(expected, 0, -1), atol=1e-15)


def try_fill_gains(stage):
    a = Arrays()
    for ratio in RATIOS.values():
        for clip in CLIPS.values():
            gains = np.zeros((a.k, 2, 3, a.n))
            known = a.paths.edges, a.paths.lengths, a.uniforms(a.k), clip.widths
            twins(stage, ratio.fill, clip.fill, 0.2 * a.numbers(a.d, a.n), *known, gains)


def logits_of(policy, stage):
    a = Arrays(policy)
    theta, prompts, array = a.ascent_case()
    *_, logits = twins(stage, theta, prompts, array, np.empty((a.d, 4)))
    for i, prompt in enumerate(prompts):
        np.testing.assert_allclose(logits[:, i], a.dense.features[prompt] @ theta[i % 2], atol=1e-14)


def step_of(policy, stage):
    a = Arrays(policy)
    theta, prompts, array = a.ascent_case()
    covectors = a.numbers(a.d, 4)
    _, moved, *_ = twins(stage, theta, prompts, array, covectors, 0.3)
    for i, prompt in enumerate(prompts):
        theta[i % 2] += 0.3 * a.dense.features[prompt].T @ covectors[:, i]
    np.testing.assert_allclose(moved, theta, atol=1e-14)


def norm_of(policy, stage):
    a = Arrays(policy)
    array = geometry.geometry(a.problem.policy).array
    for used in range(a.m + 1):
        prompts, covectors = a.rng.permutation(a.m), a.numbers(a.m, a.d)
        gradient = sum((covectors[u] @ a.dense.features[prompts[u]] for u in range(used)), np.zeros(a.dense.dimension))
        found, *_ = twins(stage, used, prompts, covectors, array)
        assert found == pytest.approx(gradient @ gradient, rel=1e-13)


def try_project(stage):
    a = Arrays()
    theta, ball = a.numbers(5, 3), np.array([0.1, -0.2, 0.3, 1.0])
    _, projected, _ = twins(stage, theta, ball)
    distance = np.linalg.norm(theta - ball[:3], axis=1)
    assert (distance > 1.0).any()
    assert (distance < 1.0).any()
    np.testing.assert_allclose(np.linalg.norm(projected - ball[:3], axis=1), np.minimum(distance, 1.0), rtol=1e-13)
    _, left, _ = twins(stage, theta, np.empty(0))
    np.testing.assert_array_equal(left, theta)


def try_follow(stage):
    a = Arrays()
    theta, start, average, farthest = a.numbers(5, 3), a.numbers(5, 3), a.numbers(5, 3), np.full(5, 2.0)
    *_, means, largest = twins(stage, theta, 4.0, start, average, farthest)
    np.testing.assert_allclose(means, (3.0 * average + theta) / 4.0)
    np.testing.assert_allclose(largest, np.maximum(farthest, ((theta - start) ** 2).sum(axis=1)))


def try_add_hessian(stage):
    a = Arrays()
    for group_size in (1, 3):
        rewards = a.numbers(group_size)
        twins(stage, a.numbers(a.d, a.d), a.tokens, 2, a.outcomes[:group_size], rewards, 0.3, a.trace())


def try_keep_rollouts(stage):
    a = Arrays()
    rewards = a.numbers(a.n, a.g)
    for rollout, trace in ((1, a.trace()), (1, a.trace()._replace(window=np.array([0, 1]))), (0, record.NO_TRACE)):
        *_, kept = twins(stage, rollout, a.prompts, a.tokens, a.outcomes, rewards, a.places, 0.3, trace)
        if trace is not record.NO_TRACE:
            np.testing.assert_allclose(kept.mean_rewards[:, rollout], rewards.reshape(a.runs, -1).mean(axis=1))
            assert np.array_equal(kept.hessian, trace.hessian) is bool(trace.window[1] == 1)


def try_keep_iterates(stage):
    a = Arrays()
    theta = a.numbers(a.runs, a.dense.dimension)
    *_, kept = twins(stage, 2, theta, a.trace())
    np.testing.assert_array_equal(kept.path[:, 2], theta)
    twins(stage, 2, theta, record.NO_TRACE)


def try_measure(stage):
    a = Arrays()
    truth = truth_of(a.dense, a.problem.theta, a.numbers(2, a.dense.dimension))
    covectors, room = a.numbers(a.d, a.n), np.full((a.runs, 4), np.nan)
    twins(stage, geometry.dense_norm, geometry.geometry(a.problem.policy).array, covectors, a.prompts, 4, truth, room)


TRIALS = {name.removeprefix("try_"): trial for name, trial in vars().items() if name.startswith("try_")} | {
    f"{kind}_{part}": partial(trial, policy)
    for kind, policy in (("tabular", "tree"), ("dense", "linear tree"), ("head", "head tree"))
    for part, trial in (("logits", logits_of), ("step", step_of), ("norm", norm_of))
}


@pytest.mark.parametrize("name", TRIALS)
def test_compiled_stages_agree_with_plain_python(name):
    TRIALS[name](stages()[name])


def test_every_stage_is_tried():
    assert set(TRIALS) == set(stages())
    drivers = vars(advance)
    assert {name for name in drivers if isinstance(drivers[name], Dispatcher | FunctionValue)} <= set(TRIALS)


@pytest.mark.parametrize("part", [*RATIOS.values(), *CLIPS.values(), *KL_TERMS.values()], ids=lambda part: part.name)
def test_parts_of_an_estimator_agree_with_plain_python(part):
    rng = np.random.default_rng(2)
    log_ratios, room = 0.3 * rng.normal(size=(3, 20)), np.zeros((3, 20))
    if part in RATIOS.values():
        twins(part.fill, log_ratios, 2, room)
    elif part in CLIPS.values():
        for positive in (True, False):
            twins(part.fill, np.exp(log_ratios), 2, positive, part.widths, room)
    else:
        twins(part.fill, log_ratios, room)


@pytest.mark.parametrize(
    ("policy", "kind"), [*zip(POLICIES, MAPS, strict=True), ("tree", "tabular"), ("linear tree", "dense"), ("head tree", "head")]
)
def test_a_policy_has_the_functions_of_its_map(policy, kind):
    chosen = token_case(policy).policy
    assert type(chosen.logit_map) is MAPS[kind]
    logits, step, norm = (getattr(ascent, f"{kind}_logits"), getattr(ascent, f"{kind}_step"), getattr(geometry, f"{kind}_norm"))
    assert ascent.ascent(chosen)[:2] == (logits.value, step.value)
    assert geometry.geometry(chosen).squared_norm is norm.value


# ---- what the drivers are given: they take records at their word, so every field must have the type that they declare


def given_and_declared(problem, estimator, updates):
    """Return the records of both simulators, and their types."""
    layout = world.Layout(3, 4, 5, updates)
    made = world.make_world(problem, estimator)
    recipe = world.make_recipe(problem, estimator, layout)
    point = problem.at(problem.theta)
    return [
        (made, advance.WORLD),
        (recipe, advance.RECIPE),
        (world.make_room(problem, estimator, made, recipe, layout), advance.ROOM),
        (world.make_batch(estimator, layout), show.BATCH),
        (world.make_parts(problem, estimator), advance.PARTS),
        (record.NO_TRACE, record.TRACE),
        (tabulate(point), observation.TABLES),
        (make_plan(point, point, estimator, 4, 3), observation.PLAN),
    ]


@pytest.mark.parametrize("policy", CASES)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_records_have_the_types_that_drivers_declare(policy, penalty, registry):
    problem = token_case(policy, penalty).problem
    made = [composed(ratio="token", aggregation="batch tokens", kl="k3 in loss")] if penalty == "kl" else []
    for estimator in (*made, *(gt.estimators()[name] for name in ("rloo", "optimal", "optimal_loo", "dapo"))):
        for updates in (1, 2):
            for value, declared in given_and_declared(problem, estimator, updates):
                for name, field, expected in zip(value._fields, value, declared.types, strict=True):
                    assert typeof(field) == expected, name


# ---- the drivers of the gradient simulator


def truth_of(dense, theta, directions):
    """Tabulate the problem at theta from dense arithmetic."""
    at = dense.at(theta)
    covectors, gradients = dense.gradients(at)
    gradient = dense.bandit.prompt_weights @ gradients
    paths = dense.problem.policy.paths
    return observation.Truth(
        np.ascontiguousarray(at.tokens.T),
        paths.edges,
        paths.lengths,
        paths.vocabulary_size,
        np.ascontiguousarray(covectors.T),
        np.einsum("mkd,jd->jmk", dense.features, np.concatenate([gradient[None], directions])),
        float(gradient @ gradient),
    )


@pytest.fixture
def plain(monkeypatch):
    """Drivers run as plain Python, their stages included; what is compiled has been compiled before."""
    for compiled in (
        observation.compiled_fill_outcomes,
        observation.compiled_fill_observations,
        advance.compiled_advance,
        weights.compiled_fill_gains,
    ):
        compiled()
    for module in (*MODULES, advance):
        for name, value in vars(module).items():
            if isinstance(value, Dispatcher):
                monkeypatch.setattr(module, name, value.py_func)


def drawn(problem, theta, strips, strip, batch_size, group_size, number=0):
    return block_draws(np.random.default_rng(number), tabulate(problem.at(theta)), strips, strip, batch_size, group_size)


@pytest.mark.parametrize("policy", CASES)
def test_compiled_draws_agree_with_plain_python(policy, plain):
    c = token_case(policy, "kl")
    tables, uniforms = tabulate(c.problem.at(c.theta)), np.random.default_rng(0).random((3, 6, 20))
    rooms = [(np.zeros((3, 20), dtype=np.int64), np.zeros((3, 5, 20), dtype=np.int64)) for _ in range(2)]
    observation.compiled_fill_outcomes()(uniforms, tables, *rooms[0])
    observation.fill_outcomes(uniforms, tables, *rooms[1])
    assert observation.compiled_fill_outcomes().py_func is observation.fill_outcomes
    for one, other in zip(*rooms, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("policy", CASES)
def test_draws_are_those_of_an_inversion_by_hand(policy):
    c = token_case(policy)
    dense, tables = Dense(c), tabulate(c.problem.at(c.theta))
    generators = [np.random.default_rng(1) for _ in range(2)]
    prompts, outcomes = by_replication(block_draws(generators[0], tables, 4, 5, 3, 6), 3)
    uniforms = generators[1].random((4, 7, 3, 5)).transpose(0, 3, 1, 2).reshape(20, 7, 3)
    for r in range(20):
        expected = dense.draw(dense.at(c.theta), tables.prompt_threshold, tables.prompt_choices, uniforms[r])
        for found, one in zip((prompts[r], outcomes[r]), expected, strict=True):
            np.testing.assert_array_equal(found, one)


def test_what_cannot_happen_is_not_drawn_by_the_largest_uniform():
    """The last outcome of the second prompt is impossible, however its distribution function rounds."""
    c = token_case("tree")
    tables = tabulate(c.problem.at(c.theta))
    uniforms = np.full((1, 2, 1), np.nextafter(1.0, 0.0))
    uniforms[0, 0] = 0.5
    prompts, outcomes = np.zeros((1, 1), dtype=np.int64), np.zeros((1, 1, 1), dtype=np.int64)
    observation.fill_outcomes(uniforms, tables, prompts, outcomes)
    assert prompts[0, 0] == 1
    assert c.problem.at(c.theta).outcome_probabilities[1, -1] == 0.0
    assert outcomes[0, 0, 0] == 10


def test_draws_are_outcomes_of_their_prompt():
    c = case("linear", "binary", "kl")
    point = c.problem.at(c.theta)
    prompts, outcomes = by_replication(drawn(c.problem, c.theta, 7, 5, 5, 4), 5)
    m, responses = prompts[:, :, None], point.outcome_responses[outcomes]
    value = point.rewards[m, outcomes] + point.penalties[m, responses]
    np.testing.assert_allclose(value, np.round(value), atol=1e-12)
    assert set(np.unique(np.round(value))) == {0.0, 1.0}
    assert set(np.unique(prompts)) == {0, 1}
    # The first response to the first prompt never succeeds, the second to the second always does.
    assert (np.round(value)[(m == 0) & (responses == 0)] == 0.0).all()
    assert (np.round(value)[(m == 1) & (responses == 1)] == 1.0).all()


def observe(dense, theta, behaviour, estimator, draws, batch_size, directions, compiled=True):
    """Observe an estimator with the driver, shape (replications, 2 + J)."""
    problem, n_strips = dense.problem, len(draws.prompts)
    strip = draws.prompts.shape[1] // batch_size
    plan = make_plan(problem.at(theta), problem.at(behaviour), estimator, batch_size, strip)
    norm, array = NORMS[type(problem.policy.logit_map)], geometry.geometry(problem.policy).array
    truth, responses = truth_of(dense, theta, directions), problem.at(behaviour).outcome_responses
    found = np.full((n_strips, strip, 2 + len(directions)), np.nan)
    given = array, plan, truth, *draws, responses, batch_size, found
    if compiled:
        kernel = first_class(estimator.advantage.kernel, SIGNATURE)
        observation.compiled_fill_observations()(kernel, norm.value, *given)
    else:
        observation.fill_observations(estimator.advantage.function, norm.function, *given)
    return found.reshape(-1, 2 + len(directions))


def by_hand(dense, theta, behaviour, estimator, draws, batch_size, directions):
    """The squared errors and projections of the estimates, from dense scores and the kernel as plain Python."""
    now, then = dense.at(theta), dense.at(behaviour)
    gradients = dense.gradients(now)[1]
    gradient = dense.bandit.prompt_weights @ gradients
    rows = []
    for prompts, outcomes in zip(*by_replication(draws, batch_size), strict=True):
        advantages = dense.advantages(then, estimator, prompts, outcomes)
        by_group = dense.estimates(now, then, estimator, prompts, outcomes, advantages)
        error = ((by_group.mean(axis=0) - gradient) ** 2).sum()
        prompt_error = ((by_group - gradients[prompts]) ** 2).sum(axis=1).mean()
        rows.append([error, prompt_error, *(directions @ by_group.mean(axis=0))])
    return np.array(rows)


@pytest.mark.parametrize("policy", CASES)
@pytest.mark.parametrize(
    ("name", "group_size"),
    [(name, size) for name in NAMED for size in (1, 2, 5) if size >= gt.estimators()[name].advantage.minimum_group_size],
)
def test_observations_against_dense_arithmetic(name, policy, group_size, plain):
    """The squared errors and projections of the estimate; compiled, and as plain Python with all its stages."""
    c = token_case(policy, "kl")
    directions = np.random.default_rng(8).normal(size=(2, c.policy.dimension))
    asked = Dense(c), c.theta, c.theta, gt.estimators()[name], drawn(c.problem, c.theta, 2, 3, 4, group_size), 4, directions
    compiled = observe(*asked)
    np.testing.assert_allclose(compiled, by_hand(*asked), rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(compiled, observe(*asked, compiled=False), rtol=1e-11, atol=1e-13)
    assert observation.compiled_fill_observations().py_func is observation.fill_observations


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


@pytest.mark.parametrize("policy", CASES)
@pytest.mark.parametrize("parts", COMPOSITIONS, ids=lambda parts: ", ".join(parts.values()))
def test_observations_of_compositions_off_policy(parts, policy, plain, registry):
    """Responses drawn by another policy, far enough away that ratios are clipped on both sides."""
    c, found = token_case(policy, "kl"), composed(**parts)
    dense, directions, behaviour = Dense(c), np.random.default_rng(9).normal(size=(2, c.policy.dimension)), -0.6 * c.theta
    draws = drawn(c.problem, behaviour, 2, 5, 4, 3)
    ratios = dense.at(c.theta).responses / dense.at(behaviour).responses
    met = ratios[draws.prompts[:, None], draws.outcomes // c.bandit.values.size]
    assert met.min() < 0.8
    assert met.max() > 1.28
    asked = dense, c.theta, behaviour, found, draws, 4, directions
    compiled = observe(*asked)
    np.testing.assert_allclose(compiled, by_hand(*asked), rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(compiled, observe(*asked, compiled=False), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("coupled", [True, False])
def test_a_kernel_may_read_lengths_and_the_whole_batch(coupled, plain, registry):
    def kernel(batch, advantages):
        mean = batch.rewards.mean()
        for b in range(batch.rewards.shape[0]):
            for g in range(batch.rewards.shape[1]):
                advantages[b, g] = (batch.rewards[b, g] - mean) / batch.lengths[b, g] + batch.squared_score_norms[b, g]

    found = gt.estimator("reads_for_one_test", couples_groups=coupled)(kernel)
    c = token_case("linear tree", "kl")
    asked = Dense(c), c.theta, c.theta, found, drawn(c.problem, c.theta, 2, 3, 4, 3), 4, np.eye(3)
    agree = np.allclose(observe(*asked), by_hand(*asked), rtol=1e-11, atol=1e-13)
    assert agree is coupled, "undeclared, it is shown the groups of a whole strip"
    np.testing.assert_allclose(observe(*asked), observe(*asked, compiled=False), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("policy", CASES)
def test_the_simulator_draws_and_observes_what_is_written_out_here(policy, registry):
    """Means over the first replications of the first block, of two estimators, off policy."""
    c, found = token_case(policy, "kl"), composed(ratio="token", clip="by sign", kl="k3 in loss")
    dense, sizes = Dense(c), {"batch_size": 64, "group_size": 7}
    directions, behaviour = np.random.default_rng(4).normal(size=(2, c.policy.dimension)), 0.7 * c.theta
    strip = strip_replications(64, 7)
    draws = block_draws(block_generator(as_seed_sequence(5), 0), tabulate(c.problem.at(behaviour)), 2, strip, 64, 7)
    assert 1 < strip < 6 < 2 * strip
    run = gt.simulate_gradients(
        c.problem, c.theta, ["grpo", found], **sizes, replications=6, rng=5, workers=1, behaviour=behaviour, directions=directions
    )
    for means, estimator in zip(run.means, (gt.estimators()["grpo"], found), strict=True):
        expected = by_hand(dense, c.theta, behaviour, estimator, draws, 64, directions)[:6].mean(axis=0)
        np.testing.assert_allclose(means, expected, rtol=1e-11, atol=1e-13)


# ---- logit maps of a user's own


class Shifted(gt.LogitMap):
    """A map of a user's own: logits theta_0 k + theta_1 m k."""

    n_prompts, n_logits, dimension = 2, 3, 2
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
    policies = gt.Policy(Shifted()), gt.LinearSoftmax(Shifted.features)
    bandit, theta = gt.Bandit(np.random.default_rng(5).uniform(size=(2, 3))), [0.3, -0.2]
    own, twin = (gt.Problem(bandit, policy, theta=theta) for policy in policies)
    sizes = {"batch_size": 3, "group_size": 4}
    laws = [gt.gradient_law(one, theta, "optimal_loo", **sizes) for one in (own, twin)]
    np.testing.assert_allclose(laws[0].covariance(), laws[1].covariance(), rtol=1e-12)
    assert np.array_equal(geometry.geometry(own.policy).array, Shifted.features)
    sizes |= {"replications": 400, "rng": 1, "workers": 1}
    runs = [gt.simulate_gradients(one, theta, "rloo", **sizes) for one in (own, twin)]
    np.testing.assert_allclose(runs[0].means, runs[1].means, rtol=1e-13)
    sizes |= {"steps": 20, "replications": 4}
    trained = [gt.simulate_training(one, theta, "optimal_loo", gt.Constant(0.1), **sizes).theta for one in (own, twin)]
    np.testing.assert_allclose(*trained, rtol=1e-12)


def test_a_subclass_with_maps_of_its_own_is_simulated_by_them():
    class Doubled(FeatureMap):
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

        def squared_norms(self, covectors):
            return 4.0 * super().squared_norms(covectors)

    c = case("linear")
    arguments = {"batch_size": 3, "group_size": 4, "replications": 400, "rng": 1, "workers": 1}
    policies = gt.Policy(Doubled(c.features.copy())), gt.LinearSoftmax(2.0 * c.features)
    own, twin = (c.replace(policy=policy).problem for policy in policies)
    for estimator in ("rloo", "optimal_loo"):
        runs = [gt.simulate_gradients(one, c.theta, estimator, **arguments) for one in (own, twin)]
        np.testing.assert_allclose(runs[0].means, runs[1].means, rtol=1e-13)
    arguments |= {"steps": 20, "replications": 4}
    trained = [gt.simulate_training(one, c.theta, "optimal_loo", gt.Constant(0.1), **arguments).theta for one in (own, twin)]
    np.testing.assert_allclose(*trained, rtol=1e-12)


class Single(Shifted):
    """The same map in single precision, and not in the order of the axes."""

    features = np.asfortranarray(Shifted.features, dtype=np.float32)

    def adjoint_by_prompt(self, covectors):
        return np.asfortranarray(super().adjoint_by_prompt(covectors), dtype=np.float32)

    def gram(self):
        return np.asfortranarray(super().gram(), dtype=np.float32)


def strided(lengths, constant):
    """Weigh each token 1, in an array without entries of its own."""
    return np.broadcast_to(1.0, lengths.shape)


def test_arrays_of_the_users_own_reach_the_drivers_in_the_form_that_they_read(registry):
    """A driver reads float64 in the order of the axes, and takes what it is given for that."""
    bandit, theta = gt.Bandit(np.random.default_rng(5).uniform(size=(2, 3))), [0.3, -0.2]
    own, twin = (gt.Problem(bandit, gt.Policy(made)) for made in (Single(), Shifted()))
    sizes = {"batch_size": 4, "group_size": 4, "rng": 1, "workers": 1}
    aggregation = gt.Aggregation("strided", strided)
    made = [composed(ratio="token", advantage="optimal_loo", aggregation=aggregation), gt.estimators()["optimal"]]
    for estimator, other in zip(made, ("optimal_loo", "optimal"), strict=True):
        runs = [
            gt.simulate_gradients(one, theta, [chosen], **sizes, replications=400)
            for one, chosen in ((own, estimator), (twin, other))
        ]
        np.testing.assert_allclose(runs[0].means, runs[1].means, rtol=1e-5)
        trained = [
            gt.simulate_training(one, theta, chosen, gt.Constant(0.1), **sizes, steps=20, replications=4).theta
            for one, chosen in ((own, estimator), (twin, other))
        ]
        np.testing.assert_allclose(*trained, rtol=1e-4)


def test_weights_of_an_aggregation_are_one_for_each_response():
    with pytest.raises(ValueError, match=r"function must have shape \(4,\) = \(K,\), the weights that it returns, got \(1,\)"):
        gt.Aggregation("scalar", lambda lengths, constant: 1.0).shares(np.array([1, 2, 3, 3]))
