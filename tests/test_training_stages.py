"""The stages of a training step, one at a time: compiled and as plain Python on the same arrays, and against numpy."""

import numpy as np
import pytest
from dense import Dense, token_case
from enumeration import PENALTIES, POLICIES
from numba import typeof
from numba.core.dispatcher import Dispatcher

import grpo_theory as gt
from grpo_theory.exact import weights
from grpo_theory.exact.multisets import count_multisets
from grpo_theory.exact.table import multiset_ranks
from grpo_theory.simulate import (
    advance,
    ascent,
    elementary,
    generator,
    geometry,
    learner,
    penalty,
    record,
    runs,
    setting,
    show,
    sums,
    tally,
    update,
    weighing,
)
from grpo_theory.simulate.alias import alias_table

MODULES = (ascent, elementary, generator, learner, penalty, record, sums, tally, update, weighing)
N, LANES, B, G = 5, 7, 2, 6
"""Lanes that are wanted, lanes that there are, prompts and responses."""


def own(module):
    """Return the stages that a module defines."""
    found = {name: value for name, value in vars(module).items() if isinstance(value, Dispatcher)}
    return {name: value for name, value in found.items() if value.py_func.__module__ == module.__name__}


STAGES = {name: value for module in MODULES for name, value in own(module).items()}


def twins(name, *arguments):
    """Run a stage compiled and as plain Python on copies of the arguments; return what both have made of them."""
    made = []
    for function in (STAGES[name], STAGES[name].py_func):
        copies = [one.copy() if isinstance(one, np.ndarray) else one for one in arguments]
        with np.errstate(over="ignore"):
            function(*copies)
        made.append(copies)
    for one, other in zip(*made, strict=True):
        if isinstance(one, np.ndarray):
            np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-14)
    return made[0]


class Arrays:
    """Arrays of the shapes that a step on a tree has."""

    def __init__(self, policy="linear tree"):
        self.dense = Dense(token_case(policy, "kl"))
        self.problem = self.dense.problem
        self.paths = self.problem.policy.paths
        self.rng = np.random.default_rng(0)
        self.n_values = self.problem.bandit.values.size
        self.k, self.d, self.m = self.paths.n_responses, self.paths.n_logits, self.problem.policy.n_prompts
        self.o = self.k * self.n_values
        self.point = self.problem.at(self.problem.theta)
        self.prompts = self.rng.integers(self.m, size=LANES)
        self.tokens = np.ascontiguousarray(self.point.token_probabilities[self.prompts].T)
        self.responses = np.repeat(np.arange(self.k), self.n_values)
        self.scratch = np.zeros((4 + self.n_values, LANES))
        self.fixed = self.paths.edges, self.paths.lengths
        outcomes = self.rng.integers(self.o, size=(G, LANES))
        self.counts = np.stack([np.bincount(column, minlength=self.o) for column in outcomes.T], axis=1).astype(np.int32)

    def numbers(self, *shape):
        return self.rng.normal(size=shape)


def words(*shape):
    return np.random.default_rng(8).integers(-(1 << 31), 1 << 31, shape, dtype=np.int32)


def test_tokens_are_a_softmax_at_each_prefix():
    a = Arrays()
    logits, room = 5.0 * a.numbers(a.d, LANES), np.zeros((a.d, LANES))
    _, size, _, tokens, logs, _ = twins("fill_tokens", logits, a.paths.vocabulary_size, N, room, room, a.scratch)
    blocks = np.exp(logits).reshape(-1, size, LANES)
    expected = (blocks / blocks.sum(axis=1, keepdims=True)).reshape(a.d, LANES)[:, :N]
    np.testing.assert_allclose(tokens[:, :N], expected, rtol=1e-14)
    np.testing.assert_allclose(logs[:, :N], np.log(expected), atol=1e-13)
    assert (tokens[:, N:] == 0.0).all(), "lanes that are not wanted are left alone"


def test_probabilities_of_responses_are_products_along_their_paths():
    a = Arrays()
    *_, pi = twins("fill_responses", a.tokens, *a.fixed, N, np.zeros((a.k, LANES)))
    np.testing.assert_allclose(pi[:, :N].T, a.point.probabilities[a.prompts[:N]], rtol=1e-13)


