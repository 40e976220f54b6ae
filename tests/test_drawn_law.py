"""The law of the outcomes that words of 8 and 16 bits draw: exact tables, and draws that follow them to one in a billion."""

from itertools import combinations

import numpy as np
import pytest
from compiled_stages import compiled
from scipy.stats import binomtest, chi2

from grpo_theory.simulate.draw.counting import fill_counts, make_counting_room, make_counts
from grpo_theory.simulate.draw.outcome_law import drawn_again, make_law
from grpo_theory.simulate.draw.prompt_tables import short_lookup
from grpo_theory.simulate.draw.sheet import make_sheet
from grpo_theory.simulate.draw.streams import LANES, block_streams, fill_words, next_uniform

LEVEL = 1e-6
UNIT = 2.0**-16
RNG = np.random.default_rng(0)
TABLES = {
    "one outcome": [1.0],
    "a fair coin": [0.5, 0.5],
    "one in a billion": [1e-9, 1.0 - 1e-9],
    "all but one in a billion": [1.0 - 1e-9, 1e-9],
    "one in a million": [1e-6, 1.0 - 1e-6],
    "small ones between": [0.3, 1e-6, 0.4, 2e-6, 0.3 - 3e-6],
    "one unit": [UNIT, 1.0 - UNIT],
    "all but one unit": [1.0 - UNIT, UNIT],
    "whole units": [3 * UNIT, 5 * UNIT, 1.0 - 8 * UNIT],
    "quarters": [0.25] * 4,
    "half units": [0.5 * UNIT, 1.5 * UNIT, 1.0 - 2.0 * UNIT],
    "just below a unit": [UNIT * (1.0 - 1e-9), 1.0 - UNIT * (1.0 - 1e-9)],
    "thirds": [1 / 3] * 3,
    "certain": [0.0, 1.0, 0.0],
    "zeros at both ends": [0.0, 0.2, 0.0, 0.8, 0.0],
    "falling": (0.5 ** np.array([*range(1, 24), 23])).tolist(),
    "nothing but residual": [1e-5] * 20 + [1.0 - 20e-5],
    "eight": RNG.dirichlet(np.ones(8)).tolist(),
    "twenty": RNG.dirichlet(np.full(20, 0.2)).tolist(),
    "many": RNG.dirichlet(np.full(60, 0.1)).tolist(),
}


def law_of(law):
    """Return what the tables draw outcomes from, shape (M, O)."""

    def found(residual, thresholds, bits, rest):
        whole = np.diff(thresholds.astype(int), axis=1, prepend=-(1 << (bits - 1))) / (1 << bits)
        share = 1.0 - whole.sum(axis=1, keepdims=True)
        return whole + share * (residual / residual.sum(axis=1, keepdims=True) if rest is None else rest)

    levels = law.numbers.rows[:, : law.fine.shape[1]], law.numbers.rows[:, law.fine.shape[1] : 2 * law.fine.shape[1]]
    if len(law.coarse) == 0:
        return found(law.fine, levels[0], 16, None)
    return found(law.coarse, levels[0], 8, found(law.fine, levels[1], 16, None))


def filled(law, group_size, n_tiles, batch_size, seed):
    """Draw the first tiles of a block from a law that is made, and return their counts."""
    sheet, counts = make_sheet(law), make_counts(n_tiles, batch_size, law.fine.shape[1])
    streams, room = block_streams(np.random.SeedSequence(seed), 0), make_counting_room(law, sheet)
    fill_counts.run(streams, law, sheet, room, 0, counts)
    return counts


def drawn(law, group_size, n_responses, seed, change=lambda law, sheet: (law, sheet)):
    """Count the outcomes of so many responses, about, at one prompt with a law (O,)."""
    made = make_law(np.ones(1), law[None], 1, group_size)
    made, sheet = change(made, make_sheet(made))
    room, counts = make_counting_room(made, sheet), make_counts(8, 1, len(law))
    streams = block_streams(np.random.SeedSequence(seed), 0)
    total, first = np.zeros(len(law), dtype=np.int64), 0
    while total.sum() < n_responses:
        fill_counts.run(streams, made, sheet, room, first, counts)
        total += counts.outcomes.sum(axis=(0, 1, 3), dtype=np.int64)
        first += 8
    return total


def p_value(counts, law):
    """Return the p-value of counts under a law: of the least probable outcome alone, exactly, and by chi-square.

    For the latter outcomes expected below 50 times are pooled with the least probable of the others.
    """
    if (counts[law == 0.0] > 0).any():
        return 0.0
    order = np.argsort(law[law > 0.0])
    counts, law, total = counts[law > 0.0][order], law[law > 0.0][order], counts.sum()
    least = binomtest(int(counts[0]), int(total), law[0] / law.sum()).pvalue
    first = int((total * law < 50.0).sum())
    counts, expected = (np.append(part[: first + 1].sum(), part[first + 1 :]) for part in (counts, total * law / law.sum()))
    if len(counts) == 1 or (len(counts) == 2 and first == 0):
        return least
    return min(1.0, 2.0 * min(least, chi2.sf(((counts - expected) ** 2 / expected).sum(), len(counts) - 1)))


