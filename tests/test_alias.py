"""Alias tables: they hold their laws exactly, and what cannot happen is never drawn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from grpo_theory.simulate.draw.prompt_tables import alias_rows
from grpo_theory.simulate.draw.responses import OutcomeTables, invert

LAWS = {
    "one point": [1.0],
    "uniform": [0.25] * 4,
    "certain": [0.0, 1.0, 0.0],
    "zeros at both ends": [0.0, 0.2, 0.0, 0.8, 0.0],
    "tiny": [1e-300, 1.0 - 1e-16, 1e-16],
    "thirds": [1 / 3] * 3,
    "skew": (0.5 ** np.arange(1, 40)).tolist(),
    "many": np.random.default_rng(0).dirichlet(np.full(1000, 0.1)).tolist(),
}


def law_of(table: np.ndarray) -> np.ndarray:
    """Add the lengths of the intervals of a uniform that lead to each point."""
    n = len(table)
    own = np.clip(table[:, 0], 0.0, 1.0)
    law = own / n
    np.add.at(law, table[:, 1].astype(int), (1.0 - own) / n)
    return law


def draw(table: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Look draws up as pilots do, with no outcome to choose."""
    prompts, _ = invert(uniforms[None], OutcomeTables(table, np.empty((0, len(table)))))
    return prompts


def by_lists(law: np.ndarray) -> np.ndarray:
    """The table by Vose's lists, one law at a time, in plain Python."""
    total = 0.0
    for p in law.tolist():  # sum() adds more exactly from Python 3.12 on: other bits
        total += p
    threshold, other = [p * len(law) / total for p in law.tolist()], list(range(len(law)))
    small = [j for j, height in enumerate(threshold) if height < 1.0]
    large = [j for j, height in enumerate(threshold) if not height < 1.0]
    while small and large:
        low, high = small.pop(), large[-1]
        other[low] = high
        threshold[high] -= 1.0 - threshold[low]
        if threshold[high] < 1.0:
            small.append(large.pop())
    for j in small + large:
        threshold[j] = 1.0
    return np.column_stack([threshold, other])


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_compiled_tables_have_the_bits_of_plain_lists(law):
    assert np.array_equal(alias_rows(np.array(law)), by_lists(np.array(law)))


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_the_table_holds_the_law(law):
    found = law_of(alias_rows(np.array(law)))
    np.testing.assert_allclose(found, law / np.sum(law), rtol=0.0, atol=1e-15 * max(1.0, len(law) ** 0.5))


@given(weights=st.lists(st.one_of(st.just(0.0), st.floats(0.0, 1.0)), min_size=1, max_size=30).filter(lambda w: sum(w) > 1e-6))
def test_any_law_is_held_and_its_zeros_are_never_drawn(weights):
    law = np.array(weights) / sum(weights)
    table = alias_rows(law)
    np.testing.assert_allclose(law_of(table), law, rtol=0.0, atol=1e-14)
    assert (law_of(table)[law == 0.0] == 0.0).all()
    grid = np.linspace(0.0, 1.0, 997, endpoint=False)
    edges = np.concatenate([grid, np.arange(len(law)) / len(law), [np.nextafter(1.0, 0.0)]])
    assert (law[draw(table, edges)] > 0.0).all()


def test_weights_need_not_sum_to_one_to_the_last_bit():
    law = np.full(3, 0.1) * [1, 2, 7 + 1e-10]
    np.testing.assert_allclose(law_of(alias_rows(law)), law / law.sum(), atol=1e-15)


def test_the_argument_is_left_as_it_is():
    law = np.array([0.1, 0.2, 0.7])
    alias_rows(law)
    assert law.tolist() == [0.1, 0.2, 0.7]


def test_the_largest_uniform_stays_inside_the_table():
    """(1 - 2^-53) n is below n in floating point for every n, so the last place is in range."""
    n = np.arange(1, 200_000, dtype=np.float64)
    assert (np.nextafter(1.0, 0.0) * n < n).all()
    assert (np.floor(np.nextafter(1.0, 0.0) * n) == n - 1).all()


def test_draws_follow_the_law(seed):
    """Chi-square at 1e-6; 400,000 draws, so a law wrong by 10% at one of ten points passes at 1e-9."""
    law = np.linspace(1.0, 3.0, 10)
    law /= law.sum()
    n = 400_000
    counts = np.bincount(draw(alias_rows(law), np.random.default_rng(seed(0)).random(n)), minlength=10)
    critical = chi2.isf(1e-6, 9)
    assert ((counts - n * law) ** 2 / (n * law)).sum() < critical
    wrong = law * np.where(np.arange(10) == 4, 1.1, 1.0)
    wrong /= wrong.sum()
    assert ((counts - n * wrong) ** 2 / (n * wrong)).sum() > critical
