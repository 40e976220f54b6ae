"""Seeds, blocks and workers: every number is bit-identical, whoever computes it."""

import tracemalloc

import numpy as np
import pytest
from enumeration import case

import grpo_theory as gt
from grpo_theory.simulate.draw.batches import BatchStream
from grpo_theory.simulate.draw.counting import fill_counts, make_counting_room, make_counts
from grpo_theory.simulate.draw.outcome_law import outcome_law
from grpo_theory.simulate.draw.sheet import make_sheet
from grpo_theory.simulate.draw.streams import LANES, as_seed_sequence, block_generator, block_streams, stream_words
from grpo_theory.simulate.gradients import JOB_BLOCKS, jobs_of

SIZES = {"batch_size": 16, "group_size": 64}
BLOCK = gt.block_replications(16, 64)
ALL = ("rloo", "oracle", "optimal_loo")


def simulate(estimators=ALL, *, replications=2 * BLOCK + 7, rng=11, workers=1, **more):
    c = case("linear", "graded")
    directions = np.eye(3)[:2]
    return gt.simulate_gradients(
        c.problem, c.theta, estimators, **SIZES, replications=replications, rng=rng, workers=workers,
        directions=directions, **more,
    )  # fmt: skip


def state(run):
    return run.to_dict()


def test_any_number_of_workers_gives_the_same_bits():
    one = simulate(workers=1)
    assert one.replications == 2 * BLOCK + 7
    for workers in (2, 5, None):
        assert state(simulate(workers=workers)) == state(one)


def test_many_blocks_at_once_give_the_bits_of_one_at_a_time():
    """Threads are given several blocks each; what they find is merged block by block."""
    replications = 70 * BLOCK + 7
    merged = simulate("rloo", replications=BLOCK)
    for block in range(1, 71):
        merged = merged.merge(simulate("rloo", replications=min(BLOCK, replications - block * BLOCK), first_block=block))
    for workers in (1, 2, 3):
        assert state(simulate("rloo", replications=replications, workers=workers)) == state(merged)