@pytest.mark.parametrize("group_size", [7, 4096])
@pytest.mark.parametrize("law", TABLES.values(), ids=TABLES)
def test_tables_hold_their_laws(law, group_size):
    law = np.array([law, law[::-1]])
    made = make_law(np.ones(2), law, 1, group_size)
    assert len(made.coarse) == (2 if group_size == 4096 else 0)
    np.testing.assert_allclose(law_of(made), law / law.sum(axis=1, keepdims=True), rtol=1e-10, atol=1e-16)
    n, lowest = law.shape[1], -(1 << 15)
    for first in range(0, n * (1 + (len(made.coarse) > 0)), n):
        thresholds = made.numbers.rows[:, first : first + n].astype(int)
        assert (np.diff(thresholds, axis=1) >= 0).all()
        assert thresholds.min() >= (lowest if first or not len(made.coarse) else -128)
        assert thresholds.max() < (1 << 15 if first or not len(made.coarse) else 128)
    assert (made.coarse >= 0.0).all()
    assert (made.fine >= 0.0).all()


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("group_size", [7, 4096])
def test_draws_follow_the_law(name, group_size, seed):
    law = np.array(TABLES[name])
    counts = drawn(law, group_size, 1 << 25, seed(list(TABLES).index(name) + group_size))
    assert p_value(counts, law / law.sum()) > LEVEL


@pytest.mark.parametrize("group_size", [6, 300])
@pytest.mark.parametrize(("n_values", "n_responses"), [(2, 5), (2, 8), (3, 5), (4, 3)])
def test_outcomes_that_exclude_one_another_are_counted_together(n_values, n_responses, group_size):
    """Where prompt and response decide the reward: the same counts as threshold by threshold, from fewer comparisons."""
    rng, n_prompts = np.random.default_rng(n_values), 7
    pi, rewards = rng.dirichlet(np.full(n_responses, 0.4), n_prompts), rng.integers(n_values, size=(n_prompts, n_responses))
    pi[0], pi[1] = np.eye(n_responses)[-1], [1e-7, *np.full(n_responses - 2, 1e-6), 0.0]
    pi[1, -1] = 1.0 - pi[1].sum()
    probabilities = np.zeros((n_prompts, n_responses, n_values))
    np.put_along_axis(probabilities, rewards[:, :, None], pi[:, :, None], axis=2)
    flat = probabilities.reshape(n_prompts, -1)
    together = make_law(np.ones(n_prompts), flat, n_values, group_size)
    one_by_one = make_law(np.ones(n_prompts), flat, 1, group_size)
    assert (together.stride, one_by_one.stride) == (n_values, 1)
    assert (len(together.coarse) > 0) == (group_size == 300)
    found = [filled(law, group_size, 30, 2, 4) for law in (together, one_by_one)]
    np.testing.assert_array_equal(found[0].prompts, found[1].prompts)
    np.testing.assert_array_equal(found[0].outcomes, found[1].outcomes)
    assert (found[0].outcomes.sum(axis=2) == group_size).all()
    seen = found[0].outcomes.reshape(30, 2, n_responses, n_values, -1).transpose(0, 1, 4, 2, 3)
    assert not seen[probabilities[found[0].prompts] == 0.0].any()
    probabilities[3, 0, :2] += 1e-4
    both = make_law(np.ones(n_prompts), flat, n_values, group_size)
    assert both.stride == 1, "one prompt whose first response may have two rewards"


def without_words(law, sheet):
    """Let nothing be drawn again by 16 bits, so that all of it is late."""
    return law, sheet._replace(fine=sheet.fine[:, :0].copy())


def again_from_everything(law, sheet):
    """Draw what 8 bits leave from the outcomes' own law, and not from what is left of it."""
    own = make_law(np.ones(1), law_of(law), 1, 7).numbers.rows[:, : law.fine.shape[1]]
    return law._replace(numbers=short_lookup(np.hstack([law.numbers.rows[:, : law.fine.shape[1]], own]))), sheet


def late_from_everything(law, sheet):
    """And what is late from what 16 bits leave."""
    return without_words(law._replace(coarse=law_of(law)), sheet)


@pytest.mark.parametrize("name", ["eight", "twenty", "many"])
def test_what_8_bits_leave_is_drawn_from_what_is_left(name, seed):
    """With words of 16 bits and without any; from another law, both are found out."""
    law = np.array(TABLES[name])
    for change, is_right in ((without_words, True), (again_from_everything, False), (late_from_everything, False)):
        counts = drawn(law, 4096, 1 << 26, seed(5), change)
        assert (p_value(counts, law) > LEVEL) == is_right, change.__name__


