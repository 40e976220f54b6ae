"""The stages of a training step, one at a time: compiled and as plain Python on the same arrays, and against numpy."""

import numba
import numpy as np
import pytest
from compiled_stages import compiled
from dense import Dense, token_case
from enumeration import PENALTIES, POLICIES
from numba import typeof
from numba.core.dispatcher import Dispatcher

import grpo_theory as gt
from grpo_theory.compiler.compilation import plain
from grpo_theory.compiler.first_class import FunctionValue
from grpo_theory.compiler.lanes import RUN, WIDTH, load, store
from grpo_theory.exact import weights
from grpo_theory.exact.multisets import count_multisets
from grpo_theory.exact.table import multiset_ranks
from grpo_theory.simulate import runs
from grpo_theory.simulate.advantage import kernel_call, penalty, sums
from grpo_theory.simulate.advantage.kernel_call import make_batch, spare_rows
from grpo_theory.simulate.covector import edge_weights, features, ratios
from grpo_theory.simulate.draw import alias, elementary, generator, policy_counting, prompt_tables, setting, softmax
from grpo_theory.simulate.draw.prompt_tables import lookup
from grpo_theory.simulate.update import advance, ascent
from grpo_theory.simulate.update import trace as traces

MODULES = (
    ascent,
    prompt_tables,
    alias,
    elementary,
    generator,
    softmax,
    penalty,
    traces,
    kernel_call,
    sums,
    policy_counting,
    edge_weights,
    ratios,
)
N, LANES, B, G = WIDTH + 5, 2 * WIDTH, 2, 6
"""Lanes that are wanted, lanes that there are, prompts and responses."""
AT, OWN = WIDTH, slice(WIDTH, 2 * WIDTH)
"""Where the lanes begin that a stage over lanes is given here, and which they are."""


def own(module):
    """Return the stages that a module defines."""
    found = {name: value for name, value in vars(module).items() if isinstance(value, Dispatcher)}
    return {name: value for name, value in found.items() if value.py_func.__module__ == module.__name__}


STAGES = {name: value for module in MODULES for name, value in own(module).items()}
VALUES = {
    name: value
    for module in MODULES
    for name, value in vars(module).items()
    if isinstance(value, FunctionValue) and value.function.__module__ == module.__name__
}
"""What drivers call only if it is wanted: functions for all of the runs, of which the first N are."""
STAGES |= VALUES


def twins(name, *arguments):
    """Run a stage compiled and as plain Python on copies of the arguments; return what both have made of them."""
    made = []
    stage = STAGES[name]
    for function in (compiled(stage), plain(stage.function if isinstance(stage, FunctionValue) else stage)):
        copies = [copy(one) for one in arguments]
        with np.errstate(over="ignore"):
            function(*copies)
        made.append(copies)
    for one, other in zip(*made, strict=True):
        compare(one, other)
    return made[0]


def copy(one):
    if isinstance(one, tuple):
        return type(one)._make(map(copy, one)) if hasattr(one, "_fields") else tuple(map(copy, one))
    return one.copy() if isinstance(one, np.ndarray) else one


def compare(one, other):
    if isinstance(one, tuple):
        for parts in zip(one, other, strict=True):
            compare(*parts)
    elif isinstance(one, np.ndarray):
        np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-14)


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
        self.fixed = self.paths.edges, self.paths.lengths
        outcomes = self.rng.integers(self.o, size=(G, LANES))
        self.counts = np.stack([np.bincount(column, minlength=self.o) for column in outcomes.T], axis=1).astype(np.int32)

    def numbers(self, *shape):
        return self.rng.normal(size=shape)


def words(*shape):
    return np.random.default_rng(8).integers(-(1 << 31), 1 << 31, shape, dtype=np.int32)


def among(array, b=1):
    """Return an array among B of them, the others of which are of zeros."""
    return np.stack([array if number == b else np.zeros_like(array) for number in range(B)])


def room(*shape, dtype=np.float64):
    """Return room for what a stage fills in of B groups."""
    return np.zeros((B, *shape, LANES), dtype=dtype)


def only(array, b=1):
    """Return what a stage has filled in of group b, in its own lanes; everywhere else there is nothing."""
    others = array.copy()
    others[b][..., OWN] = 0
    assert not others.any()
    return array[b][..., OWN]


