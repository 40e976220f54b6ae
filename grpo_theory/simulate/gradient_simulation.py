"""Moments of the observations of gradient estimates, merged in the order of the blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.special import stdtrit

from grpo_theory.exact.group_law import efficiency_of
from grpo_theory.validation import Array, as_fraction

if TYPE_CHECKING:
    import pandas as pd

FIRST_DIRECTION = 4
"""The row of an estimator's observations from which on they are along directions; errors, squared length and gain are before."""
_ARRAYS = ("means", "mse_scatter", "prompt_mse_scatter", "efficiency_scatter", "along_scatter")


@dataclass(frozen=True, eq=False)
class GradientSimulation:
    """Monte Carlo moments of E estimators on common random numbers.

    Attributes
    ----------
    estimators : tuple of str
        Names, in the order of the first axes below.
    replications : int
    gradient_squared_norm : float
        ||g||^2 of the true gradient.
    means : ndarray, shape (E, 4 + J)
        Means of the squared error about g and of the groups' squared error about g(x).  Then the means of the estimate's squared
        length, its inner product with g (its gain), and the estimate along J directions.
    mse_scatter, prompt_mse_scatter : ndarray, shape (E, E)
        Sums of products of deviations from the mean across estimators.
    efficiency_scatter : ndarray, shape (2 E, 2 E)
        The same of the estimators' squared lengths, followed by their gains.
    along_scatter : ndarray, shape (E, J, J)
        Sums of products of deviations across directions.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("linear"), {"batch_size": 8, "group_size": 4}
    >>> found = gt.simulate_gradients(problem, problem.theta, ["rloo", "grpo"], **sizes, replications=4096, rng=0)
    >>> error = abs(found.mse[found.index("rloo")] - gt.gradient_mse(problem, problem.theta, "rloo", **sizes))
    >>> bool(error < 5 * found.mse_standard_error[0])
    True
    >>> paired = found.mse_difference("rloo", "grpo"), found.efficiency_difference("rloo", "grpo")
    >>> value, standard_error = found.prompt_mse_difference("rloo", "grpo")
    >>> found.to_frame().index.size, len(found.summary().splitlines()) > 2
    (2, True)
    >>> again = gt.GradientSimulation.from_dict(found.to_dict())  # as a file would keep it
    >>> again.merge(found).replications
    8192
    >>> gt.GradientSimulation.of(("rloo",), np.ones((1, 8, 4)), gradient_squared_norm=1.0).mse.tolist()
    [1.0]
    """

    estimators: tuple[str, ...]
    replications: int
    gradient_squared_norm: float
    means: Array
    mse_scatter: Array
    prompt_mse_scatter: Array
    efficiency_scatter: Array
    along_scatter: Array

    def __repr__(self) -> str:
        errors = ", ".join(f"{name}: {mse:.4g}" for name, mse in zip(self.estimators, self.mse, strict=True))
        return f"GradientSimulation(replications={self.replications}, mse={{{errors}}})"

    def summary(self) -> str:
        """Return a table to be printed: of each estimator the error and the efficiency, each with its standard error."""
        title = f"Simulated gradient estimates ({self.replications:,} replications)"
        return f"{title}\n{self.to_frame().drop(columns='replications').to_string(index=False, float_format='{:.4g}'.format)}"

    @classmethod
    def of(cls, estimators: Sequence[str], observations: Array, gradient_squared_norm: float) -> Self:
        """Summarise observations, shape (E, R, 4 + J)."""
        means = observations.mean(axis=1)
        return cls(
            tuple(estimators), observations.shape[1], gradient_squared_norm, means, *_scatters(observations - means[:, None])
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the moments as JSON-able lists; Python's floats keep every bit."""
        arrays = {name: getattr(self, name).tolist() for name in _ARRAYS}
        names, count, power = list(self.estimators), self.replications, self.gradient_squared_norm
        return {"estimators": names, "replications": count, "gradient_squared_norm": power, **arrays}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Restore a simulation from the result of `to_dict`."""
        count, directions = len(state["estimators"]), len(state["means"][0]) - FIRST_DIRECTION
        arrays = {name: np.array(state[name], dtype=np.float64) for name in _ARRAYS}
        arrays["along_scatter"] = arrays["along_scatter"].reshape(count, directions, directions)
        return cls(tuple(state["estimators"]), state["replications"], state["gradient_squared_norm"], **arrays)

    def merge(self, other: Self) -> Self:
        """Return the moments of both sets of replications (Chan's update)."""
        if self.estimators != other.estimators or self.means.shape != other.means.shape:
            raise ValueError(f"only runs of the same estimators merge, got {self.estimators} and {other.estimators}")
        if self.gradient_squared_norm != other.gradient_squared_norm:
            powers = f"{self.gradient_squared_norm:.17g} and {other.gradient_squared_norm:.17g}"
            raise ValueError(f"only runs of one problem at one theta merge, got squared gradients of {powers}")
        # Chan's update: both scatters, and that of the two means about their common one.
        count = self.replications + other.replications
        apart, weight = other.means - self.means, self.replications * other.replications / count
        between = zip(_ARRAYS[1:], _scatters(apart[:, None]), strict=True)
        # S = S_1 + S_2 + R_1 R_2/(R_1 + R_2) d d', with d the difference of the means (Chan, Golub and LeVeque 1983).
        scatters = [getattr(self, name) + getattr(other, name) + weight * scatter for name, scatter in between]
        means = self.means + apart * (other.replications / count)
        return type(self)(self.estimators, count, self.gradient_squared_norm, means, *scatters)

    def to_frame(self) -> pd.DataFrame:
        """Return a DataFrame: one row per estimator, with errors, efficiency, means along directions, and their standard errors.

        The efficiency is NaN where the true gradient is 0.
        """
        import pandas as pd  # slow to import, and not always wanted

        columns = {"estimator": list(self.estimators), "replications": self.replications}
        for name in ("mse", "prompt_mse", "efficiency"):
            for column in (name, f"{name}_standard_error"):
                columns[column] = getattr(self, column) if self.gradient_squared_norm or name != "efficiency" else np.nan
        for j in range(self.along.shape[1]):
            columns[f"along_{j}"] = self.along[:, j]
            columns[f"along_{j}_standard_error"] = self.along_standard_error[:, j]
        return pd.DataFrame(columns)

    @property
    def mse(self) -> Array:
        """Mean squared error about the true gradient, shape (E,)."""
        return self.means[:, 0]

    @property
    def prompt_mse(self) -> Array:
        """Mean over prompts of one group's squared error about its prompt's gradient g(x), shape (E,)."""
        return self.means[:, 1]

    @property
    def along(self) -> Array:
        """Mean estimate along the directions, shape (E, J)."""
        return self.means[:, FIRST_DIRECTION:]

    @property
    def efficiency(self) -> Array:
        """The efficiency (g . E ghat)^2/(||g||^2 E||ghat||^2) by the means of both, shape (E,); see `gt.efficiency`.

        Raises ValueError where the true gradient is 0.
        """
        return efficiency_of(self.means[:, 3], self.gradient_squared_norm, self.means[:, 2])

    @property
    def efficiency_standard_error(self) -> Array:
        """Standard error of `efficiency`, shape (E,): to second order, so that it does not vanish where the mean gain does.

        There the efficiency is far from normal, and `efficiency_interval` has limits that hold.
        """
        return np.sqrt(np.diag(self._estimated("efficiency")[1]))

    def efficiency_interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """Return confidence limits of `efficiency`, shape (E,) each.

        They are the squares of the limits of its root, which is linear in the mean gain.  The lower one is 0 where the limits of
        the root have two signs: the sign of the mean gain is then not known.

        Examples
        --------
        >>> import grpo_theory as gt
        >>> problem, sizes = gt.gallery.problem("linear"), {"batch_size": 1, "group_size": 2}
        >>> found = gt.simulate_gradients(problem, problem.theta, ["rloo"], **sizes, replications=64, rng=1)
        >>> (low,), (high,) = found.efficiency_interval(0.9999)
        >>> bool(low <= gt.efficiency(problem, problem.theta, "rloo", **sizes) <= high)
        True
        """
        roots, covariance = self._roots()
        half = -stdtrit(self.replications - 1, (1.0 - as_fraction("level", level)) / 2.0) * np.sqrt(np.diag(covariance))
        low, high = np.maximum(np.abs(roots) - half, 0.0), np.abs(roots) + half
        return low**2, np.minimum(high, 1.0) ** 2

    @property
    def mse_standard_error(self) -> Array:
        """Standard error of `mse`, shape (E,)."""
        return np.sqrt(np.diag(self._estimated("mse")[1]))

    @property
    def prompt_mse_standard_error(self) -> Array:
        """Standard error of `prompt_mse`, shape (E,)."""
        return np.sqrt(np.diag(self._estimated("prompt_mse")[1]))

    @property
    def along_covariance(self) -> Array:
        """Covariance of one estimate along the directions, shape (E, J, J)."""
        return self._covariance(self.along_scatter, 1)

    @property
    def along_standard_error(self) -> Array:
        """Standard error of `along`, shape (E, J)."""
        return np.sqrt(np.einsum("ejj->ej", self._covariance(self.along_scatter, self.replications)))

    def mse_difference(self, first: str, second: str) -> tuple[float, float]:
        """Return mse(first) - mse(second) and its standard error from the paired replications."""
        return self._difference("mse", first, second)

    def efficiency_difference(self, first: str, second: str) -> tuple[float, float]:
        """Return efficiency(first) - efficiency(second) and its standard error from the paired replications.

        The error is of second order, as `efficiency_standard_error` is.
        """
        return self._difference("efficiency", first, second)

    def prompt_mse_difference(self, first: str, second: str) -> tuple[float, float]:
        """Return prompt_mse(first) - prompt_mse(second) and its standard error from the paired replications."""
        return self._difference("prompt_mse", first, second)

    def index(self, estimator: str) -> int:
        """Return the index of an estimator along the first axes."""
        if estimator not in self.estimators:
            raise ValueError(f"estimator must be one of {', '.join(self.estimators)}, got {estimator!r}")
        return self.estimators.index(estimator)

    def _roots(self) -> tuple[Array, Array]:
        """Return gain / (||g|| sqrt(E||ghat||^2)), (E,), whose squares are efficiencies, and their covariance (E, E)."""
        power, gain = self.means[:, 2], self.means[:, 3]
        roots, slopes, moves = np.copysign(np.sqrt(self.efficiency), gain), np.zeros((2, *power.shape)), power > 0.0
        # root = a/(||g|| sqrt(p)): droot/dp = -root/(2 p), and droot/da = 1/(||g|| sqrt(p)) (docs/derivations.md, section 37).
        slopes[0, moves] = -0.5 * roots[moves] / power[moves]
        slopes[1, moves] = 1.0 / np.sqrt(self.gradient_squared_norm * power[moves])
        scatter = self.efficiency_scatter.reshape(2, len(power), 2, len(power))
        return roots, self._covariance(np.einsum("ai,aibj,bj->ij", slopes, scatter, slopes), self.replications)

    def _estimated(self, name: str) -> tuple[Array, Array]:
        """Return what is estimated under a name, (E,), and its covariance (E, E): that of efficiencies to second order."""
        if name != "efficiency":
            return getattr(self, name), self._covariance(getattr(self, f"{name}_scatter"), self.replications)
        roots, covariance = self._roots()
        # Cov(x^2, y^2) = 4 E[x] E[y] Cov(x, y) + 2 Cov(x, y)^2 of normal x and y (Isserlis 1918).
        return self.efficiency, 4.0 * np.outer(roots, roots) * covariance + 2.0 * covariance**2

    def _difference(self, name: str, first: str, second: str) -> tuple[float, float]:
        i, j = self.index(first), self.index(second)
        means, covariance = self._estimated(name)
        variance = covariance[i, i] + covariance[j, j] - 2.0 * covariance[i, j]
        return float(means[i] - means[j]), float(np.sqrt(max(variance, 0.0)))

    def _covariance(self, scatter: Array, count: int) -> Array:
        """Return the covariance of means of so many replications."""
        if self.replications < 2:
            raise ValueError(f"replications must be at least 2 for a standard error, got {self.replications}")
        return scatter / (self.replications - 1) / count


def _scatters(gaps: Array) -> tuple[Array, Array, Array, Array]:
    """Return sums of products of deviations (E, R, 4 + J): of errors, groups' errors, powers and gains, and along directions."""
    rows = gaps.swapaxes(1, 2)
    powers_and_gains, along = rows[:, 2:FIRST_DIRECTION].swapaxes(0, 1).reshape(-1, rows.shape[2]), rows[:, FIRST_DIRECTION:]
    errors, prompt_errors = rows[:, 0], rows[:, 1]
    own = errors @ errors.T, prompt_errors @ prompt_errors.T, powers_and_gains @ powers_and_gains.T
    return *own, along @ along.swapaxes(1, 2)
