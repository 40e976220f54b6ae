"""Seeds, streams and what is drawn from them: every number is bit-identical, whoever computes it, and has its law."""

import tracemalloc

import numpy as np
import pytest
from enumeration import case
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

import grpo_theory as gt
from grpo_theory.simulate.draw.counting import fill_counts, make_counting_room, make_counts
from grpo_theory.simulate.draw.outcome_law import make_law
from grpo_theory.simulate.draw.prompt_tables import alias_rows
from grpo_theory.simulate.draw.sheet import make_sheet
from grpo_theory.simulate.draw.streams import (
    LANES,
    WARM_UP,
    as_seed_sequence,
    block_streams,
    stream_words,
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
    sequence, keyed, generator = (
        np.random.SeedSequence(11),
        np.random.SeedSequence(11, spawn_key=(4, 2)),
        np.random.default_rng(3),
    )
    found = [simulate(rng=rng).to_dict() for rng in (11, 12, keyed, generator, generator, None, None)]
    assert all(one != other for i, one in enumerate(found) for other in found[:i])
    for same in (np.int64(11), sequence, sequence):
        assert simulate(rng=same).to_dict() == found[0]
    assert simulate(rng=np.random.default_rng(3)).to_dict() == found[3]
    for wrong in (-1, 1.5, "seed", True):
        with pytest.raises(TypeError, match="rng must be a non-negative int, a SeedSequence or a Generator, got"):
            simulate(rng=wrong)


def test_the_block_is_fixed_by_the_shape_of_a_batch():
    """Whole tiles of 128 replications, about two million responses."""
    assert gt.block_replications(16, 64) * 16 * 64 == gt.block_replications(1, 1) == 1 << 21
    assert gt.block_replications(1 << 10, 1 << 10) == LANES
    assert gt.block_replications(3, 5) == (1 << 21) // (15 * LANES) * LANES


def test_memory_does_not_grow_with_replications():
    """A hundred blocks take no more than ten do."""
    peaks = []
    for blocks in (10, 10, 100):  # the first also makes what is kept
        tracemalloc.start()
        simulate("rloo", replications=blocks * BLOCK)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.2 * peaks[1]


# ---- streams


@pytest.mark.parametrize("block", [0, 1 << 40])
def test_streams_are_numpys_and_each_lane_of_each_block_has_its_own(block):
    """A lane's state is the seed's words, the third with the lane's number added; the lone stream's has the block's number."""
    streams, words = block_streams(as_seed_sequence(9), block, 2), stream_words(as_seed_sequence(9)).tolist()
    begun = [(words[0], words[1], (words[2] + block * LANES + j) % (1 << 64), 1) for j in range(2 * LANES)]
    lone = [(words[0] ^ ((1 << 64) - 1), words[1], (words[2] + block + j) % (1 << 64), 1) for j in range(2)]
    states = np.concatenate([*(streams.lanes[rows].T for rows in (slice(4), slice(4, 8))), streams.lone.reshape(2, 4)])
    for first, found in zip((*begun, *lone), states, strict=True):
        generator = np.random.SFC64(0)
        generator.state = generator.state | {"state": {"state": np.array(first, dtype=np.uint64)}}
        generator.random_raw(WARM_UP)
        np.testing.assert_array_equal(found, generator.state["state"]["state"])


# ---- the law of outcomes

TABLES = {
    "one in a billion": [1e-9, 1.0 - 1e-9],
    "small ones between": [0.3, 1e-6, 0.4, 2e-6, 0.3 - 3e-6],
    "half units": [2.0**-17, 1.5 * 2.0**-16, 1.0 - 2.0**-15],
    "zeros at both ends": [0.0, 0.2, 0.0, 0.8, 0.0],
    "many": np.random.default_rng(0).dirichlet(np.full(60, 0.1)).tolist(),
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


@pytest.mark.parametrize("group_size", [7, 4096])
@pytest.mark.parametrize("name", TABLES)
def test_draws_follow_the_law(name, group_size, seed):
    """In groups drawn by words of 16 bits, and by 8 bits first: each outcome by its exact law, at 1e-6 for all together."""
    law = np.array(TABLES[name]) / sum(TABLES[name])
    counts = counted(law, group_size, 1 << 24, seed(list(TABLES).index(name) + group_size))
    assert all(binomtest(int(k), int(counts.sum()), p).pvalue > LEVEL / law.size for k, p in zip(counts, law, strict=True))


# ---- alias tables


@given(weights=st.lists(st.one_of(st.just(0.0), st.floats(0.0, 1.0)), min_size=1, max_size=30).filter(lambda w: sum(w) > 1e-6))
def test_alias_tables_hold_their_law_and_its_zeros_are_never_drawn(weights):
    """By the lengths of the intervals that lead to each point."""
    law, n = np.array(weights) / sum(weights), len(weights)
    table = alias_rows(law)
    own, other = np.clip(table[:, 0], 0.0, 1.0), table[:, 1].astype(int)
    found = own / n
    np.add.at(found, other, (1.0 - own) / n)
    np.testing.assert_allclose(found, law, rtol=0.0, atol=1e-14)
    assert (own[law == 0.0] == 0.0).all()
    assert (law[other[own < 1.0]] > 0.0).all()