def test_tokens_are_a_softmax_at_each_prefix():
    a = Arrays()
    logits = 5.0 * a.numbers(B, a.d, LANES)
    *_, size, tokens, logs = twins("fill_tokens", logits, 1, AT, a.paths.vocabulary_size, room(a.d), room(a.d))
    blocks = np.exp(logits[1]).reshape(-1, size, LANES)
    expected = (blocks / blocks.sum(axis=1, keepdims=True)).reshape(a.d, LANES)[:, OWN]
    np.testing.assert_allclose(only(tokens), expected, rtol=1e-14)
    np.testing.assert_allclose(only(logs), np.log(expected), atol=1e-13)


def test_probabilities_of_responses_are_products_along_their_paths():
    a = Arrays()
    *_, pi = twins("fill_responses", among(a.tokens), 1, AT, *a.fixed, room(a.k))
    np.testing.assert_allclose(only(pi).T, a.point.probabilities[a.prompts[OWN]], rtol=1e-13)


def test_thresholds_and_counts():
    a = Arrays()
    pi = np.ascontiguousarray(a.point.probabilities[a.prompts].T)
    laws = lookup(np.cumsum(a.problem.bandit.probabilities, axis=2)[:, :, :-1].reshape(a.m, -1))
    facts = np.zeros((laws.rows.shape[1], WIDTH))
    below = np.cumsum(a.point.outcome_probabilities[a.prompts], axis=1).T[:-1]
    prompts = among(a.prompts)
    for row, first in ((0, 0), (3, 2)):
        drawn = words(G + 5, LANES + 2)
        made = room(a.o - 1, dtype=np.int32), room(a.o, dtype=np.int32)
        asked = drawn, row, first, G, among(pi), 1, AT, a.n_values, laws, prompts, 0.7, facts
        *_, thresholds, counts = twins("count_outcomes", *asked, *made)
        *_, unkept, again = twins("count_outcomes", *asked, room(0, dtype=np.int32), made[1])
        assert unkept.size == 0
        np.testing.assert_array_equal(again, counts)
        np.testing.assert_allclose(only(thresholds), np.floor(below[:, OWN] * 2**30 + 0.7), atol=1.0)
        *_, listed = twins("find_outcomes", drawn[row:], first, thresholds[1], LANES, np.zeros((G, LANES), dtype=np.int64))
        for i in range(AT, LANES):
            expected = ((drawn[row : row + G, first + i] & (2**30 - 1))[:, None] >= thresholds[1, :, i]).sum(axis=1)
            np.testing.assert_array_equal(listed[:, i], expected)
            np.testing.assert_array_equal(counts[1, :, i], np.bincount(expected, minlength=a.o))
        assert (only(counts).sum(axis=0) == G).all()


MANY = (1, 2, prompt_tables.FEW, prompt_tables.FEW + 1, prompt_tables.FEW + 9, 16, 17)
"""Numbers of prompts, on both sides of that from which on one looks up what belongs to each."""


@pytest.mark.parametrize("n_prompts", MANY)
def test_blocks_of_prompts_are_read_and_added_to(n_prompts):
    rng, size = np.random.default_rng(4), 3
    prompts, table = rng.integers(n_prompts, size=LANES), rng.normal(size=(size * n_prompts, LANES))
    *_, logits = twins("read_blocks", table, among(prompts), 1, AT, room(size))
    blocks, lanes = table.reshape(n_prompts, size, LANES), np.arange(LANES)
    np.testing.assert_array_equal(only(logits), blocks[prompts, :, lanes].T[:, OWN])
    covectors = rng.normal(size=(size, LANES))
    *_, moved = twins("add_to_blocks", among(covectors), among(prompts), 1, AT, 0.3, table)
    expected = blocks.copy()
    expected[prompts[OWN], :, lanes[OWN]] += 0.3 * covectors.T[OWN]
    np.testing.assert_array_equal(moved, expected.reshape(table.shape))


