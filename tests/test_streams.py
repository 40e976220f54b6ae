"""Seeds, streams and what is drawn from them: every number is bit-identical, whoever computes it, and has its law."""

import tracemalloc

import numba
import numpy as np
import pytest
from enumeration import case
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, chi2
from streams_by_numpy import raw

import grpo_theory as gt
from grpo_theory.compiler import OPTIONS
from grpo_theory.simulate.draw.batches import BatchStream
from grpo_theory.simulate.draw.counting import fill_counts, make_counting_room, make_counts
from grpo_theory.simulate.draw.outcome_law import make_law, outcome_law
from grpo_theory.simulate.draw.prompt_tables import alias_rows, fill_aliases
from grpo_theory.simulate.draw.responses import OutcomeTables, invert
from grpo_theory.simulate.draw.sheet import make_sheet
from grpo_theory.simulate.draw.streams import (
    LANES,
    WARM_UP,
    as_seed_sequence,
    block_generator,
    block_streams,
    fill_words,
    next_uniform,
    stream_words,
)
from grpo_theory.simulate.gradients import jobs_of

LEVEL = 1e-6
SIZES = {"batch_size": 16, "group_size": 64}
BLOCK = gt.block_replications(16, 64)
ALL = ("rloo", "oracle", "optimal_loo")


def simulate(estimators=ALL, *, replications=2 * BLOCK + 7, rng=11, workers=1, **more):
    c, how = case("linear", "graded"), {"directions": np.eye(3)[:2]} | SIZES | more
    return gt.simulate_gradients(c.problem, c.theta, estimators, replications=replications, rng=rng, workers=workers, **how)


def state(run):
    return run.to_dict()


# ---- workers, blocks and seeds


def test_any_number_of_workers_gives_the_same_bits_and_blocks_merge_to_the_whole():
    """Threads are given several blocks each; what they find is merged block by block, as here."""
    whole = simulate()
    for workers in (2, 5, None):
        assert state(simulate(workers=workers)) == state(whole)
    merged = simulate(replications=BLOCK)
    for block, count in ((1, BLOCK), (2, 7)):
        part = simulate(replications=count, first_block=block)
        assert state(part) != state(simulate(replications=count))
        merged = merged.merge(part)
    assert state(merged) == state(whole)
    replications = 70 * BLOCK + 7
    many = simulate("rloo", replications=BLOCK)
    for block in range(1, 71):
        many = many.merge(simulate("rloo", replications=min(BLOCK, replications - block * BLOCK), first_block=block))
    for workers in (1, 3):
        assert state(simulate("rloo", replications=replications, workers=workers)) == state(many)


