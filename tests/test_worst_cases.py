"""What the worst case of a statement is read from: random draws, a search, and something broken."""

import numpy as np
import pandas as pd
import pytest

from grpo_theory.evidence import Statement
from simulations.worst_cases import by_the_worst, ratios, sought, worst_of, worst_row

BOUND = Statement("X/bound", "here", "left over right is at most 1", "upper bound")


def table(*values):
    """Rows of what was drawn, sought and broken."""
    return pd.DataFrame([worst_row(BOUND, how, of) for how, of in zip(("random", "sought", "broken"), values, strict=True)])


@pytest.mark.parametrize(("drawn", "searched"), [([0.2, 0.9, 0.4], [0.7]), ([0.2], [0.9])])
def test_the_worst_is_the_largest_of_what_was_drawn_and_sought_and_never_the_broken_one(drawn, searched):
    own, control, facts = by_the_worst(table(drawn, searched, [3.0, 5.0]))
    assert (own.estimate, own.prediction, own.replications) == (0.9, 1.0, 0)
    assert (control.estimate, control.prediction) == (5.0, 1.0)
    assert facts == {"random": max(drawn), "sought": searched[0]}


def test_a_ratio_that_is_no_number_is_an_error():
    """Python's max would pass it over, if it does not stand first."""
    with pytest.raises(ValueError, match="must be numbers"):
        worst_row(BOUND, "random", ratios([(1.0, 2.0), (np.nan, 1.0)]))


def test_the_search_takes_its_size_from_the_settings():
    worst = sought(lambda x: (x[0], 2.0), [(0.0, 1.0)], {"starts": 8, "climbs": 1}, np.random.SeedSequence(0))
    assert worst.score == pytest.approx(0.5, abs=1e-6)
    assert worst.agreeing == 1


@pytest.mark.parametrize(("starts", "facts"), [(0, {"random": 1.0}), (8, {"random": 1.0, "sought": 1.25})])
def test_sides_of_a_bound_are_the_worst_of_what_was_drawn_and_sought(starts, facts):
    rng = np.random.default_rng(0)
    left, right, beside = worst_of([(1.0, 4.0), (3.0, 6.0)], lambda x: (x[0], 1.6), [(0.0, 1.0)], rng, starts, 1, bound=2.0)
    assert (left, right) == (pytest.approx(max(facts.values())), 2.0)
    assert beside == pytest.approx(facts)