@pytest.mark.parametrize("n_prompts", MANY)
def test_numbers_of_prompts_are_found_in_a_row_of_their_table(n_prompts):
    rng = np.random.default_rng(5)
    prompts, numbers, at_places = rng.integers(n_prompts, size=LANES), rng.normal(size=(n_prompts, 4)), STAGES["at_places"]
    read_rows, table = STAGES["read_rows"], lookup(numbers)

    def find(table, prompts, facts, found):
        own = load(prompts, AT)
        read_rows(table, own, facts)
        store(at_places(table, 1, own, facts), found, AT)

    for function in (numba.njit(find), find):
        found = np.zeros(LANES)
        function(table, prompts, np.zeros((4, WIDTH)), found)
        np.testing.assert_array_equal(found[OWN], numbers[prompts[OWN], 1])


def rollout_of(a):
    """Return a rollout of B groups, and a batch for its kernel, both with rows to spare and nothing filled in."""
    outcomes = a.rng.integers(a.o, size=(B, G, LANES))
    counts = (outcomes[:, :, None] == np.arange(a.o)[:, None]).sum(axis=1).astype(np.int32)
    rows = B * LANES + spare_rows(G)
    rollout = sums.Rollout(
        prompts=a.rng.integers(a.m, size=(B, LANES)),
        counts=counts,
        thresholds=np.zeros((B, 0, LANES), dtype=np.int32),
        rewards=a.numbers(B, a.o, LANES),
        norms=a.numbers(B, a.k, LANES),
        fields=a.numbers(B, 3, LANES),
        sums=np.zeros((B, 1, a.o, LANES)),
        listed=np.zeros((B, 0, LANES), dtype=np.int64),
        advantages=np.full((rows, G), np.nan),
        fault=np.zeros(1 + G),
    )
    return rollout, make_batch(rows, G, np.zeros(1))


def listed_of(a, rollout, b, i):
    """Return the outcomes of a group, those with the lowest reward value first."""
    order = np.argsort(np.arange(a.o) % a.n_values, kind="stable")
    return np.repeat(order, rollout.counts[b, order, i])


def test_counted_groups_as_a_kernel_sees_them_and_what_it_makes_of_them():
    a = Arrays()
    rollout, batch = rollout_of(a)
    for read in (True, False):
        asked = rollout if read else rollout._replace(norms=rollout.norms[:, :0])
        lengths = a.paths.lengths if read else a.paths.lengths[:0]
        _, seen, *_ = twins("show_counted", asked, batch, N, a.n_values, lengths)
        for b in range(B):
            for i in range(N):
                outcomes, row = listed_of(a, rollout, b, i), b * N + i
                np.testing.assert_array_equal(seen.rewards[row], rollout.rewards[b, outcomes, i])
                responses = a.responses[outcomes]
                np.testing.assert_array_equal(seen.squared_score_norms[row], rollout.norms[b, responses, i] if read else np.nan)
                np.testing.assert_array_equal(seen.lengths[row], a.paths.lengths[responses] if read else 1)
    found, *_ = twins("read_counted", rollout._replace(advantages=seen.rewards), N, a.n_values)
    np.testing.assert_array_equal(found.sums[:, 0, :, :N], (rollout.counts * rollout.rewards)[:, :, :N])
    assert not found.sums[:, :, :, N:].any()
    for wrong in (np.nan, np.inf):
        gaps = np.ascontiguousarray(seen.rewards)
        gaps[N + 3, G - 1] = wrong
        *_, sums_found = twins("note_gaps", gaps, N, found.sums)
        assert [*np.argwhere(np.isnan(sums_found))[0]] == [1, 0, 0, 3]
        assert np.isnan(sums_found).sum() == 1


def test_numbers_that_mean_nothing_lead_nowhere():
    """Where a run has left the numbers: rows between others, which stay what they are."""
    a = Arrays()
    rollout, batch = rollout_of(a)
    rollout.counts[1, :, 4] = a.rng.integers(-(1 << 31), 1 << 31, a.o)
    wild = N + 4
    _, seen, *_ = twins("show_counted", rollout, batch, N, a.n_values, a.paths.lengths)
    assert np.isin(seen.rewards[wild], rollout.rewards[1, :, 4]).all()
    assert np.isin(seen.lengths[wild], a.paths.lengths).all()
    for b, i in ((1, 3), (1, 5), (0, 0)):
        np.testing.assert_array_equal(seen.rewards[b * N + i], rollout.rewards[b, listed_of(a, rollout, b, i), i])
    found, *_ = twins("read_counted", rollout._replace(advantages=seen.rewards), N, a.n_values)
    others = np.arange(N) != 4
    np.testing.assert_array_equal(found.sums[:, 0, :, :N][..., others], (rollout.counts * rollout.rewards)[:, :, :N][..., others])


