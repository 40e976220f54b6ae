"""Which whole group size has the least error: the search, the readings of the law, and verdicts that follow the evidence."""

import numpy as np
import pytest

from simulations.gradient import best_group


@pytest.mark.parametrize("ratio", [0.3, 1.9, 2.1, 5.8, 11.9, 12.1, 300.0])
def test_a_laws_whole_minimiser_is_the_least_over_all_group_sizes(ratio):
    sizes = np.arange(2, 60)
    found = best_group.minimisers(1.0, ratio, 4.0 * ratio)
    assert found["corrected"] == sizes[np.argmin(sizes + ratio / (sizes - 1))]
    assert found["printed"] == sizes[np.argmin(sizes + ratio / sizes)] == max(2, found["corrected"] - 1)
    assert found["remainder"] == sizes[np.argmin(sizes + 4.0 * ratio / sizes)]