def test_few_bits_are_for_large_groups_that_leave_little():
    for probabilities, group_size, is_coarse in (([0.3, 0.7], 31, False), ([0.3, 0.7], 32, True), ([1 / 300] * 300, 512, False)):
        law = make_law(np.ones(1), np.array([probabilities]), 1, group_size)
        assert (len(law.coarse) > 0) == is_coarse
        sheet = make_sheet(law)
        expected = (32, drawn_again(law.coarse, group_size)) if is_coarse else (0, -(-group_size // 4) * 4)
        assert (sheet.coarse.shape[1], sheet.fine.shape[1]) == expected
        for one, other in combinations(sheet[1:], 2):
            assert not np.shares_memory(one, other)
        assert all(part.size == 0 or np.shares_memory(part, sheet.words) for part in sheet[1:])


def counts_of_groups(law, group_size, n_tiles, seed):
    """Return the prompts (n,) and the counts (n, O) of groups that are drawn from a law of several prompts, (M, O)."""
    counts = filled(make_law(np.ones(len(law)), law, 1, group_size), group_size, n_tiles, 3, seed)
    return counts.prompts.ravel(), counts.outcomes.transpose(0, 1, 3, 2).reshape(-1, law.shape[1])


def dispersion(counts, probability, group_size):
    """Return by how many standard errors the variance of counts is off that of the binomial law."""
    z = (counts - group_size * probability) / np.sqrt(group_size * probability * (1.0 - probability))
    excess = (1.0 - 6.0 * probability * (1.0 - probability)) / (group_size * probability * (1.0 - probability))
    return ((z**2).mean() - 1.0) / np.sqrt((2.0 + excess) / len(z))


@pytest.mark.parametrize("group_size", [8, 40, 300])
def test_responses_of_a_group_are_independent(group_size, seed):
    """Counts have the binomial variance at each prompt; outcomes of less than 1/256 are those that are drawn again.

    If two responses shared what draws them again, their counts would have up to twice the variance.
    """
    law = np.array([[0.9 / 256, 0.7 / 256, 1.0 - 1.6 / 256], [0.5, 0.8 / 256, 0.5 - 0.8 / 256]])
    prompts, counts = counts_of_groups(law, group_size, 2000, seed(6))
    found = [dispersion(counts[prompts == m, o], law[m, o], group_size) for m in range(2) for o in range(3)]
    assert np.abs(found).max() < 5.0
    shared = np.repeat(counts[prompts == 0, 0][::2], 2)  # the control: what is common to two groups, added up
    assert abs(dispersion(shared[::2] + shared[1::2], law[0, 0], 2 * group_size)) > 5.0


@pytest.mark.parametrize("name", ["one in a billion", "all but one in a billion"])
def test_one_in_a_billion_comes_once_in_a_billion(name, seed):
    """Two billion draws; a law with twice or half the probability, let alone none, would be 2 or 4 draws away."""
    law = np.array(TABLES[name])
    assert p_value(drawn(law, 32_768, 2e9, seed(3)), law) > LEVEL


@pytest.mark.parametrize(
    "name", ["one in a million", "small ones between", "half units", "nothing but residual", "falling", "just below a unit"]
)
def test_thresholds_without_the_residual_are_found_out(name, seed):
    """The same tests on a law rounded to multiples of 2^-16: each fails, though no probability is wrong by more than 2^-17."""
    law = np.array(TABLES[name])
    rounded = np.round(law / UNIT) * UNIT
    if name == "just below a unit":
        rounded = np.floor(law / UNIT) * UNIT
    rounded[np.argmax(law)] += 1.0 - rounded.sum()
    counts = drawn(rounded, 4096, 1 << 28, seed(4))
    assert p_value(counts, law) < LEVEL


def test_lanes_are_numpys_generator_state_for_state():
    streams = block_streams(np.random.SeedSequence(5), 3)
    words = np.empty((40, LANES), dtype=np.uint64)
    generators = []
    for state in streams.lanes.T:
        bit_generator = np.random.SFC64()
        bit_generator.state = {**bit_generator.state, "state": {"state": state.copy()}}
        generators.append(bit_generator)
    compiled(fill_words)(streams.lanes, LANES, words)
    for lane in range(LANES):
        np.testing.assert_array_equal(words[:, lane], generators[lane].random_raw(40))
        np.testing.assert_array_equal(streams.lanes[:, lane], generators[lane].state["state"]["state"])


def test_the_lone_stream_is_numpys_generator():
    streams = block_streams(np.random.SeedSequence(6), 2)
    bit_generator = np.random.SFC64()
    bit_generator.state = {**bit_generator.state, "state": {"state": streams.lone.copy()}}
    expected = np.random.Generator(bit_generator).random(50)
    np.testing.assert_array_equal([compiled(next_uniform)(streams.lone) for _ in range(50)], expected)
    np.testing.assert_array_equal(streams.lone, bit_generator.state["state"]["state"])