@pytest.mark.parametrize("count", [0, 1, RUN - 1, RUN, RUN + 1, 3 * RUN])
def test_runs_are_written_one_after_another(count):
    """What is written beyond a run is written over by the next one."""
    size = 4 * RUN
    rows = np.zeros((2 + spare_rows(size), size))
    written = rows
    for number, times, i, g in ((2.0, count, 0, 0), (3.0, size - count, 0, count), (4.0, size, 1, 0)):
        _, _, written, *_ = twins("write_run", number, times, written, i, g)
    np.testing.assert_array_equal(written[0], np.repeat([2.0, 3.0], [count, size - count]))
    assert (written[1] == 4.0).all()


def test_advantages_by_table_and_by_coefficients():
    a = Arrays()
    ranks, size = multiset_ranks(a.n_values, G), a.n_values
    table = a.numbers(count_multisets(size, G), size)
    rows, ones, facts = lookup(table), lookup(np.ones_like(table)), np.zeros((size + 1, WIDTH))
    *_, found = twins("sum_tabulated", among(a.counts), 1, AT, rows, ranks, facts, room(1, a.o))
    reached = np.cumsum([a.counts[value::size].sum(axis=0) for value in range(size - 1)], axis=0)
    places = sum(ranks[level, row] for level, row in enumerate(reached))
    for o in range(a.o):
        np.testing.assert_allclose(only(found)[0, o], (a.counts[o] * table[places, o % size])[OWN])
    *_, found = twins("sum_tabulated", among(100 * a.counts), 1, AT, ones, ranks, facts, room(1, a.o))
    np.testing.assert_array_equal(only(found)[0], 100.0 * a.counts[:, OWN])  # numbers that mean nothing lead nowhere
    values, penalties, fields, c = a.problem.bandit.values, a.numbers(a.k, LANES), a.numbers(3, LANES), a.numbers(6)
    rewards = np.tile(values, a.k)[:, None] - penalties[a.responses]
    *_, found = twins("sum_affine", among(a.counts), values, among(penalties), 1, N, among(fields), c, room(1, a.o))
    each = c[0] * rewards + c[1] * (a.counts * rewards).sum(axis=0) + c[2:5] @ fields + c[5]
    np.testing.assert_allclose(found[1][0], a.counts * each, atol=1e-13)
    assert not found[0].any()


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
    fields, batch = a.numbers(B, 3, LANES), make_batch(B * LANES, G, np.zeros(1))
    for by_run, by_group in ((B, 1), (1, N)):
        *_, seen, _ = twins("show_fields", fields, by_run, by_group, batch, N)
        rows = by_run * np.arange(N) + by_group * np.arange(B)[:, None]
        for field, own in enumerate((seen.values, seen.standard_deviations, seen.optimal_baselines)):
            np.testing.assert_array_equal(own[rows], fields[:, field, :N])
    advantages = a.numbers(B * LANES, G)
    *_, each = twins("sum_each", listed, 1, B, advantages, a.counts, N, np.zeros((2, a.o, LANES)))
    for i in range(N):
        own_advantages = advantages[i * B + 1]
        for part, kept in enumerate((own_advantages > 0.0, own_advantages <= 0.0)):
            expected = np.bincount(listed[:, i], weights=np.where(kept, own_advantages, 0.0), minlength=a.o)
            np.testing.assert_allclose(each[part, :, i], expected, atol=1e-14)


