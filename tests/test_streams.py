"""Seeds, streams and what is drawn from them: every number is bit-identical, whoever computes it, and has its law."""

import tracemalloc
from functools import partial

import numpy as np
import pytest
from enumeration import case
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from streams_by_numpy import alias_rows

import grpo_theory as gt
from grpo_theory.simulate.draws import (
    LANES,
    WARM_UP,
    as_seed_sequence,
    block_seed,
    block_streams,
    fill_batches,
    fill_ordered_batches,
    fill_words,
    make_batches,
    make_draw_room,
    outcome_law,
)

LEVEL = 1e-6
SIZES = {"batch_size": 16, "group_size": 64}
BLOCK = gt.block_replications(16, 64)
ALL = ("rloo", "oracle", "optimal_loo")


def simulate(estimators=ALL, *, replications=2 * BLOCK + 7, rng=11, workers=1, **more):
    c, how = case("linear", "graded"), {"directions": np.eye(3)[:2]} | SIZES | more
    return gt.simulate_gradients(c.problem, c.theta, estimators, replications=replications, rng=rng, workers=workers, **how)


# ---- workers, blocks and seeds


def test_any_number_of_workers_gives_the_same_bits_and_blocks_merge_to_the_whole():
    """Threads are given several blocks each; what they find is merged block by block, as here."""
    whole = simulate().to_dict()
    assert all(simulate(workers=workers).to_dict() == whole for workers in (2, 5, None))
    merged = simulate(replications=BLOCK)
    for block, count in ((1, BLOCK), (2, 7)):
        part = simulate(replications=count, first_block=block)
        assert part.to_dict() != simulate(replications=count).to_dict()
        merged = merged.merge(part)
    assert merged.to_dict() == whole
    replications = 70 * BLOCK + 7
    many = simulate("rloo", replications=BLOCK)
    for block in range(1, 71):
        many = many.merge(simulate("rloo", replications=min(BLOCK, replications - block * BLOCK), first_block=block))
    assert simulate("rloo", replications=replications, workers=3).to_dict() == many.to_dict()


def test_what_a_seed_may_be():
    """An int is its seed sequence, which is read and not advanced; a generator moves on; nothing is fresh entropy."""
    few = partial(simulate, replications=100)
    sequence, keyed = np.random.SeedSequence(11), np.random.SeedSequence(11, spawn_key=(4, 2))
    generator = np.random.default_rng(3)
    found = [few(rng=rng).to_dict() for rng in (11, 12, keyed, generator, generator, None, None)]
    assert all(one != other for i, one in enumerate(found) for other in found[:i])
    for same in (np.int64(11), sequence, sequence):
        assert few(rng=same).to_dict() == found[0]
    assert few(rng=np.random.default_rng(3)).to_dict() == found[3]
    for wrong in (-1, 1.5, "seed", True):
        with pytest.raises(TypeError, match="rng must be a non-negative int, a SeedSequence or a Generator, got"):
            few(rng=wrong)


def test_the_block_is_fixed_by_the_shape_of_a_batch():
    """Whole tiles of 64 replications, about two million responses."""
    assert gt.block_replications(16, 64) * 16 * 64 == gt.block_replications(1, 1) == 1 << 21
    assert gt.block_replications(1 << 10, 1 << 10) == LANES
    assert gt.block_replications(3, 5) == (1 << 21) // (15 * LANES) * LANES


def test_memory_does_not_grow_with_replications():
    """Forty blocks take no more than four do."""
    peaks = []
    for blocks in (4, 4, 40):  # the first also makes what is kept
        tracemalloc.start()
        simulate("rloo", replications=blocks * BLOCK)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.2 * peaks[1]


# ---- streams