def test_thresholds_and_counts():
    a = Arrays()
    pi = np.ascontiguousarray(a.point.probabilities[a.prompts].T)
    laws = np.ascontiguousarray(np.moveaxis(np.cumsum(a.problem.bandit.probabilities, axis=2), 0, 2))
    room = np.zeros((a.o - 1, LANES), dtype=np.int32)
    *_, thresholds, _ = twins("fill_thresholds", pi, laws, a.prompts, 0.7, N, room, a.scratch)
    below = np.cumsum(a.point.outcome_probabilities[a.prompts], axis=1).T[:-1]
    np.testing.assert_allclose(thresholds[:, :N], np.floor(below[:, :N] * 2**30 + 0.7), atol=1.0)
    for first in (0, 2):
        drawn = words(G + 1, LANES + 2)
        *_, counts = twins("count_outcomes", drawn, first, thresholds, N, np.zeros((a.o, LANES), dtype=np.int32))
        *_, listed = twins("find_outcomes", drawn, first, thresholds, N, np.zeros((G + 1, LANES), dtype=np.int64))
        for i in range(N):
            expected = ((drawn[:, first + i] & (2**30 - 1))[:, None] >= thresholds[:, i]).sum(axis=1)
            np.testing.assert_array_equal(listed[:, i], expected)
            np.testing.assert_array_equal(counts[:, i], np.bincount(expected, minlength=a.o))


def test_listed_outcomes_are_those_counted_with_the_lowest_reward_first():
    a = Arrays()
    *_, listed = twins("list_outcomes", a.counts, a.n_values, N, np.zeros((G, LANES), dtype=np.int64))
    for i in range(N):
        np.testing.assert_array_equal(np.bincount(listed[:, i], minlength=a.o), a.counts[:, i])
        assert (np.diff(listed[:, i] % a.n_values) >= 0).all()
    wild = a.counts - 3 * a.numbers(a.o, LANES).astype(np.int32)
    *_, listed = twins("list_outcomes", wild, a.n_values, N, np.zeros((G, LANES), dtype=np.int64))
    assert ((listed >= 0) & (listed < a.o)).all(), "numbers that mean nothing lead nowhere"


def test_advantages_by_table_and_by_coefficients():
    a = Arrays()
    ranks, size = multiset_ranks(a.n_values, G), a.n_values
    table = a.numbers(count_multisets(size, G), size)
    *_, found, _ = twins("sum_tabulated", a.counts, table, ranks, N, np.zeros((a.o, LANES)), a.scratch)
    reached = np.cumsum([a.counts[value::size].sum(axis=0) for value in range(size - 1)], axis=0)
    places = sum(ranks[level, row] for level, row in enumerate(reached))
    for o in range(a.o):
        np.testing.assert_allclose(found[o, :N], (a.counts[o] * table[places, o % size])[:N])
    *_, looked = twins("look_up_advantages", 100 * a.counts, table, ranks, N, a.scratch)
    assert np.isin(looked[4:, :N], table).all(), "numbers that mean nothing lead nowhere"
    rewards, fields, c = a.numbers(a.o, LANES), a.numbers(3, LANES), a.numbers(6)
    *_, found, _ = twins("sum_affine", a.counts, rewards, fields, c, N, np.zeros((a.o, LANES)), a.scratch)
    each = c[0] * rewards + c[1] * (a.counts * rewards).sum(axis=0) + c[2:5] @ fields + c[5]
    np.testing.assert_allclose(found[:, :N], (a.counts * each)[:, :N], atol=1e-13)


