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
from grpo_theory.compiler import FunctionValue, plain_python
from grpo_theory.compiler.lanes import RUN, WIDTH, load, store
from grpo_theory.exact import score_moments
from grpo_theory.exact.multisets import AdvantageTable, count_multisets, multiset_ranks
from grpo_theory.simulate.advantage import affine, call_room, kernel_call, rewards, rollout, tables
from grpo_theory.simulate.advantage.call_room import KernelView, make_batch, spare_rows
from grpo_theory.simulate.advantage.tables import make_tables
from grpo_theory.simulate.covector import features, ratios
from grpo_theory.simulate.draw import elementary, policy_draw, prompt_tables
from grpo_theory.simulate.draw import streams as random_streams
from grpo_theory.simulate.draw.policy_draw import Groups, OutcomeSource, PolicyRoom
from grpo_theory.simulate.draw.prompt_tables import lookup
from grpo_theory.simulate.training_blocks import Runs, TrainingBlocks, make_step_room
from grpo_theory.simulate.training_tables import token_paths
from grpo_theory.simulate.update import advance, ascent, iterates
from grpo_theory.simulate.update import trace as traces

MODULES = (
    *(
        affine,
        ascent,
        elementary,
        iterates,
        kernel_call,
        random_streams,
        policy_draw,
        prompt_tables,
        ratios,
        rewards,
        rollout,
        tables,
    ),
    traces,
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
    for function in (compiled(stage), plain_python(stage.function if isinstance(stage, FunctionValue) else stage)):
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
        self.token_paths = token_paths(self.paths)
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
    policy = PolicyRoom(logits, room(a.d), room(a.d), room(a.k))
    (_, tokens, logs, _), *_, size = twins("fill_tokens", policy, 1, AT, a.paths.vocabulary_size)
    blocks = np.exp(logits[1]).reshape(-1, size, LANES)
    expected = (blocks / blocks.sum(axis=1, keepdims=True)).reshape(a.d, LANES)[:, OWN]
    np.testing.assert_allclose(only(tokens), expected, rtol=1e-14)
    np.testing.assert_allclose(only(logs), np.log(expected), atol=1e-13)


def test_probabilities_of_responses_are_products_along_their_paths():
    a = Arrays()
    policy = PolicyRoom(room(a.d), among(a.tokens), room(0), room(a.k))
    (*_, pi), *_ = twins("fill_responses", policy, 1, AT, a.token_paths)
    np.testing.assert_allclose(only(pi).T, a.point.probabilities[a.prompts[OWN]], rtol=1e-13)


def source_of(a, group_size=G):
    """Return what groups are drawn from, besides the prompts."""
    laws = lookup(np.cumsum(a.problem.bandit.probabilities, axis=2)[:, :, :-1].reshape(a.m, -1))
    return OutcomeSource(lookup(np.ones((a.m, 2))), laws, a.n_values, group_size, a.token_paths)


def groups_of(a, prompts, keeps=True):
    """Return groups of these prompts (B, LANES), of which nothing is drawn."""
    thresholds = room(a.o - 1 if keeps else 0, dtype=np.int32)
    return Groups(prompts, room(a.o, dtype=np.int32), thresholds, np.zeros((a.o, WIDTH)))


def test_thresholds_and_counts():
    a = Arrays()
    pi, prompts = np.ascontiguousarray(a.point.probabilities[a.prompts].T), among(a.prompts)
    below = np.cumsum(a.point.outcome_probabilities[a.prompts], axis=1).T[:-1]
    for row, first in ((0, 0), (3, 2)):
        drawn = words(G + 5, LANES + 2)
        asked = drawn[row:], first + AT, source_of(a), 0.7, among(pi), 1, AT
        *_, (_, counts, thresholds, _) = twins("count_outcomes", *asked, groups_of(a, prompts))
        *_, (_, again, unkept, _) = twins("count_outcomes", *asked, groups_of(a, prompts, keeps=False))
        assert unkept.size == 0
        np.testing.assert_array_equal(again, counts)
        np.testing.assert_allclose(only(thresholds), np.floor(below[:, OWN] * 2**30 + 0.7), atol=1.0)
        *_, ordered = twins("find_outcomes", drawn[row:], first, thresholds[1], LANES, np.zeros((G, LANES), dtype=np.int64))
        for i in range(AT, LANES):
            expected = ((drawn[row : row + G, first + i] & (2**30 - 1))[:, None] >= thresholds[1, :, i]).sum(axis=1)
            np.testing.assert_array_equal(ordered[:, i], expected)
            np.testing.assert_array_equal(counts[1, :, i], np.bincount(expected, minlength=a.o))
        assert (only(counts).sum(axis=0) == G).all()


def test_numbers_that_mean_nothing_are_counts_all_the_same():
    """Where a run has left the numbers: counts of G responses, none below 0, so that they lead out of no table."""
    a = Arrays()
    pi = np.ascontiguousarray(a.point.probabilities[a.prompts].T)
    wild = a.rng.choice([np.nan, np.inf, -np.inf, 1e300, -1e300, 0.1], (a.k, LANES))
    for strange in (wild, np.full_like(pi, np.nan), -pi, 1e6 * pi):
        groups = groups_of(a, among(a.prompts))
        for function in (compiled(STAGES["count_outcomes"]), plain_python(STAGES["count_outcomes"])):
            with np.errstate(all="ignore"):
                function(words(G, LANES), AT, source_of(a), 0.7, among(strange), 1, AT, groups)
            counts, thresholds = only(groups.counts), only(groups.thresholds)
            assert (counts >= 0).all()
            assert (counts.sum(axis=0) == G).all()
            assert (np.diff(thresholds, axis=0) >= 0).all()


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


def seen_by(a, by_prompt, read=True):
    """Return what a kernel sees of outcomes, by prompt or by group and lane, and how: rewards (O,), norms (K,), fields (3,)."""
    n, q = (a.m, 1) if by_prompt else (B, LANES)
    view = KernelView(
        rewards=a.numbers(n, a.o, q),
        norms=a.numbers(n, a.k if read else 0, q),
        fields=a.numbers(n, 3 if read else 0, q),
        lengths=a.paths.lengths if read else a.paths.lengths[:0],
        responses=a.responses,
    )
    prompts = a.rng.integers(a.m, size=(B, LANES))

    def look(b, i):
        index = (prompts[b, i], slice(None), 0) if by_prompt else (b, slice(None), i)
        return view.rewards[index], view.norms[index], view.fields[index]

    return view, prompts, look


def check_batch(a, batch, row, look, outcomes, read):
    """Compare a row of what a kernel is shown with outcomes in their order."""
    seen_rewards, norms, fields = look
    responses = a.responses[outcomes]
    np.testing.assert_array_equal(batch.rewards[row], seen_rewards[outcomes])
    np.testing.assert_array_equal(batch.squared_score_norms[row], norms[responses] if read else np.nan)
    np.testing.assert_array_equal(batch.lengths[row], a.paths.lengths[responses] if read else 1)
    own = batch.values[row], batch.standard_deviations[row], batch.optimal_baselines[row]
    np.testing.assert_array_equal(own, fields if read else np.nan)


SHOWN = [(0, N), (3, 8)]
"""The first lane that is shown, and how many are."""


@pytest.mark.parametrize(("first", "n"), SHOWN)
@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("by_prompt", [True, False])
def test_counted_groups_as_a_kernel_sees_them_and_what_it_makes_of_them(by_prompt, read, first, n):
    a = Arrays()
    view, prompts, look = seen_by(a, by_prompt, read)
    outcomes = a.rng.integers(a.o, size=(B, G, LANES))
    counts = (outcomes[:, :, None] == np.arange(a.o)[:, None]).sum(axis=1).astype(np.int32)
    batch = make_batch(B * N + spare_rows(G), G, np.zeros(1))
    *_, seen = twins("write_counted", view, counts, prompts, first, n, batch)
    *_, seen = twins("write_fields", view, prompts, first, n, seen)
    by_value = np.argsort(np.arange(a.o) % a.n_values, kind="stable")
    where = [(b, first + j, b * n + j) for b in range(B) for j in range(n)]
    for b, i, row in where:
        check_batch(a, seen, row, look(b, i), np.repeat(by_value, counts[b, by_value, i]), read)
    call = call_room.CallRoom(0, 2.0, seen, np.ascontiguousarray(seen.rewards))
    *_, found, _ = twins("read_counted", counts, a.n_values, first, n, call, np.full((B, a.o, LANES), 7.0), 2)
    for b, i, _ in where:
        expected = np.where(counts[b, :, i] > 0, look(b, i)[0] / 2.0, 7.0)
        np.testing.assert_array_equal(found[b, :, i - first + 2], expected)
    for wrong in (np.nan, np.inf):
        gaps = np.zeros((B * N, G))
        gaps[n * (B - 1) + 3, G - 1] = wrong
        *_, spoiled, _ = twins("note_gaps", gaps, n, found, 2)
        assert np.argwhere(np.isnan(spoiled)).tolist() == [[B - 1, 0, 5]]


@pytest.mark.parametrize(("first", "n"), SHOWN)
@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("by_prompt", [True, False])
def test_groups_in_order_as_a_kernel_sees_them_and_what_it_makes_of_them(by_prompt, read, first, n):
    a = Arrays()
    view, prompts, look = seen_by(a, by_prompt, read)
    ordered, batch = a.rng.integers(a.o, size=(B, G, LANES)), make_batch(B * N, G, np.zeros(1))
    *_, seen = twins("write_ordered", view, ordered, prompts, first, n, batch)
    *_, seen = twins("write_fields", view, prompts, first, n, seen)
    advantages = a.numbers(B * N, G)
    call = call_room.CallRoom(0, 2.0, seen, advantages)
    rows, n_rows = (a.responses, a.k) if by_prompt else (np.arange(a.o), a.o)
    *_, one = twins("add_ordered", ordered, a.responses, first, n, call, np.zeros((B, 1, n_rows, LANES)))
    *_, two = twins("add_ordered", ordered, a.responses, first, n, call, np.zeros((B, 2, n_rows, LANES)))
    for b in range(B):
        for i in range(first, first + n):
            row = b * n + i - first
            check_batch(a, seen, row, look(b, i), ordered[b, :, i], read)
            for part, kept in enumerate((advantages[row] > 0.0, advantages[row] <= 0.0)):
                weights = np.where(kept, advantages[row], 0.0) / 2.0
                expected = np.bincount(rows[ordered[b, :, i]], weights=weights, minlength=n_rows)
                np.testing.assert_allclose(two[b, part, :, i], expected, atol=1e-14)
    np.testing.assert_allclose(one[:, 0], two.sum(axis=1), atol=1e-14)


def test_rows_are_cleared_by_whole_vectors():
    *_, rows, _ = twins("clear_lanes", np.ones((3, LANES)), 5)
    np.testing.assert_array_equal(rows, np.where(np.arange(LANES) < WIDTH, 0.0, np.ones((3, 1))))


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
    groups = Groups(among(a.prompts), among(a.counts), room(0, dtype=np.int32), np.zeros((size + 1, WIDTH)))
    made = make_tables(AdvantageTable(table[None], ranks), 1.0)
    *_, found = twins("sum_by_table", made, groups, 1, AT, np.zeros((a.o, LANES)))
    reached = np.cumsum([a.counts[value::size].sum(axis=0) for value in range(size - 1)], axis=0)
    multisets = sum(ranks[level, row] for level, row in enumerate(reached))
    for o in range(a.o):
        np.testing.assert_allclose(found[o, OWN], (a.counts[o] * table[multisets, o % size])[OWN])
    values, penalties, fields, c = a.problem.bandit.values, a.numbers(a.k, LANES), a.numbers(3, LANES), a.numbers(6)
    rewards_seen = np.tile(values, a.k)[:, None] - penalties[a.responses]
    *_, found = twins("sum_affine", among(a.counts), values, among(penalties), N, among(fields), c, room(1, a.o))
    each = c[0] * rewards_seen + c[1] * (a.counts * rewards_seen).sum(axis=0) + c[2:5] @ fields + c[5]
    np.testing.assert_allclose(found[1, 0, :, :N], (a.counts * each)[:, :N], atol=1e-13)
    assert not found[0].any()


@pytest.mark.parametrize("per_lane", [True, False])
def test_weights_of_edges_and_covectors(per_lane):
    a = Arrays()
    totals, gains = a.numbers(2, a.o, LANES), a.numbers(a.k, 2, a.paths.horizon, LANES if per_lane else 1)
    drifts = a.numbers(a.k, a.paths.horizon, LANES)
    if not per_lane:
        gains[:, 1] = gains[:, 0]
    *_, weights_found = twins("add_weights", totals, a.counts, AT, a.token_paths, gains, drifts, np.zeros((a.d, LANES)))
    expected = np.zeros((a.d, LANES))
    for o, k in enumerate(a.responses):
        for t in range(a.paths.lengths[k]):
            gain = np.where(totals[:, o] > 0.0, gains[k, 0, t], gains[k, 1, t])
            expected[a.paths.edges[k, t]] += (totals[:, o] * gain).sum(axis=0) + a.counts[o] * drifts[k, t]
    np.testing.assert_allclose(weights_found[:, OWN], expected[:, OWN], atol=1e-13)
    assert not weights_found[:, :AT].any()
    covector, *_ = twins("centre_covector", expected, a.tokens, AT, a.paths.vocabulary_size)
    np.testing.assert_allclose(covector[:, OWN], a.paths.centre(expected.T, a.tokens.T).T[:, OWN], atol=1e-14)
    np.testing.assert_array_equal(covector[:, :AT], expected[:, :AT])


def test_what_is_not_there_weighs_nothing_though_its_gain_is_infinite():
    a = Arrays()
    gains = np.full((a.k, 2, a.paths.horizon, LANES), np.inf)
    drifts = np.full((a.k, a.paths.horizon, LANES), np.inf)
    sums, counts = np.zeros((1, a.o, LANES)), np.zeros((a.o, LANES), dtype=np.int32)
    *_, found = twins("add_weights", sums, counts, AT, a.token_paths, gains, drifts, np.zeros((a.d, LANES)))
    assert not found.any()


def test_a_response_that_one_run_has_drawn_once_is_weighed():
    a = Arrays()
    counts = np.zeros((a.o, LANES), dtype=np.int32)
    counts[-1, AT + 3] = 1
    gains, drifts = np.ones((a.k, 2, a.paths.horizon, LANES)), np.empty((0, 0, 0))
    *_, found = twins("add_weights", counts[None] * 2.0, counts, AT, a.token_paths, gains, drifts, np.zeros((a.d, LANES)))
    assert found.sum() == found[:, AT + 3].sum() == 2.0 * a.paths.lengths[-1]


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
    *_, found = twins("fill_rewards", values, among(penalties), N, room(a.o))
    expected = np.tile(values, a.k)[:, None] - among(penalties)[:, a.responses]
    np.testing.assert_allclose(found, expected)
    reference = a.numbers(a.m, a.d)
    asked = log_tokens, AT, lookup(reference), among(a.prompts, 0), 0, np.zeros((a.d + 1, WIDTH))
    *_, logs = twins("fill_log_ratios", *asked, np.zeros((a.d, LANES)))
    expected = (log_tokens - reference[a.prompts].T)[:, OWN]
    np.testing.assert_allclose(logs[:, OWN], expected)
    *_, found, _ = twins("add_up_penalties", logs, AT, a.token_paths, 0.3, room(a.k), 1)
    np.testing.assert_allclose(only(found), 0.3 * a.paths.along(np.ascontiguousarray(expected.T)).T, atol=1e-14)
    *_, drifts = twins("fill_drifts", logs, AT, a.token_paths, 0.3, np.ones(a.k), np.zeros((a.k, a.paths.horizon, LANES)))
    np.testing.assert_allclose(drifts[0, 0, OWN], -0.3 * logs[a.paths.edges[0, 0], OWN])
    *_, apart = twins("fill_drift", log_tokens, logs, AT, np.zeros((a.d, LANES)))
    np.testing.assert_allclose(apart[:, OWN], (log_tokens - logs)[:, OWN])


def test_score_norms_of_sure_responses():
    """Those of others are left; a token that one lane is sure of is on some of the paths."""
    a = Arrays()
    gram = np.array(a.problem.policy.logit_map.gram(), order="C")[a.prompts[3]]
    a.tokens[: a.paths.vocabulary_size, 3] = [
        1.0 - 2e-9,
        *np.full(a.paths.vocabulary_size - 1, 2e-9 / (a.paths.vocabulary_size - 1)),
    ]
    *_, norms = twins("fill_sure_norms", a.tokens, gram, a.token_paths, 3, np.zeros(a.d), np.full((a.k, LANES), 7.0))
    covectors = a.paths.centre(a.paths.incidence, a.tokens[:, 3])
    sure = (a.paths.edges == 0).any(axis=1)
    expected = np.where(sure, np.einsum("kd,de,ke->k", covectors, gram, covectors), 7.0)
    np.testing.assert_allclose(norms[:, 3], expected, rtol=1e-9)
    assert 0 < sure.sum() < a.k
    assert (np.delete(norms, 3, axis=1) == 7.0).all()


def test_score_norms_and_fields():
    a = Arrays()
    gram = np.array(a.problem.policy.logit_map.gram(), order="C")
    *_, norms = twins("fill_norms", a.tokens, gram, a.token_paths, a.prompts, N, np.zeros((a.k, LANES)))
    np.testing.assert_allclose(norms[:, :N].T, a.point.squared_score_norms[a.prompts[:N]], rtol=1e-11, atol=1e-13)
    bandit, found = a.problem.bandit, a.point.moments
    pi = np.ascontiguousarray(a.point.probabilities[a.prompts].T)
    penalties = np.ascontiguousarray(a.problem.kl.strength * a.paths.along(a.point.log_ratios_to_reference)[a.prompts].T)
    variances = bandit.probabilities @ bandit.values**2 - bandit.mean_reward**2
    means = lookup(np.concatenate([bandit.mean_reward, variances], axis=1))

    def fields_of(norms):
        view = KernelView(room(a.o), norms, room(3), a.paths.lengths, a.responses)
        facts = np.zeros((means.rows.shape[1], WIDTH))
        made = rewards.RewardRoom(
            view, among(penalties), np.zeros((a.d, LANES)), np.zeros((a.d, LANES)), facts, np.zeros((0, LANES))
        )
        *_, filled = twins("fill_fields", among(pi), means, among(a.prompts), 1, AT, made)
        return filled.seen.fields

    every = np.ascontiguousarray(a.point.squared_score_norms[a.prompts].T)
    fields, without = fields_of(among(every)), fields_of(room(0))
    expected = np.stack([found.value, found.standard_deviation, found.optimal_baseline])[:, a.prompts]
    np.testing.assert_allclose(only(fields), expected[:, OWN], atol=1e-12)
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


def test_the_hessian_agrees_with_plain_python():
    a = Arrays()
    columns, by_prompt = traces.compact_features(a.problem.policy.logit_map)
    parents = traces.leading_edges(a.paths)
    trace = traces.NO_TRACE._replace(
        columns=columns, features=by_prompt, paths=token_paths(a.paths), parents=parents, group_size=G, strength=0.3
    )
    room, square = np.zeros((a.d, LANES)), np.zeros((a.d, a.d, LANES))
    own_rewards = a.numbers(a.o, LANES)
    *_, mean, leads, masses = twins("weigh_edges", a.counts, own_rewards, N, trace, np.zeros(LANES), room, room)
    np.testing.assert_allclose(mean[:N], (a.counts * own_rewards).sum(axis=0)[:N] / G, rtol=1e-12)
    *_, forms = twins("fill_forms", a.tokens, leads, masses, N, parents, room, np.zeros((2, LANES)), square)
    assert np.abs(forms[:, :, :N]).max() > 0.1
    full = np.tril(np.moveaxis(forms, -1, 0))[:N]
    full += np.swapaxes(np.tril(full, -1), -1, -2)
    dense = features.features(a.problem.policy.logit_map)[a.prompts[:N]]
    gathered = np.zeros((a.d, columns.shape[1], LANES))
    for function in (compiled(STAGES["add_congruence"]), STAGES["add_congruence"].py_func):
        kept = trace._replace(hessian=np.ones((2 + N, dense.shape[2], dense.shape[2])))
        function(forms, a.prompts, 0.2, (2, N), kept, gathered, room, np.zeros(LANES))
        expected = 1.0 + 0.2 * np.einsum("ndi,nde,nej->nij", dense, full, dense)
        np.testing.assert_allclose(kept.hessian[2:], expected, rtol=1e-11, atol=1e-12)
        np.testing.assert_array_equal(kept.hessian[:2], 1.0)


ELSEWHERE = {
    "choose_prompts": "test_driver.py",
    **{
        f"{kind}_{what}": "test_training.py"
        for kind in ("tabular", "picked", "dense", "few", "head")
        for what in ("logits", "step")
    },
    **dict.fromkeys(("penalise", "see_fields", "sum_in_order", "sum_counted", "keep_rollout"), "test_training.py"),
    "clear_gradient": "test_training.py",
    "repeat_words": "test_step_grid.py",
    **dict.fromkeys(("fill_chunk", "draw_prompts_of", "draw_outcomes", "find_advantages"), "test_training.py"),
    "fill_covectors_of_update": "test_training.py",
    **dict.fromkeys(("weigh_tokens_anew", "response_row", "call_on_counts", "call_in_order"), "test_training.py"),
    "begin_streams": "test_gradient_drivers.py",
    "find_affine": "test_gradient_drivers.py",
    "note_fault": "test_kernel_trial.py",
    "entry": "test_training_stages.py, in write_counted",
    "exponential": "test_training_paths.py",
    "logarithm": "test_training_paths.py",
    "multiset_numbers": "test_training_stages.py, in sum_by_table",
    **dict.fromkeys(("look_up_advantages", "sum_looked_up"), "test_training_stages.py, in sum_by_table"),
    "count_words": "test_training_stages.py, in count_outcomes",
    "read_short": "test_gradient_drivers.py",
    "fill_words": "streams_by_numpy.py",
    "next_uniform": "streams_by_numpy.py",
    "mix": "test_gradient_drivers.py",
    **dict.fromkeys(("turn", "uniform"), "streams_by_numpy.py"),
    "fill_advantages": "test_driver.py",
    "fill_aliases": "test_driver.py",
}
"""Stages that are tried by other files."""


def test_every_stage_is_tried():
    source = __import__("pathlib").Path(__file__).read_text()
    tried = {name for name in STAGES if f'twins("{name}"' in source or f'STAGES["{name}"]' in source}
    assert tried | set(ELSEWHERE) == set(STAGES)
    used = {name for name, value in vars(advance).items() if isinstance(value, Dispatcher)}
    assert used - set(own(advance)) <= set(STAGES)


def check_types(value, declared):
    """Compare a record's fields, and those of the records in it, with what is declared."""
    for number, (field, expected) in enumerate(zip(value, declared.types, strict=True)):
        if isinstance(field, tuple):
            check_types(field, expected)
        else:
            assert typeof(field) == expected, (type(value).__name__, number)


@pytest.mark.parametrize("policy", [*POLICIES, "tree", "linear tree"])
@pytest.mark.parametrize("penalty_kind", PENALTIES)
def test_records_have_the_types_that_the_driver_declares(policy, penalty_kind, registry):
    """The driver takes them at their word."""
    problem = token_case(policy, penalty_kind).problem
    parts = {"ratio": "token", "aggregation": "batch tokens", "kl": "k3 in loss"}
    made = [gt.compose("composed_for_one_test", advantage="rloo", **parts)] if penalty_kind == "kl" else []
    for estimator in (*made, *(gt.estimators()[name] for name in ("rloo", "grpo", "optimal", "optimal_loo", "dapo"))):
        for updates, lag, optimiser in ((1, 0, gt.SGD()), (2, 0, gt.SGD()), (1, 0, gt.Adam()), (2, 3, gt.SGD())):
            made_blocks = TrainingBlocks.of(problem, estimator, np.ones(8), (4, 5, updates, lag), optimiser=optimiser)
            streams, step_room = random_streams.block_streams(np.random.SeedSequence(0), 0), make_step_room(made_blocks)
            begun = Runs(made_blocks, step_room, streams, np.tile(problem.theta, (3, 1)), traces.NO_TRACE)
            given = [
                (made_blocks.functions, advance.FUNCTIONS),
                (made_blocks.rules, advance.RULES),
                (made_blocks.updates, advance.UPDATES),
                (begun.room, advance.STEP_ROOM),
                (begun.state, advance.STATE),
                (begun.streams, random_streams.STREAMS),
                (traces.NO_TRACE, traces.TRACE),
            ]
            for value, declared in given:
                check_types(value, declared)
    assert score_moments.fill_gains.py_func.__module__ == score_moments.__name__