@given(replications=st.integers(1, 10**5), size=st.sampled_from([1, 128]), workers=st.integers(1, 50))
def test_jobs_are_all_the_blocks_one_after_another(replications, size, workers):
    made = list(jobs_of(3, replications, size, workers, 16))
    n_blocks = [-(-count // size) for _, count in made]
    assert sum(count for _, count in made) == replications
    assert all(count % size == 0 for _, count in made[:-1])
    assert [block for block, _ in made] == (3 + np.cumsum([0, *n_blocks[:-1]])).tolist()


def test_what_a_seed_may_be():
    """An int is its seed sequence, which is read and not advanced; a generator moves on; nothing is fresh entropy."""
    one, keyed, generator = simulate(), np.random.SeedSequence(11, spawn_key=(4, 2)), np.random.default_rng(3)
    sequence = np.random.SeedSequence(11)
    for same in (11, np.int64(11), sequence, sequence):
        assert state(simulate(rng=same)) == state(one)
    assert sequence.n_children_spawned == 0
    assert state(simulate(rng=keyed)) == state(simulate(rng=np.random.SeedSequence(11, spawn_key=(4, 2))))
    first, second = simulate(rng=generator), simulate(rng=generator)
    assert state(first) == state(simulate(rng=np.random.default_rng(3)))
    found = [
        state(run) for run in (one, simulate(rng=12), simulate(rng=keyed), first, second, simulate(rng=None), simulate(rng=None))
    ]
    assert all(one != other for i, one in enumerate(found) for other in found[:i])


@pytest.mark.parametrize("rng", [-1, 1.5, "seed", True, np.random.RandomState(1), [1, 2]])
def test_what_is_no_seed_is_refused(rng):
    with pytest.raises(TypeError, match="rng must be a non-negative int, a SeedSequence or a Generator, got"):
        simulate(rng=rng)


def test_a_replication_is_the_same_whatever_the_number_of_them_and_the_company():
    """The estimates of short runs, got back from means over ever more replications, are those of what is drawn at once."""
    sums = [n * simulate(replications=n).means for n in range(1, 6)]
    estimates, c = np.diff(sums, axis=0, prepend=0.0), case("linear", "graded")
    point = c.problem.at(c.theta)
    (prompts, outcomes), by_parts = (drawn(point, tiles, 16, 64) for tiles in ([4], [1, 3]))
    np.testing.assert_array_equal(outcomes, by_parts[1])
    scores = c.policy.scores(c.theta)
    for r in range(5):
        m, n = prompts[0, :, r], outcomes[0, :, :, r].astype(float)
        z, w = point.rewards[m], scores[m][:, point.outcome_responses]
        advantages = n * (z - (n * z).sum(axis=1, keepdims=True) / 64)
        np.testing.assert_allclose(estimates[r, 0, 4:], np.einsum("bo,bod->d", advantages, w)[:2] / (16 * 63), atol=1e-13)


def drawn(point, tiles, batch_size, group_size, block=0):
    """Draw the first tiles of a block, so many at a time: prompts (S, B, LANES) and counts (S, B, O, LANES)."""
    law = outcome_law(point, group_size)
    stream, found = BatchStream(law), []
    stream.begin(stream_words(as_seed_sequence(11)), block)
    for n_tiles in tiles:
        counts = make_counts(n_tiles, batch_size, law.fine.shape[1])
        stream.fill(counts)
        found.append(counts)
    return [np.concatenate(parts) for parts in zip(*found, strict=True)]


def test_the_block_is_fixed_by_the_shape_of_a_batch():
    """Whole tiles of 128 replications, about two million responses."""
    assert gt.block_replications(16, 64) * 16 * 64 == gt.block_replications(1, 1) == 1 << 21
    assert gt.block_replications(1 << 10, 1 << 10) == LANES
    assert gt.block_replications(3, 5) == (1 << 21) // (15 * LANES) * LANES
    for sizes, error in (((0, 4), ValueError), ((4, 2.5), TypeError)):
        with pytest.raises(error, match="must be"):
            gt.block_replications(*sizes)


def test_memory_does_not_grow_with_replications():
    """A hundred blocks take no more than ten do."""
    peaks = []
    for blocks in (3, 10, 100):
        tracemalloc.start()
        simulate("rloo", replications=blocks * BLOCK)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.2 * peaks[1]
    assert peaks[1] > 8 * 2 * BLOCK  # a block's observations are seen by the measurement


# ---- streams


@pytest.mark.parametrize("block", [0, 1, 1 << 40])
def test_streams_are_numpys_and_each_lane_of_each_block_has_its_own(block):
    """A lane's state is the seed's words, the third with the lane's number added; the lone stream's has the block's number."""
    compiled = numba.njit(**OPTIONS)
    streams, words = block_streams(as_seed_sequence(9), block, 2), stream_words(as_seed_sequence(9)).tolist()
    begun = [(words[0], words[1], (words[2] + block * LANES + j) % (1 << 64), 1) for j in range(2 * LANES)]
    lone = [(words[0] ^ ((1 << 64) - 1), words[1], (words[2] + block + j) % (1 << 64), 1) for j in range(2)]
    states = np.concatenate([*(streams.lanes[rows].T for rows in (slice(4), slice(4, 8))), streams.lone.reshape(2, 4)])
    assert len(np.unique(states, axis=0)) == len(states)
    for first, found in zip((*begun, *lone), states, strict=True):
        generator = np.random.SFC64(0)
        generator.state = generator.state | {"state": {"state": np.array(first, dtype=np.uint64)}}
        generator.random_raw(WARM_UP)
        np.testing.assert_array_equal(found, generator.state["state"]["state"])
    lanes, drawn_words = streams.lanes[:4].copy(), np.empty((40, LANES), dtype=np.uint64)
    compiled(fill_words.py_func)(lanes, LANES, drawn_words)
    np.testing.assert_array_equal(drawn_words.T, [raw(state, 40) for state in states[:LANES]])
    expected = (raw(streams.lone[:4], 50) >> np.uint64(11)) * 2.0**-53
    draw = compiled(next_uniform.py_func)
    np.testing.assert_array_equal([draw(streams.lone[:4]) for _ in range(50)], expected)


def test_blocks_draw_from_streams_of_their_own():
    point, seed = case().problem.at(case().theta), as_seed_sequence(11)
    found, law = [], outcome_law(point, 3)
    for block in (0, 1, 7):
        sheet, counts = make_sheet(law), make_counts(1, 2, law.fine.shape[1])
        fill_counts.run(block_streams(seed, block), law, sheet, make_counting_room(law, sheet), 0, counts)
        for one, other in zip(counts, drawn(point, [1], 2, 3, block), strict=True):
            np.testing.assert_array_equal(one, other)
        found.append(counts.outcomes.tobytes())
    assert len(set(found)) == 3
    draws = block_generator(as_seed_sequence(9), 2).random(4)
    np.testing.assert_array_equal(
        draws, np.random.Generator(np.random.SFC64(np.random.SeedSequence(9, spawn_key=(2,)))).random(4)
    )


# ---- the law of outcomes

UNIT = 2.0**-16
RNG = np.random.default_rng(0)
TABLES = {
    "one in a billion": [1e-9, 1.0 - 1e-9],
    "one in a million": [1e-6, 1.0 - 1e-6],
    "small ones between": [0.3, 1e-6, 0.4, 2e-6, 0.3 - 3e-6],
    "whole units": [3 * UNIT, 5 * UNIT, 1.0 - 8 * UNIT],
    "half units": [0.5 * UNIT, 1.5 * UNIT, 1.0 - 2.0 * UNIT],
    "thirds": [1 / 3] * 3,
    "zeros at both ends": [0.0, 0.2, 0.0, 0.8, 0.0],
    "nothing but residual": [1e-5] * 20 + [1.0 - 20e-5],
    "many": RNG.dirichlet(np.full(60, 0.1)).tolist(),
}


def counted(law, group_size, n_responses, seed):
    """Count the outcomes of so many responses, about, at one prompt with a law (O,)."""
    made = make_law(np.ones(1), law[None], 1, group_size)
    sheet, counts = make_sheet(made), make_counts(8, 1, len(law))
    room, streams = make_counting_room(made, sheet), block_streams(np.random.SeedSequence(seed), 0)
    total, first = np.zeros(len(law), dtype=np.int64), 0
    while total.sum() < n_responses:
        fill_counts.run(streams, made, sheet, room, first, counts)
        total += counts.outcomes.sum(axis=(0, 1, 3), dtype=np.int64)
        first += 8
    return total


def p_value(counts, law):
    """Return the p-value of counts under a law: of the least probable outcome alone, exactly, and by chi-square."""
    if (counts[law == 0.0] > 0).any():
        return 0.0
    order = np.argsort(law[law > 0.0])
    counts, law, total = counts[law > 0.0][order], law[law > 0.0][order], counts.sum()
    least = binomtest(int(counts[0]), int(total), law[0] / law.sum()).pvalue
    first = int((total * law < 50.0).sum())  # outcomes expected below 50 times are pooled with the least probable other
    counts, expected = (np.append(part[: first + 1].sum(), part[first + 1 :]) for part in (counts, total * law / law.sum()))
    if len(counts) == 1 or (len(counts) == 2 and first == 0):
        return least
    return min(1.0, 2.0 * min(least, chi2.sf(((counts - expected) ** 2 / expected).sum(), len(counts) - 1)))


@pytest.mark.parametrize("group_size", [7, 4096])
@pytest.mark.parametrize("name", TABLES)
def test_draws_follow_the_law(name, group_size, seed):
    """In groups drawn by words of 16 bits, and by 8 bits first."""
    law = np.array(TABLES[name])
    counts = counted(law, group_size, 1 << 24, seed(list(TABLES).index(name) + group_size))
    assert p_value(counts, law / law.sum()) > LEVEL


# ---- alias tables


@given(weights=st.lists(st.one_of(st.just(0.0), st.floats(0.0, 1.0)), min_size=1, max_size=30).filter(lambda w: sum(w) > 1e-6))
def test_alias_tables_hold_their_law_and_its_zeros_are_never_drawn(weights):
    """By the lengths of the intervals that lead to each point, each law alone or several at once."""
    law, n = np.array(weights) / sum(weights), len(weights)
    table = alias_rows(law)
    own = np.clip(table[:, 0], 0.0, 1.0)
    found = own / n
    np.add.at(found, table[:, 1].astype(int), (1.0 - own) / n)
    np.testing.assert_allclose(found, law, rtol=0.0, atol=1e-14)
    edges = np.concatenate([np.linspace(0.0, 1.0, 997, endpoint=False), np.arange(n) / n, [np.nextafter(1.0, 0.0)]])
    prompts, _ = invert(edges[None], OutcomeTables(table, np.empty((0, n))))
    assert (law[prompts] > 0.0).all()
    thresholds, choices = np.empty(2 * n), np.empty((2 * n, 2), dtype=np.int64)
    fill_aliases(np.stack([law, law[::-1]]), thresholds, choices)
    np.testing.assert_array_equal(thresholds[:n], table[:, 0])
    np.testing.assert_array_equal(choices[:n, 1], table[:, 1])
