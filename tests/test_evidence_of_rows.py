"""Evidence read off rows: differences of independent estimates, distances, shares, and values that are no numbers."""

import numpy as np
import pytest

from grpo_theory.evidence.reading import average, difference, evidence, largest, most


def row(estimate, error, replications, prediction=0.0):
    return {"estimate": estimate, "standard_error": error, "replications": replications, "prediction": prediction}


def test_errors_of_independent_estimates_add_in_squares():
    found = difference(row(3.0, 0.3, 100), row(1.0, 0.4, 50), prediction=1.5)
    assert (found.estimate, found.prediction, found.replications) == (2.0, 1.5, 50)
    assert found.standard_error == pytest.approx(0.5, rel=1e-14)


def test_a_row_is_judged_by_its_own_prediction_unless_another_is_given():
    own = row(2.0, 0.1, 10, prediction=2.5)
    assert evidence(own).prediction == 2.5
    assert evidence(own, 0.0, margin=0.2).prediction == 0.0
    assert evidence(own, comparisons=3).comparisons == 3


def test_most_is_a_share_of_those_in_which_it_does_not_hold():
    found = most([True, True, False, True])
    assert (found.estimate, found.prediction, found.replications) == (0.25, 0.5, 4)


@pytest.mark.parametrize("function", [largest, average])
def test_a_value_that_is_no_number_is_an_error(function):
    with pytest.raises(ValueError, match="number"):
        function([1.0, np.nan])