@pytest.mark.parametrize("per_lane", [True, False])
def test_weights_of_edges_and_covectors(per_lane):
    a = Arrays()
    totals, gains = a.numbers(2, a.o, LANES), a.numbers(a.k, 2, a.paths.horizon, LANES if per_lane else 1)
    drifts = a.numbers(a.k, a.paths.horizon, LANES)
    if not per_lane:
        gains[:, 1] = gains[:, 0]
    asked = among(totals, 0), among(a.counts, 0), 0, AT, *a.fixed, gains, drifts
    *_, weights_found, _ = twins("add_weights", *asked, room(a.d), 1)
    expected = np.zeros((a.d, LANES))
    for o, k in enumerate(a.responses):
        for t in range(a.paths.lengths[k]):
            gain = np.where(totals[:, o] > 0.0, gains[k, 0, t], gains[k, 1, t])
            expected[a.paths.edges[k, t]] += (totals[:, o] * gain).sum(axis=0) + a.counts[o] * drifts[k, t]
    np.testing.assert_allclose(only(weights_found), expected[:, OWN], atol=1e-13)
    covectors, *_ = twins("centre_covector", among(expected), 1, among(a.tokens, 0), 0, AT, a.paths.vocabulary_size)
    np.testing.assert_allclose(covectors[1][:, OWN], a.paths.centre(expected.T, a.tokens.T).T[:, OWN], atol=1e-14)
    np.testing.assert_array_equal(covectors[1][:, :AT], expected[:, :AT])


def test_what_is_not_there_weighs_nothing_though_its_gain_is_infinite():
    a = Arrays()
    gains = np.full((a.k, 2, a.paths.horizon, LANES), np.inf)
    drifts = np.full((a.k, a.paths.horizon, LANES), np.inf)
    *_, found, _ = twins("add_weights", room(1, a.o), room(a.o, dtype=np.int32), 0, AT, *a.fixed, gains, drifts, room(a.d), 1)
    assert not found.any()


@pytest.mark.parametrize("pool", [1, 2])
def test_pools_weigh_each_token_alike(pool):
    a = Arrays()
    counts, covectors = np.stack([0 * a.counts, a.counts, a.counts[::-1]]), a.numbers(B, a.d, LANES)
    *_, found = twins("pool_covectors", counts, 1, N, a.paths.lengths, pool, G, covectors)
    tokens = np.einsum("boi,o->bi", counts[1:], a.paths.lengths[a.responses])
    groups = [[0], [1]] if pool == 1 else [[0, 1]]
    for members in groups:
        factor = G * len(members) / tokens[members].sum(axis=0)
        np.testing.assert_allclose(found[members], covectors[members] * factor, rtol=1e-13)


def test_rewards_penalties_and_drifts():
    a = Arrays()
    values, penalties, log_tokens = a.problem.bandit.values, a.numbers(a.k, LANES), np.log(a.tokens)
    *_, rewards = twins("fill_rewards", values, among(penalties), 1, N, room(a.o))
    np.testing.assert_allclose(rewards[1], np.tile(values, a.k)[:, None] - penalties[a.responses])
    assert not rewards[0].any()
    reference = a.numbers(a.m, a.d)
    asked = among(log_tokens), 1, AT, lookup(reference), among(a.prompts, 0), 0, np.zeros((a.d + 1, WIDTH))
    *_, ratios = twins("fill_log_ratios", *asked, np.zeros((a.d, LANES)))
    expected = (log_tokens - reference[a.prompts].T)[:, OWN]
    np.testing.assert_allclose(ratios[:, OWN], expected)
    *_, found, _ = twins("add_up_penalties", ratios, AT, *a.fixed, 0.3, room(a.k), 1)
    np.testing.assert_allclose(only(found), 0.3 * a.paths.along(np.ascontiguousarray(expected.T)).T, atol=1e-14)
    *_, drifts = twins("fill_drifts", ratios, AT, *a.fixed, 0.3, np.ones(a.k), np.zeros((a.k, a.paths.horizon, LANES)))
    np.testing.assert_allclose(drifts[0, 0, OWN], -0.3 * ratios[a.paths.edges[0, 0], OWN])
    *_, apart = twins("fill_drift", among(log_tokens), 1, among(ratios, 0), 0, AT, np.zeros((a.d, LANES)))
    np.testing.assert_allclose(apart[:, OWN], (log_tokens - ratios)[:, OWN])