def test_groups_as_a_kernel_sees_them_and_what_it_makes_of_them():
    a = Arrays()
    listed = a.rng.integers(a.o, size=(G, LANES))
    rewards, norms, lengths = a.numbers(a.o, LANES), a.numbers(a.k, LANES), a.paths.lengths
    room = np.zeros((B * LANES, G)), np.zeros((B * LANES, G)), np.ones((B * LANES, G), dtype=np.int64)
    for read in (True, False):
        asked = (norms, lengths) if read else (norms[:0], lengths[:0])
        *_, seen, seen_norms, seen_lengths, _ = twins("show_responses", listed, 1, B, a.responses, rewards, *asked, *room, N)
        for i in range(N):
            k = a.responses[listed[:, i]]
            np.testing.assert_array_equal(seen[i * B + 1], rewards[listed[:, i], i])
            np.testing.assert_array_equal(seen_norms[i * B + 1], norms[k, i] if read else 0.0)
            np.testing.assert_array_equal(seen_lengths[i * B + 1], lengths[k] if read else 1)
    fields = a.numbers(3, LANES)
    _, _, _, *seen, _ = twins("show_fields", fields, 1, B, *np.zeros((3, B * LANES)), N)
    np.testing.assert_array_equal(np.array(seen)[:, 1 : B * N : B], fields[:, :N])
    advantages, order = a.numbers(B * LANES, G), np.sort(listed, axis=0)
    *_, each = twins("sum_each", listed, 1, B, advantages, a.counts, N, np.zeros((2, a.o, LANES)))
    for i in range(N):
        own_advantages = advantages[i * B + 1]
        for part, kept in enumerate((own_advantages > 0.0, own_advantages <= 0.0)):
            expected = np.bincount(listed[:, i], weights=np.where(kept, own_advantages, 0.0), minlength=a.o)
            np.testing.assert_allclose(each[part, :, i], expected, atol=1e-14)
    counts = np.stack([np.bincount(column, minlength=a.o) for column in order.T], axis=1).astype(np.int32)
    *_, alike = twins("sum_alike", order, 1, B, advantages, counts, N, np.zeros((1, a.o, LANES)))
    for i in range(N):
        expected = np.bincount(order[:, i], weights=advantages[i * B + 1], minlength=a.o)
        np.testing.assert_allclose(alike[0, :, i], expected, atol=1e-13)


@pytest.mark.parametrize("per_lane", [True, False])
def test_weights_of_edges_and_covectors(per_lane):
    a = Arrays()
    totals, gains = a.numbers(2, a.o, LANES), a.numbers(a.k, 2, a.paths.horizon, LANES if per_lane else 1)
    drifts = a.numbers(a.k, a.paths.horizon, LANES)
    if not per_lane:
        gains[:, 1] = gains[:, 0]
    *_, weights_found = twins("add_weights", totals, a.counts, *a.fixed, gains, drifts, N, np.zeros((a.d, LANES)))
    expected = np.zeros((a.d, LANES))
    for o, k in enumerate(a.responses):
        for t in range(a.paths.lengths[k]):
            gain = np.where(totals[:, o] > 0.0, gains[k, 0, t], gains[k, 1, t])
            expected[a.paths.edges[k, t]] += (totals[:, o] * gain).sum(axis=0) + a.counts[o] * drifts[k, t]
    np.testing.assert_allclose(weights_found[:, :N], expected[:, :N], atol=1e-13)
    covector, *_ = twins("centre_covector", expected, a.tokens, a.paths.vocabulary_size, N, np.zeros(LANES))
    np.testing.assert_allclose(covector[:, :N], a.paths.centre(expected.T, a.tokens.T).T[:, :N], atol=1e-14)
    if per_lane:
        twins("add_by_sign", totals[0, 0], gains[0, 0, 0], gains[0, 1, 0], N, np.zeros(LANES))


@pytest.mark.parametrize("pool", [0, 1, 2])
def test_pools_weigh_each_token_alike(pool):
    a = Arrays()
    counts, covectors = np.stack([a.counts, a.counts[::-1]]), a.numbers(B, a.d, LANES)
    *_, found, _ = twins("pool_covectors", counts, a.paths.lengths, pool, G, N, covectors, np.zeros(LANES))
    tokens = np.einsum("boi,o->bi", counts, a.paths.lengths[a.responses])
    groups = [[0], [1]] if pool == 1 else [[0, 1]]
    for members in groups if pool else []:
        factor = G * len(members) / tokens[members].sum(axis=0)
        np.testing.assert_allclose(found[members][..., :N], (covectors[members] * factor)[..., :N], rtol=1e-13)
    if not pool:
        np.testing.assert_array_equal(found, covectors)
    twins("count_tokens", a.counts, a.paths.lengths, N, np.zeros(LANES))


