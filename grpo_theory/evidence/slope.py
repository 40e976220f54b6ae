"""Exponents from log-log slopes."""

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.validation import as_numbers, as_real_array, check_finite, check_shape, check_within

LARGEST = 1e100
"""Squares of standard errors are numbers up to it."""


def log_log_slope(x: ArrayLike, y: ArrayLike, standard_errors: ArrayLike | None = None) -> tuple[float, float]:
    """Return the least-squares slope of log y on log x and its standard error.

    Parameters
    ----------
    x, y : array_like, shape (n,)
        Positive, at least two points.
    standard_errors : array_like, shape (n,), optional
        Standard errors of independent y; zero if omitted.

    Returns
    -------
    slope, standard_error : float
        The standard error carries those of y through the logarithm (delta method).

    Examples
    --------
    >>> import numpy as np
    >>> from grpo_theory.evidence import log_log_slope
    >>> slope, error = log_log_slope([10, 100, 1000], 3.0 / np.array([10, 100, 1000]))
    >>> round(slope, 6)
    -1.0
    """
    x, y = as_numbers("x", x), as_numbers("y", y)
    if x.ndim != 1 or x.shape != y.shape or x.size < 2:
        raise ValueError(f"x and y must have one shape (n,) with n at least 2, got {x.shape} and {y.shape}")
    check_finite("x", x)
    check_finite("y", y)
    if (x <= 0.0).any() or (y <= 0.0).any():
        raise ValueError("x and y must be above 0 for a log-log slope")
    if np.ptp(x) == 0.0:
        raise ValueError(f"x must have at least two different values for a slope, got only {x[0]:g}")
    centred = np.log(x) - np.log(x).mean()
    weights = centred / (centred @ centred)
    errors = np.zeros_like(y) if standard_errors is None else as_real_array("standard_errors", standard_errors, 1)
    check_shape("standard_errors", errors, x.shape, "(n,), one a point")
    check_within("standard_errors", errors, -LARGEST, LARGEST)
    if (errors < 0.0).any():
        raise ValueError(f"standard_errors must not be negative, got {errors.min():g}")
    return float(weights @ np.log(y)), float(np.sqrt(((weights * errors / y) ** 2).sum()))
