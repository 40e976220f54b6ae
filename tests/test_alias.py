"""Alias tables: they hold their laws exactly, and what cannot happen is never drawn."""

import numpy as np
import pytest
from compiled_stages import compiled
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from grpo_theory.simulate.draw.prompt_tables import AliasTable, alias_table, draw_prompts

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


def law_of(table: AliasTable, row: int) -> np.ndarray:
    """Add the lengths of the intervals of a uniform that lead to each point."""
    n = table.threshold.shape[1]
    law = np.zeros(n)
    own = np.clip(table.threshold[row], 0.0, 1.0)
    np.add.at(law, table.choices[row, 0::2], own / n)
    np.add.at(law, table.choices[row, 1::2], (1.0 - own) / n)
    return law


def draw(table: AliasTable, row: int, uniforms: np.ndarray) -> np.ndarray:
    """Look draws up as the driver does, one row as a table of its own."""
    found = np.empty(uniforms.shape, dtype=np.int64)
    compiled(draw_prompts)(uniforms, table.threshold[row : row + 1], table.choices[row : row + 1], found)
    return found


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_the_table_holds_the_law(law):
    found = law_of(alias_table(np.array([law])), 0)
    np.testing.assert_allclose(found, law / np.sum(law), rtol=0.0, atol=1e-15 * max(1.0, len(law) ** 0.5))


@given(weights=st.lists(st.one_of(st.just(0.0), st.floats(0.0, 1.0)), min_size=1, max_size=30).filter(lambda w: sum(w) > 1e-6))
def test_any_law_is_held_and_its_zeros_are_never_drawn(weights):
    law = np.array(weights) / sum(weights)
    table = alias_table(law[None])
    np.testing.assert_allclose(law_of(table, 0), law, rtol=0.0, atol=1e-14)
    assert (law_of(table, 0)[law == 0.0] == 0.0).all()
    grid = np.linspace(0.0, 1.0, 997, endpoint=False)
    edges = np.concatenate([grid, np.arange(len(law)) / len(law), [np.nextafter(1.0, 0.0)]])
    assert (law[draw(table, 0, edges)] > 0.0).all()


def test_rows_are_laws_of_their_own():
    laws = np.random.default_rng(1).dirichlet(np.ones(6), size=5)
    laws[2] = [0, 0, 1, 0, 0, 0]
    table = alias_table(laws)
    for row in range(5):
        np.testing.assert_allclose(law_of(table, row), laws[row], rtol=0.0, atol=1e-15)
        alone = alias_table(laws[row : row + 1])
        assert np.array_equal(table.threshold[row], alone.threshold[0])
        assert np.array_equal(table.choices[row], alone.choices[0])


def test_weights_need_not_sum_to_one_to_the_last_bit():
    law = np.full((1, 3), 0.1) * [1, 2, 7 + 1e-10]
    np.testing.assert_allclose(law_of(alias_table(law), 0), law[0] / law.sum(), atol=1e-15)


def test_the_argument_is_left_as_it_is():
    law = np.array([[0.1, 0.2, 0.7]])
    alias_table(law)
    assert law.tolist() == [[0.1, 0.2, 0.7]]


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
    counts = np.bincount(draw(alias_table(law[None]), 0, np.random.default_rng(seed(0)).random(n)), minlength=10)
    critical = chi2.isf(1e-6, 9)
    assert ((counts - n * law) ** 2 / (n * law)).sum() < critical
    wrong = law * np.where(np.arange(10) == 4, 1.1, 1.0)
    wrong /= wrong.sum()
    assert ((counts - n * wrong) ** 2 / (n * wrong)).sum() > critical