def test_rewards_prompts_penalties_and_drifts():
    a = Arrays()
    values, penalties, log_tokens = a.problem.bandit.values, a.numbers(a.k, LANES), np.log(a.tokens)
    *_, rewards = twins("fill_rewards", values, penalties, N, np.zeros((a.o, LANES)))
    np.testing.assert_allclose(rewards[:, :N], (np.tile(values, a.k)[:, None] - penalties[a.responses])[:, :N])
    drawn = np.random.default_rng(3).integers(0, 1 << 63, 400, dtype=np.uint64) * np.uint64(2)
    *_, prompts = twins("draw_prompts", drawn, 100, *alias_table(np.array([[0.2, 0.5, 0.3]])), 300, np.zeros(300, dtype=np.int64))
    assert set(prompts) == {0, 1, 2}
    reference = a.numbers(a.d, a.m)
    *_, ratios = twins("fill_log_ratios", log_tokens, reference, a.prompts, N, np.zeros((a.d, LANES)))
    np.testing.assert_allclose(ratios[:, :N], (log_tokens - reference[:, a.prompts])[:, :N])
    *_, found = twins("add_up_penalties", ratios, *a.fixed, 0.3, N, np.zeros((a.k, LANES)))
    expected = 0.3 * a.paths.along(np.ascontiguousarray(ratios.T)).T
    np.testing.assert_allclose(found[:, :N], expected[:, :N], atol=1e-14)
    *_, drifts = twins("fill_drifts", ratios, *a.fixed, 0.3, np.ones(a.k), N, np.zeros((a.k, a.paths.horizon, LANES)))
    np.testing.assert_allclose(drifts[0, 0, :N], -0.3 * ratios[a.paths.edges[0, 0], :N])
    *_, apart = twins("fill_drift", log_tokens, ratios, N, np.zeros((a.d, LANES)))
    np.testing.assert_allclose(apart[:, :N], (log_tokens - ratios)[:, :N])


def test_score_norms_and_fields():
    a = Arrays()
    gram = np.array(a.problem.policy.logit_map.gram(), order="C")
    *_, norms = twins("fill_norms", a.tokens, gram, *a.fixed, a.paths.vocabulary_size, a.prompts, N, np.zeros((a.k, LANES)))
    np.testing.assert_allclose(norms[:, :N].T, a.point.squared_score_norms[a.prompts[:N]], rtol=1e-11, atol=1e-13)
    bandit, found = a.problem.bandit, a.point.moments
    pi = np.ascontiguousarray(a.point.probabilities[a.prompts].T)
    penalties = np.ascontiguousarray(a.problem.kl.strength * a.paths.along(a.point.log_ratios_to_reference)[a.prompts].T)
    means, squares = bandit.mean_reward.T.copy(), (bandit.probabilities @ bandit.values**2).T.copy()
    *_, fields = twins("fill_fields", pi, penalties, norms, means, squares, a.prompts, N, np.zeros((3, LANES)))
    expected = np.stack([found.value, found.standard_deviation, found.optimal_baseline])[:, a.prompts]
    np.testing.assert_allclose(fields[:, :N], expected[:, :N], atol=1e-12)


def test_iterates_are_followed_projected_and_kept():
    a = Arrays()
    theta, ball = a.numbers(3, N), np.array([0.1, -0.2, 0.3, 1.0])
    projected, *_ = twins("project", theta, ball, np.zeros(LANES))
    for i in range(N):
        away = theta[:, i] - ball[:3]
        np.testing.assert_allclose(projected[:, i], ball[:3] + away * min(1.0, 1.0 / np.linalg.norm(away)), atol=1e-14)
    np.testing.assert_array_equal(twins("project", theta, np.empty(0), np.zeros(LANES))[0], theta)
    start, average, farthest = a.numbers(3, N), a.numbers(3, N), np.array([0.0, 0.0, 0.0, 0.0, 99.0])
    *_, mean, far, _ = twins("follow", theta, 4.0, start, average, farthest, np.zeros(LANES))
    np.testing.assert_allclose(mean, 0.75 * average + 0.25 * theta, atol=1e-14)
    np.testing.assert_allclose(far, np.maximum(farthest, ((theta - start) ** 2).sum(axis=0)), rtol=1e-14)
    trace = record.NO_TRACE._replace(path=np.zeros((N, 3, 3)))
    STAGES["keep_iterates"](2, theta, trace)
    np.testing.assert_array_equal(trace.path[:, 2], theta.T)