@pytest.mark.parametrize("block", [0, 1 << 40])
def test_streams_are_numpys_and_each_lane_of_each_block_has_its_own(block):
    """A lane is numpy's SFC64 from the words of the block's seed, some rounds later; the lone stream is one more."""
    streams = block_streams(as_seed_sequence(9), block)
    own = block_seed(as_seed_sequence(9), block).generate_state(3 * (LANES + 1), np.uint64).reshape(3, -1)
    for first, found in zip(own.T, np.concatenate([streams.lanes, streams.lone], axis=1).T, strict=True):
        generator = np.random.SFC64(0)
        generator.state = generator.state | {"state": {"state": np.array([*first, 1], dtype=np.uint64)}}
        generator.random_raw(WARM_UP)
        np.testing.assert_array_equal(found, generator.state["state"]["state"])
        words = np.empty((8, 1), dtype=np.uint64)
        fill_words(found.reshape(4, 1).copy(), words)
        np.testing.assert_array_equal(words[:, 0], generator.random_raw(8))
    assert len(np.unique(own)) == own.size


# ---- the law of outcomes

TABLES = {
    "one in a billion": [1e-9, 1.0 - 1e-9],
    "small ones between": [0.3, 1e-6, 0.4, 2e-6, 0.3 - 3e-6],
    "half units": [2.0**-17, 1.5 * 2.0**-16, 1.0 - 2.0**-15],
    "zeros at both ends": [0.0, 0.2, 0.0, 0.8, 0.0],
    "many": np.random.default_rng(0).dirichlet(np.full(60, 0.1)).tolist(),
}


def counted(law, group_size, n_responses, seed, *, in_order):
    """Count the outcomes of so many responses, about, at one prompt with a law (O,)."""
    problem = gt.Problem(gt.Bandit([[0.0] * len(law)]), gt.TabularSoftmax(1, len(law)))
    made = outcome_law(problem.at(np.log(np.maximum(law, 1e-300))))
    room, batches = make_draw_room(made, 1, group_size), make_batches(made, 8, 1, group_size, in_order=in_order)
    streams, total = block_streams(np.random.SeedSequence(seed), 0), np.zeros(len(law), dtype=np.int64)
    while total.sum() < n_responses:
        (fill_ordered_batches if in_order else fill_batches)(made, group_size, streams, room, batches)
        total += batches.counts[:, :, ::2].sum(axis=(0, 1, 3), dtype=np.int64)  # the first of two rewards has all of the law
        if in_order:
            found = np.bincount(batches.ordered[0].ravel(), minlength=2 * len(law))
            np.testing.assert_array_equal(found, batches.counts[0].sum(axis=(0, 2)))
    return total


@pytest.mark.parametrize(("group_size", "in_order"), [(7, False), (4096, False), (7, True)])
@pytest.mark.parametrize("name", TABLES)
def test_draws_follow_the_law(name, group_size, in_order, seed):
    """In groups that are counted and in those drawn in order: each outcome by its exact law, at 1e-6 for all together.

    Half a unit of 16 bits is drawn 64 times: that it counts as a whole one, or as nothing, would show.
    """
    law = np.array(TABLES[name]) / sum(TABLES[name])
    counts = counted(law, group_size, 1 << 23, seed(list(TABLES).index(name) + group_size + in_order), in_order=in_order)
    assert all(binomtest(int(k), int(counts.sum()), p).pvalue > LEVEL / law.size for k, p in zip(counts, law, strict=True))


# ---- alias tables


@given(weights=st.lists(st.one_of(st.just(0.0), st.floats(0.0, 1.0)), min_size=1, max_size=30).filter(lambda w: sum(w) > 1e-6))
def test_alias_tables_hold_their_law_and_its_zeros_are_never_drawn(weights):
    """By the lengths of the intervals that lead to each point."""
    law, n = np.array(weights) / sum(weights), len(weights)
    own, other = alias_rows(law).T
    other = other.astype(int)
    found = own / n
    np.add.at(found, other, (1.0 - own) / n)
    np.testing.assert_allclose(found, law, rtol=0.0, atol=2.0**-32)
    assert (own[law == 0.0] == 0.0).all()
    assert (law[other[own < 1.0]] > 0.0).all()
