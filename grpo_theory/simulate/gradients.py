"""The gradient simulator: many batches of a fixed policy, all estimators on the same draws, and the moments that it returns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from grpo_theory.estimation import Estimator, find
from grpo_theory.estimation.kernel import PROMPT_FIELDS
from grpo_theory.exact.group_law import efficiency_of
from grpo_theory.exact.score_moments import credited, token_weights
from grpo_theory.problem import ChainPoint, Point, Problem
from grpo_theory.simulate import advantages, draws
from grpo_theory.simulate import observations as observe
from grpo_theory.simulate.chains import chain_gradients
from grpo_theory.simulate.draws import LANES, Rng, Streams, as_seed_sequence, block_generator, block_streams, map_in_order
from grpo_theory.validation import Array, as_count, as_flag, as_fraction, as_real_array, check_shape, typed

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


BLOCK_RESPONSES = 1 << 21
"""The responses of a block, about: some hundredths of a second, between which work is shared out and can be ended."""
CALL_NUMBERS = 1 << 15
"""The numbers that the rows of a call take, unless one tile has more: few enough for a cache, many for a call."""
SUMMARY_TILES = 128
"""The number of tiles whose observations are summarised at once, fixed so that moments do not depend on what stands beside."""


@dataclass(frozen=True, eq=False)
class Family:
    """Estimators that share rows of sums: those of two reward values on the same contrasts, or one by itself.

    Attributes
    ----------
    estimators : list of Estimator
    rule : observe.TokenRule
    table : advantages.AdvantageTable or None
        None where the kernel is called.
    caller : advantages.Caller or None
    n_rows : int
        2 where contrasts have means beside them.
    contrasts : bool
    by_sign : bool
        Whether advantages of either sign weigh differently.
    draw_errors : callable, optional
        Fills in the sums of errors of estimated values, T features, which are the last.
    """

    estimators: list[Estimator]
    rule: observe.TokenRule
    table: advantages.AdvantageTable | None
    caller: advantages.Caller | None
    n_rows: int
    contrasts: bool
    by_sign: bool
    draw_errors: Callable | None = None

    def fill(self, batches: draws.Batches, sums: advantages.Sums, generator: np.random.Generator) -> None:
        """Fill in the sums of tiles."""
        if self.contrasts:
            advantages.fill_contrasts(self.table, batches, self.n_rows == 2, advantages.make_spare(2, LANES), sums)
            return
        rows = sums.rows.reshape(-1, *sums.rows.shape[3:])
        if self.draw_errors is not None:
            n_features = rows.shape[1] - self.rule.edges.shape[1]
            self.draw_errors(generator, batches, sums.rows[:, :, 0, n_features:])
            rows = rows[:, :n_features]
        sums.weights[:] = 1.0
        if self.caller is not None:
            ordered, n_values = batches.ordered.reshape(len(rows), -1, LANES), batches.counts.shape[2] // rows.shape[2]
            advantages.sum_called(self.caller.advantages(batches), n_values, ordered, self.by_sign, rows)
        else:
            prompts, counts = batches.prompts.reshape(-1, LANES), batches.counts.reshape(len(rows), -1, LANES)
            assert self.table is not None  # what is not called is tabulated
            spare = advantages.make_spare(len(self.table.steps), LANES)
            advantages.sum_tabulated(self.table, prompts, counts, self.by_sign, spare, rows)


def families_of(points: tuple[Point, Point], estimators: Sequence[Estimator], shape: tuple[int, int]) -> list[Family]:
    """Group estimators into families, at a current policy and the one that samples."""
    (current, sampler), group_size, families = points, shape[1], []
    shared: dict[tuple, tuple[observe.TokenRule, list[Estimator]]] = {}
    for estimator in estimators:
        # u = sum_t share_t clip(r_t) c_t and v = -strength sum_t share_t slope_t c_t (docs/derivations.md, section 16).
        weights = token_weights(current, sampler, estimator)
        rule = observe.token_rule(weights, estimator.aggregation.pool, *shape)
        size = advantages.table_size(current, estimator, group_size)
        tabulated = size is not None and size <= advantages.LARGEST_TABLE
        if tabulated and weights.n_features == 1 and sampler.bandit.values.size == 2:
            # Of D h_k + A n_k, estimators with the same gains share h and n (docs/derivations.md, section 17).
            alike = rule.gains.tobytes(), rule.pool, estimator.kl, estimator.advantage.reads & set(PROMPT_FIELDS)
            shared.setdefault(alike, (rule, []))[1].append(estimator)
        else:
            table = advantages.prompt_table([estimator], sampler, group_size) if tabulated else None
            caller = None if tabulated else advantages.Caller(estimator, sampler)
            drawn = advantages.error_drawer(credited(sampler, estimator), estimator) if estimator.credit.continuations else None
            families.append(Family([estimator], rule, table, caller, 1, False, weights.depends_on_sign, drawn))
    for rule, members in shared.values():
        table = advantages.contrast_table(advantages.prompt_table(members, sampler, group_size), group_size)
        centred = bool((np.abs(table.advantages[..., 0]) <= 1e-12).all())  # the advantages of every group add up to 0
        families.append(Family(members, rule, table, None, 1 if centred else 2, True, False))
    return families


class Workspace:
    """What one thread works in, block after block."""

    def __init__(
        self, law: draws.OutcomeLaw, truth: observe.TrueGradient, families: list[Family], shape: tuple[int, int], n_responses: int
    ) -> None:
        self.law, self.truth, self.families = law, truth, families
        tile = shape[0] * LANES * max(one.n_rows * len(one.rule.gains) * n_responses for one in families)
        self.n_tiles = max(1, min(SUMMARY_TILES, CALL_NUMBERS // tile))
        self.room, self.group_size = draws.make_draw_room(law, *shape), shape[1]
        in_order = any(one.caller is not None for one in families)
        self.batches = draws.make_batches(law, self.n_tiles, *shape, in_order=in_order)
        n_estimators = sum(len(one.estimators) for one in families)
        self.observed = np.empty((n_estimators, 4 + len(truth.along), SUMMARY_TILES, LANES))
        self.sums, self.rows = [], []
        for one in families:
            rows = np.empty((self.n_tiles, shape[0], one.n_rows, len(one.rule.gains), n_responses, LANES))
            self.sums.append(advantages.Sums(rows, np.empty((self.n_tiles, len(one.estimators), *rows.shape[1:3], LANES))))
            self.rows.append(np.empty((self.n_tiles, shape[0] * one.n_rows, len(one.rule.tokens), LANES)))

    def observations(self, seed: np.random.SeedSequence, block: int, replications: int) -> Iterator[Array]:
        """Yield the observations of the first replications of a block, shape (E, 4 + J, R), some tiles after others."""
        # The errors of a family are the same alone and in company.
        streams, generators = block_streams(seed, block), [block_generator(seed, block) for _ in self.families]
        for done in range(0, replications, SUMMARY_TILES * LANES):
            yield self._observed(streams, generators, min(SUMMARY_TILES * LANES, replications - done))

    def _observed(self, streams: Streams, generators: Sequence[np.random.Generator], replications: int) -> Array:
        """Return the observations of the next replications, shape (E, 4 + J, R), with a generator for each family's errors."""
        n_tiles, truth, found, share = -(-replications // LANES), self.truth, self.observed, 1.0 / self.batches.prompts.shape[1]
        found[:] = 0.0
        for first in range(0, n_tiles, self.n_tiles):
            size, begun = min(self.n_tiles, n_tiles - first), 0
            batches = draws.Batches(self.batches.prompts[:size], self.batches.counts[:size], self.batches.ordered[:size])
            fill = draws.fill_ordered_batches if len(batches.ordered) else draws.fill_batches
            fill(self.law, self.group_size, streams, self.room, batches)
            for family, sums, rows, generator in zip(self.families, self.sums, self.rows, generators, strict=True):
                own, of_groups = advantages.Sums(sums.rows[:size], sums.weights[:size]), rows[:size]
                family.fill(batches, own, generator)
                observe.fill_rows(family.rule, batches, own.rows, of_groups)
                seen = batches.prompts, of_groups, own.weights, first, found[begun : begun + len(family.estimators)]
                (observe.observe_features if len(truth.features) else observe.observe_pairs)(truth, *seen)
                if len(truth.along):
                    observe.observe_directions(truth, *seen)
                begun += len(family.estimators)
        # ||ghat||^2 and g . ghat of ghat = (1/B) sum_b y_b, and ||ghat - g||^2 = power - 2 gain + ||g||^2
        # (docs/derivations.md, section 37).
        found[:, 1:] *= share
        found[:, 2] *= share
        found[:, 0] = found[:, 2] - 2.0 * found[:, 3] + truth.power
        return found.reshape(*found.shape[:2], -1)[:, :, :replications]


def block_replications(batch_size: int, group_size: int) -> int:
    """Return the number of replications in a block, whole tiles: fixed by the shape of a batch alone.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> block, problem = gt.block_replications(8, 4), gt.gallery.problem("two-arms")
    >>> asked = {"batch_size": 8, "group_size": 4, "replications": block, "rng": 0}
    >>> first = gt.simulate_gradients(problem, problem.theta, "rloo", **asked)
    >>> second = gt.simulate_gradients(problem, problem.theta, "rloo", **asked, first_block=1)
    >>> first.merge(second).replications == 2 * block
    True
    """
    tile_responses = LANES * prod(draws.as_sizes(batch_size, group_size))
    return LANES * max(1, BLOCK_RESPONSES // tile_responses)


@typed
def simulate_gradients(
    problem: Problem,
    theta: ArrayLike | None = None,
    estimators: str | Estimator | Sequence[str | Estimator] = (),
    *,
    batch_size: int,
    group_size: int,
    replications: int,
    rng: Rng | None = None,
    workers: int | None = None,
    behaviour: ArrayLike | None = None,
    directions: ArrayLike | None = None,
    first_block: int = 0,
    progress: bool = True,
) -> GradientSimulation:
    """Simulate gradient estimates, all estimators on the same draws.

    A replication is a batch of B prompts from f with G responses each.  Results are bit-identical for any number of workers,
    a replication is the same whatever the number of them, and memory does not grow with it.  The responses of a `TokenChain` are
    drawn token by token, from other streams than those of listed responses.

    Parameters
    ----------
    problem : Problem
    theta : array_like, shape (d,), optional
        The current policy's parameters; the problem's own if omitted.
    estimators : str, Estimator or sequence of them
        What to compare; E of them.
    batch_size, group_size : int
        B prompts, G responses each; G at most 32,768.
    replications : int
        The number of batches.
    rng : int, SeedSequence or Generator, optional
        The seed; fresh entropy if omitted.
    workers : int, optional
        The number of threads; all processors if omitted.
    behaviour : array_like, shape (d,), optional
        The parameters of the policy that samples; theta if omitted.
    directions : array_like, shape (J, d), optional
        Along which the mean and covariance of the estimate are kept; none if omitted.
    first_block : int, default 0
        The number of the first block.  Runs over disjoint ranges of blocks `merge` to the run over their union.  All but the
        last must have whole blocks (a multiple of `block_replications`).
    progress : bool, default True
        Show a bar on a terminal if it takes longer than some seconds.

    Returns
    -------
    GradientSimulation

    Raises
    ------
    ValueError
        If an argument is out of range, a kernel leaves an advantage that is not finite, or an importance ratio is infinite.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("linear"), {"batch_size": 8, "group_size": 4}
    >>> found = gt.simulate_gradients(problem, problem.theta, ["rloo", "oracle"], **sizes, replications=4096, rng=0)
    >>> difference, error = found.mse_difference("rloo", "oracle")
    >>> bool(difference > 5 * error)
    True
    """
    if isinstance(estimators, str | Estimator):
        estimators = [estimators]
    if not isinstance(estimators, Iterable) or (isinstance(estimators, np.ndarray) and estimators.ndim == 0):
        raise TypeError(f"estimators must be a name, an Estimator or a sequence of them, got {estimators!r}")
    chosen = [find(estimator, "estimators") for estimator in estimators]
    names = [estimator.name for estimator in chosen]
    if not names:
        raise ValueError("estimators must name at least one estimator, got none")
    if len(set(names)) < len(names):
        raise ValueError(f"estimators must name each estimator once, got {', '.join(names)}")
    batch_size, group_size = draws.as_sizes(batch_size, group_size)
    replications = as_count("replications", replications)
    first_block = as_count("first_block", first_block, 0)
    workers = as_count("workers", workers if workers is not None else os.cpu_count() or 1)
    if group_size > draws.LARGEST_GROUP:
        raise ValueError(f"group_size must be at most {draws.LARGEST_GROUP}, got {group_size}")
    for estimator in chosen:
        estimator.check_defined(group_size, problem.bandit.values, problem.policy.lengths)
    seed = as_seed_sequence(rng)
    current = problem.at(theta)
    sampler = current if behaviour is None else problem.at(problem.policy.check_theta(behaviour, "behaviour"))
    along = np.empty((0, problem.policy.dimension)) if directions is None else as_real_array("directions", directions, 2)
    check_shape("directions", along, (len(along), problem.policy.dimension), "(J, d)")
    power, told = current.target.known_gradient_squared_norm, "simulating" if as_flag("progress", progress) else ""
    size = block_replications(batch_size, group_size)
    if isinstance(current, ChainPoint) and isinstance(sampler, ChainPoint):
        words = seed.generate_state(3, np.uint64)
        on_chain = chain_gradients(current, sampler, chosen, (batch_size, group_size), along, words)

        def observed(block: int, count: int) -> Iterable[Array]:
            return [on_chain.observations(block * size, count)]

    else:
        advantages.warn_of_tables(problem, chosen, group_size, stacklevel=4)
        law, truth = draws.outcome_law(sampler), observe.truth_at(current, along)
        families = families_of((current, sampler), chosen, (batch_size, group_size))
        order = [[one.name for family in families for one in family.estimators].index(name) for name in names]

        spare: list[Workspace] = []  # of threads that have done a block: fresh memory is slow

        def observed(block: int, count: int) -> Iterable[Array]:
            shape = batch_size, group_size
            workspace = spare.pop() if spare else Workspace(law, truth, families, shape, problem.policy.n_responses)
            yield from (part[order] for part in workspace.observations(seed, block, count))
            spare.append(workspace)

    def simulate(block: int) -> GradientSimulation:
        parts = observed(block, min(size, replications - (block - first_block) * size))
        return reduce(GradientSimulation.merge, (GradientSimulation.of(names, one.swapaxes(1, 2), power) for one in parts))

    blocks = range(first_block, first_block - (-replications // size))
    return reduce(GradientSimulation.merge, map_in_order(simulate, blocks, workers, told))