def test_the_hessian_agrees_with_plain_python():
    a = Arrays()
    columns, compact = record.compact_features(a.problem.policy)
    tree = {"edges": a.paths.edges, "lengths": a.paths.lengths, "vocabulary_size": a.paths.vocabulary_size}
    trace = record.NO_TRACE._replace(**tree, parents=record.leading_edges(a.paths), columns=columns, features=compact)
    room, square = np.zeros((a.d, LANES)), np.zeros((a.d, a.d, LANES))
    rewards = a.numbers(a.o, LANES)
    *_, mean, leads, masses = twins("weigh_edges", a.counts, rewards, N, G, 0.3, trace, np.zeros(LANES), room, room)
    np.testing.assert_allclose(mean[:N], (a.counts * rewards).sum(axis=0)[:N] / G, rtol=1e-12)
    *_, forms = twins("fill_forms", a.tokens, leads, masses, N, trace, room, np.zeros((2, LANES)), square)
    assert np.abs(forms[:, :, :N]).max() > 0.1
    full = np.tril(np.moveaxis(forms, -1, 0))[:N]
    full += np.swapaxes(np.tril(full, -1), -1, -2)
    dense = geometry.features(a.problem.policy)[a.prompts[:N]]
    gathered = np.zeros((a.d, columns.shape[1], LANES))
    for function in (STAGES["add_congruence"], STAGES["add_congruence"].py_func):
        kept = trace._replace(hessian=np.ones((N, dense.shape[2], dense.shape[2])))
        function(forms, a.prompts, 0.2, N, kept, gathered, room, np.zeros(LANES))
        expected = 1.0 + 0.2 * np.einsum("ndi,nde,nej->nij", dense, full, dense)
        np.testing.assert_allclose(kept.hessian, expected, rtol=1e-11, atol=1e-12)


ELSEWHERE = {
    "clear": "test_training.py",
    "note_fault": "test_kernel_trial.py",
    "exponential": "test_training_paths.py",
    "logarithm": "test_training_paths.py",
    "fill_words": "streams_by_numpy.py",
    "next_uniform": "streams_by_numpy.py",
    "show_groups": "test_training.py",
    "call_kernel": "test_training.py",
}
"""Stages that are tried by other files."""


def test_every_stage_is_tried():
    source = __import__("pathlib").Path(__file__).read_text()
    tried = {name for name in STAGES if f'twins("{name}"' in source or f'STAGES["{name}"]' in source}
    assert tried | set(ELSEWHERE) == set(STAGES)
    used = {name for name, value in vars(advance).items() if isinstance(value, Dispatcher)}
    assert used <= set(STAGES)


@pytest.mark.parametrize("policy", [*POLICIES, "tree", "linear tree"])
@pytest.mark.parametrize("penalty_kind", PENALTIES)
def test_records_have_the_types_that_the_driver_declares(policy, penalty_kind, registry):
    """The driver takes them at their word."""
    problem = token_case(policy, penalty_kind).problem
    parts = {"ratio": "token", "aggregation": "batch tokens", "kl": "k3 in loss"}
    made = [gt.compose("composed_for_one_test", advantage="rloo", **parts)] if penalty_kind == "kl" else []
    for estimator in (*made, *(gt.estimators()[name] for name in ("rloo", "grpo", "optimal", "optimal_loo", "dapo"))):
        for updates, optimiser in ((1, gt.SGD()), (2, gt.SGD()), (1, gt.Adam())):
            sizes = {"batch_size": 4, "group_size": 5, "inner_steps": updates, "optimiser": optimiser, "ball": None}
            course = runs.Course.of(problem, estimator, np.ones(8), **sizes)
            begun = course.start(generator.block_streams(np.random.SeedSequence(0), 0), np.tile(problem.theta, (3, 1)))
            given = [
                (course.world, setting.WORLD),
                (course.recipe, setting.RECIPE),
                (course.parts, advance.PARTS),
                (begun.rule, sums.RULE),
                (begun.rollout, sums.ROLLOUT),
                (begun.room, setting.ROOM),
                (begun.states[0], setting.STATE),
                (begun.batch, show.BATCH),
                (begun.streams, generator.STREAMS),
                (record.NO_TRACE, record.TRACE),
            ]
            for value, declared in given:
                for name, field, expected in zip(value._fields, value, declared.types, strict=True):
                    assert typeof(field) == expected, name
    assert weights.fill_gains.py_func.__module__ == weights.__name__