def test_score_norms_and_fields():
    a = Arrays()
    gram = np.array(a.problem.policy.logit_map.gram(), order="C")
    *_, norms = twins("fill_norms", a.tokens, gram, *a.fixed, a.paths.vocabulary_size, a.prompts, N, np.zeros((a.k, LANES)))
    np.testing.assert_allclose(norms[:, :N].T, a.point.squared_score_norms[a.prompts[:N]], rtol=1e-11, atol=1e-13)
    bandit, found = a.problem.bandit, a.point.moments
    pi = np.ascontiguousarray(a.point.probabilities[a.prompts].T)
    penalties = np.ascontiguousarray(a.problem.kl.strength * a.paths.along(a.point.log_ratios_to_reference)[a.prompts].T)
    rewards = lookup(np.concatenate([bandit.mean_reward, bandit.probabilities @ bandit.values**2], axis=1))
    every = np.ascontiguousarray(a.point.squared_score_norms[a.prompts].T)
    asked = among(pi), among(penalties), among(every), rewards, among(a.prompts), 1, AT, np.zeros((rewards.rows.shape[1], WIDTH))
    *_, fields = twins("fill_fields", *asked, room(3))
    expected = np.stack([found.value, found.standard_deviation, found.optimal_baseline])[:, a.prompts]
    np.testing.assert_allclose(only(fields), expected[:, OWN], atol=1e-12)
    *_, without = twins("fill_fields", *asked[:2], room(0), *asked[3:], room(3))
    np.testing.assert_array_equal(only(without)[:2], only(fields)[:2])
    np.testing.assert_array_equal(only(without)[2], only(fields)[0])


def test_iterates_are_followed_projected_and_kept():
    a = Arrays()
    theta, ball = a.numbers(3, LANES), np.array([0.1, -0.2, 0.3, 1.0])
    projected, *_ = twins("project", theta, ball, np.zeros(LANES))
    for i in range(LANES):
        away = theta[:, i] - ball[:3]
        np.testing.assert_allclose(projected[:, i], ball[:3] + away * min(1.0, 1.0 / np.linalg.norm(away)), atol=1e-14)
    start, average = a.numbers(2, 3, LANES), a.numbers(2, 3, LANES)
    farthest = np.zeros((2, LANES))
    farthest[:, 4] = 99.0
    *_, mean, far = twins("follow", theta, 1, 4.0, start, average, farthest)
    np.testing.assert_allclose(mean[1], 0.75 * average[1] + 0.25 * theta, atol=1e-14)
    np.testing.assert_allclose(far[1], np.maximum(farthest[1], ((theta - start[1]) ** 2).sum(axis=0)), rtol=1e-14)
    np.testing.assert_array_equal(mean[0], average[0])
    one, began, before = (np.ascontiguousarray(found[..., 4:5]) for found in (theta, start, average))
    *_, mean_alone, far_alone = twins("follow_alone", one, 1, 4, began, before, np.zeros((2, 1)))
    np.testing.assert_array_equal(mean_alone[1, :, 0], mean[1, :, 4])
    np.testing.assert_allclose(far_alone[1, 0], ((theta - start[1])[:, 4] ** 2).sum(), rtol=1e-14)
    trace = traces.NO_TRACE._replace(path=np.zeros((N, 3, 3)))
    for stage in (compiled(STAGES["keep_iterates"]), STAGES["keep_iterates"].function):
        for first in (0, WIDTH):
            stage(2, theta + first, trace, first)
        np.testing.assert_array_equal(trace.path[:WIDTH, 2], theta.T[:WIDTH])
        np.testing.assert_array_equal(trace.path[WIDTH:, 2], theta.T[: N - WIDTH] + WIDTH)
    path = a.numbers(N, 3, 2)
    whole = traces.NO_TRACE._replace(path=path, mean_rewards=np.zeros((N, 2)), hessian=np.zeros((N, 2, 2)))
    for stage in (compiled(STAGES["part_of"]), STAGES["part_of"].py_func):
        np.testing.assert_array_equal(stage(whole, 32, 32).path, path[32:])
        np.testing.assert_array_equal(stage(whole, 0, 32).path, path[:32])