@pytest.mark.parametrize(("replications", "size"), [(1, 1), (7, 10), (1000, 10), (100_001, 128)])
@pytest.mark.parametrize("workers", [1, 2, 50])
@pytest.mark.parametrize("most", [1, JOB_BLOCKS])
def test_jobs_are_all_the_blocks_one_after_another(replications, size, workers, most):
    made = list(jobs_of(3, replications, size, workers, most))
    n_blocks = [-(-count // size) for _, count in made]
    assert sum(count for _, count in made) == replications
    assert all(count % size == 0 for _, count in made[:-1])
    assert [block for block, _ in made] == (3 + np.cumsum([0, *n_blocks[:-1]])).tolist()
    assert n_blocks == sorted(n_blocks, reverse=True)
    assert n_blocks[0] <= most
    assert n_blocks[-min(len(made), workers) :] == [1] * min(len(made), workers)


def test_a_seed_is_honoured():
    assert state(simulate(rng=11)) == state(simulate(rng=11))
    assert state(simulate(rng=11)) != state(simulate(rng=12))
    assert state(simulate(rng=None)) != state(simulate(rng=None))


def test_an_int_is_its_seed_sequence():
    assert state(simulate(rng=np.random.SeedSequence(11))) == state(simulate(rng=11))
    assert state(simulate(rng=np.int64(11))) == state(simulate(rng=11))
    keyed = np.random.SeedSequence(11, spawn_key=(4, 2))
    assert state(simulate(rng=keyed)) == state(simulate(rng=np.random.SeedSequence(11, spawn_key=(4, 2))))
    assert state(simulate(rng=keyed)) != state(simulate(rng=11))


def test_a_generator_is_used_and_moves_on():
    generator = np.random.default_rng(3)
    first, second = simulate(rng=generator), simulate(rng=generator)
    assert state(first) != state(second)
    assert state(first) == state(simulate(rng=np.random.default_rng(3)))


@pytest.mark.parametrize("rng", [-1, 1.5, "seed", True, np.random.RandomState(1), [1, 2]])
def test_what_is_no_seed_is_refused(rng):
    with pytest.raises(TypeError, match="rng must be a non-negative int, a SeedSequence or a Generator, got"):
        simulate(rng=rng)


def test_a_seed_sequence_is_read_and_not_advanced():
    sequence = np.random.SeedSequence(5)
    simulate(rng=sequence)
    assert sequence.n_children_spawned == 0
    assert state(simulate(rng=sequence)) == state(simulate(rng=5))


def test_the_global_seed_is_neither_read_nor_changed():
    results, before, after = [], [], []
    for number in (1, 2):
        np.random.seed(number)  # noqa: NPY002
        before.append(np.random.get_state()[1].tolist())  # noqa: NPY002
        results.append(state(simulate()))
        after.append(np.random.get_state()[1].tolist())  # noqa: NPY002
    assert results[0] == results[1]
    assert before == after
    assert before[0] != before[1]


def test_estimators_see_the_same_draws_whatever_their_company():
    together = simulate()
    for i, name in enumerate(ALL):
        alone = simulate(name)
        assert np.array_equal(alone.means[0], together.means[i])
        assert alone.mse_standard_error[0] == together.mse_standard_error[i]


def test_a_replication_is_the_same_whatever_the_number_of_them():
    """The estimates of a short run, got back from means over ever more replications, are those of the longer ones."""
    counts_of = (1, 2, 3, 4, 5)
    sums = [n * simulate(replications=n).means for n in counts_of]
    estimates = np.diff(sums, axis=0, prepend=0.0)
    c = case("linear", "graded")
    point = c.problem.at(c.theta)
    whole = drawn(point, [4], 16, 64)
    for sizes in ((16, 64), (7, 32), (7, 5)):
        at_once = drawn(point, [4], *sizes)
        for tiles in ([1], [1, 3], [3, 1], [2, 2]):
            for one, other in zip(at_once, drawn(point, tiles, *sizes), strict=True):
                np.testing.assert_array_equal(one[: sum(tiles)], other)
    scores = c.policy.scores(c.theta)
    prompts, outcomes = whole
    for r in range(5):
        m, n = prompts[0, :, r], outcomes[0, :, :, r].astype(float)
        z, w = point.rewards[m], scores[m][:, point.outcome_responses]
        advantages = n * (z - (n * z).sum(axis=1, keepdims=True) / 64)
        estimate = np.einsum("bo,bod->d", advantages, w) / (16 * 63)
        np.testing.assert_allclose(estimates[r, 0, 4:], estimate[:2], atol=1e-13)


def drawn(point, tiles, batch_size, group_size):
    """Draw the first tiles of the first block, so many at a time: prompts (S, B, LANES) and counts (S, B, O, LANES)."""
    law = outcome_law(point, group_size)
    stream = BatchStream(law)
    stream.begin(stream_words(as_seed_sequence(11)), 0)
    found = []
    for n_tiles in tiles:
        counts = make_counts(n_tiles, batch_size, law.fine.shape[1])
        stream.fill(counts)
        found.append(counts)
    return [np.concatenate(parts) for parts in zip(*found, strict=True)]


@pytest.mark.parametrize("cut", [1, 2])
def test_runs_over_disjoint_blocks_merge_to_the_whole(cut):
    """Equal to the bit where one block is added at a time, as a run does; else equal to rounding, for sums associate."""
    whole = simulate()
    left = simulate(replications=cut * BLOCK)
    right = simulate(replications=(2 - cut) * BLOCK + 7, first_block=cut)
    merged = left.merge(right)
    assert merged.replications == whole.replications
    for name in ("means", "mse_scatter", "prompt_mse_scatter", "efficiency_scatter", "along_scatter"):
        np.testing.assert_allclose(getattr(merged, name), getattr(whole, name), rtol=1e-13, atol=1e-16)
    if cut == 2:
        assert state(merged) == state(whole)
    assert state(left) != state(right)


def test_blocks_merged_one_by_one_are_the_whole_to_the_bit():
    merged = simulate(replications=BLOCK)
    for block in range(1, 2):
        merged = merged.merge(simulate(replications=BLOCK, first_block=block))
    assert state(merged.merge(simulate(replications=7, first_block=2))) == state(simulate())


def test_blocks_have_streams_of_their_own():
    seed = as_seed_sequence(9)
    draws = [block_generator(seed, block).random(4).tolist() for block in range(4)]
    assert len({tuple(d) for d in draws}) == 4
    assert draws[2] == block_generator(as_seed_sequence(9), 2).random(4).tolist()
    expected = np.random.Generator(np.random.SFC64(np.random.SeedSequence(9, spawn_key=(2,)))).random(4)
    assert draws[2] == expected.tolist()


def test_blocks_of_lanes_have_streams_of_their_own():
    streams = [block_streams(as_seed_sequence(9), block) for block in (0, 1, 2, 1)]
    states = [tuple(state) for one in streams[:3] for state in (*one.lanes.T, one.lone)]
    assert len(set(states)) == len(states)
    np.testing.assert_array_equal(streams[1].lanes, streams[3].lanes)
    together = block_streams(as_seed_sequence(9), 0, 3)
    np.testing.assert_array_equal(together.lanes, np.concatenate([one.lanes for one in streams[:3]]))
    np.testing.assert_array_equal(together.lone, np.concatenate([one.lone for one in streams[:3]]))


def test_a_simulation_draws_from_the_streams_of_its_blocks():
    """What blocks draw there is what their streams draw here, and no two of them draw the same."""
    point = case().problem.at(case().theta)
    law = outcome_law(point, 3)
    sheet, stream = make_sheet(law), BatchStream(law)
    found = []
    for block in (0, 1, 7):
        room = make_counting_room(law, sheet)
        expected, drawn = (make_counts(1, 2, law.fine.shape[1]) for _ in range(2))
        fill_counts.run(block_streams(as_seed_sequence(9), block), law, sheet, room, 0, expected)
        stream.begin(stream_words(as_seed_sequence(9)), block)
        stream.fill(drawn)
        np.testing.assert_array_equal(drawn.outcomes, expected.outcomes)
        np.testing.assert_array_equal(drawn.prompts, expected.prompts)
        found.append(drawn.outcomes.tobytes())
    assert len(set(found)) == 3


def test_the_block_is_fixed_by_the_shape_of_a_batch():
    """Whole tiles of 128 replications, about two million responses."""
    assert gt.block_replications(16, 64) * 16 * 64 == 1 << 21
    assert gt.block_replications(1, 1) == 1 << 21
    assert gt.block_replications(1 << 10, 1 << 10) == LANES
    assert gt.block_replications(3, 5) == (1 << 21) // (15 * LANES) * LANES


@pytest.mark.parametrize(
    ("sizes", "error", "message"),
    [
        ((0, 4), ValueError, "batch_size must be at least 1, got 0"),
        ((4, -1), ValueError, "group_size must be at least 1, got -1"),
        ((4, 2.5), TypeError, r"group_size must be an integer of at least 1, got 2\.5"),
    ],
)
def test_the_shape_of_a_batch_is_checked(sizes, error, message):
    with pytest.raises(error, match=message):
        gt.block_replications(*sizes)


@pytest.mark.parametrize("workers", [1, 2])
def test_memory_does_not_grow_with_replications(workers):
    """A hundred blocks take no more than ten do, for each worker. The workers decide how many of them work at a time."""
    simulate(replications=3 * BLOCK, workers=workers)
    peaks = []
    for blocks, count in ((10, 1), (100, workers)):
        tracemalloc.start()
        simulate("rloo", replications=blocks * BLOCK, workers=count)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * workers * peaks[0]
    assert peaks[0] > 8 * 2 * BLOCK  # a block's observations are seen by the measurement
