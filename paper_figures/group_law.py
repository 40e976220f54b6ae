"""Errors at every group size, from exact ones at a few."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.validation import Array

TOLERANCE = 1e-9


def group_law(sizes: ArrayLike, errors: ArrayLike) -> Callable[[ArrayLike], Array]:
    """Return the error as a function of the group size G, a + b/G + c/(G(G-1)), from exact values at three sizes or more.

    The form is that of docs/derivations.md, section 2. It is exact for the leave-one-out estimator, with c = 0 for baselines that
    depend on the prompt alone. At a fixed number of responses it is exact after multiplication by G.

    Raises
    ------
    ValueError
        If the values are not of this form, or fewer than three.
    """
    sizes, errors = (np.asarray(values, dtype=np.float64) for values in (sizes, errors))
    terms = _terms(sizes)
    coefficients, _, rank, _ = np.linalg.lstsq(terms / errors[:, None], np.ones(errors.size))
    if rank < terms.shape[1] or not np.allclose(terms @ coefficients, errors, rtol=TOLERANCE, atol=0.0):
        raise ValueError(f"errors must be a + b/G + c/(G(G-1)) at three group sizes or more, got {errors} at {sizes}")
    return lambda wanted: _terms(np.asarray(wanted, dtype=np.float64)) @ coefficients


def fine(sizes: ArrayLike) -> Array:
    """Return group sizes from the least to the greatest of these, so close that a curve through them is smooth."""
    return np.geomspace(np.min(sizes), np.max(sizes), 200)


def _terms(sizes: Array) -> Array:
    return np.stack([np.ones_like(sizes), 1.0 / sizes, 1.0 / (sizes * (sizes - 1.0))], axis=-1)