def test_the_hessian_agrees_with_plain_python():
    a = Arrays()
    columns, compact = traces.compact_features(a.problem.policy)
    tree = {"edges": a.paths.edges, "lengths": a.paths.lengths, "vocabulary_size": a.paths.vocabulary_size}
    trace = traces.NO_TRACE._replace(**tree, parents=traces.leading_edges(a.paths), columns=columns, features=compact)
    room, square = np.zeros((a.d, LANES)), np.zeros((a.d, a.d, LANES))
    rewards = a.numbers(a.o, LANES)
    *_, mean, leads, masses = twins("weigh_edges", a.counts, rewards, N, G, 0.3, trace, np.zeros(LANES), room, room)
    np.testing.assert_allclose(mean[:N], (a.counts * rewards).sum(axis=0)[:N] / G, rtol=1e-12)
    *_, forms = twins("fill_forms", a.tokens, leads, masses, N, trace, room, np.zeros((2, LANES)), square)
    assert np.abs(forms[:, :, :N]).max() > 0.1
    full = np.tril(np.moveaxis(forms, -1, 0))[:N]
    full += np.swapaxes(np.tril(full, -1), -1, -2)
    dense = features.features(a.problem.policy)[a.prompts[:N]]
    gathered = np.zeros((a.d, columns.shape[1], LANES))
    for function in (compiled(STAGES["add_congruence"]), STAGES["add_congruence"].py_func):
        kept = trace._replace(hessian=np.ones((N, dense.shape[2], dense.shape[2])))
        function(forms, a.prompts, 0.2, N, kept, gathered, room, np.zeros(LANES))
        expected = 1.0 + 0.2 * np.einsum("ndi,nde,nej->nij", dense, full, dense)
        np.testing.assert_allclose(kept.hessian, expected, rtol=1e-11, atol=1e-12)


ELSEWHERE = {
    **dict.fromkeys(own(alias), "test_driver.py"),
    **{
        f"{kind}_{what}": "test_training.py"
        for kind in ("tabular", "picked", "dense", "few", "head")
        for what in ("logits", "step")
    },
    **dict.fromkeys(("penalise", "see_fields", "sum_in_order", "sum_shown", "keep_rollout", "weigh_anew"), "test_training.py"),
    "begin_streams": "test_gradient_drivers.py",
    "clear": "test_training.py",
    "note_fault": "test_kernel_trial.py",
    "bounded": "test_training_stages.py, in show_counted",
    "exponential": "test_training_paths.py",
    "logarithm": "test_training_paths.py",
    "find_multiset": "test_training_stages.py, in sum_tabulated",
    "count_below": "test_training_stages.py, in count_outcomes",
    "read_short": "test_gradient_drivers.py",
    "fill_words": "streams_by_numpy.py",
    "next_uniform": "streams_by_numpy.py",
    "mix": "test_gradient_drivers.py",
    "fill_advantages": "test_driver.py",
    "show_groups": "test_training.py",
    "call_kernel": "test_training.py",
}
"""Stages that are tried by other files."""


def test_every_stage_is_tried():
    source = __import__("pathlib").Path(__file__).read_text()
    tried = {name for name in STAGES if f'twins("{name}"' in source or f'STAGES["{name}"]' in source}
    assert tried | set(ELSEWHERE) == set(STAGES)
    used = {name for name, value in vars(advance).items() if isinstance(value, Dispatcher)}
    assert used - set(own(advance)) <= set(STAGES)


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
            streams = generator.block_streams(np.random.SeedSequence(0), 0)
            begun = runs.Runs(course, runs.make_workplace(course), streams, np.tile(problem.theta, (3, 1)), traces.NO_TRACE)
            given = [
                (course.world, setting.WORLD),
                (course.recipe, setting.RECIPE),
                (course.parts, advance.PARTS),
                (begun.place.rule, sums.RULE),
                (begun.place.words, setting.WORDS),
                (begun.place.rollout, sums.ROLLOUT),
                (begun.place.room, setting.ROOM),
                (begun.state, setting.STATE),
                (begun.place.batch, kernel_call.BATCH),
                (begun.streams, generator.STREAMS),
                (traces.NO_TRACE, traces.TRACE),
            ]
            for value, declared in given:
                for name, field, expected in zip(value._fields, value, declared.types, strict=True):
                    assert typeof(field) == expected, name
    assert weights.fill_gains.py_func.__module__ == weights.__name__
