"""U11: the limit law of the suboptimality gap, by simulation of many training runs.

In the controls weights, means and degrees of freedom are a quarter too large. At finite n the control takes the limit for the
mean.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg import solve_continuous_lyapunov
from scipy.special import chdtr, ndtr

import grpo_theory as gt
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import evidence
from grpo_theory.harness.study import Cell, Settings
from grpo_theory.harness.summary import summary
from grpo_theory.theory import Linearisation, gap_recursion, limit_covariance, linearise
from grpo_theory.theory.distance import law_distance
from simulations.maximum import maximum
from simulations.seeds import seed_of
from simulations.statements import stated

U11, U11_PRINTED, U11_CORRECTED, U11_NORMAL, U11_MEAN = stated("U11", "U11/printed", "U11/corrected", "U11/normal", "U11/mean")
U11_NORMAL_GAP, U11_FINITE = stated("U11/normal gap", "U11/finite")

STEPS, RUNS, QUICK_RUNS, CHUNK_RUNS = 2000, 81920, 2048, 2048
LONG = {"kl-linear": 184_320, "single": 131_072, "conflict": 286_720, "kl-sequence": 143_360}
"""Where a run of the usual length was too near to a margin: it says of each row how many runs would decide it."""
SHORT = 77_824
"""With this many runs the band's half-width is half the margin, which leaves as much for the gap itself."""
ESTIMATORS = {
    "kl-tabular": ("rloo", "oracle", "reinforce"),
    "kl-linear": ("rloo", "oracle", "reinforce"),
    "conflict": ("rloo", "oracle", "reinforce"),
    "single": ("rloo", "grpo"),
    "kl-sequence": ("rloo",),
}
VARIANTS: tuple[dict[str, Any], ...] = (
    {"problem": "kl-linear", "factor": 1.0, "steps": 8000},
    {"problem": "kl-linear", "factor": 4.0},
    {"problem": "kl-linear", "batch_size": 4, "steps": 1000},
    {"problem": "kl-linear", "group_size": 16, "steps": 1000},
    {"problem": "crowd", "batch_size": 4, "runs": 20_480},
    {"problem": "kl-linear", "factor": 0.6, "runs": 184_320},
)
USUAL = {"batch_size": 1, "group_size": 4, "factor": 2.0}
LAW_MARGIN, MEAN_MARGIN = 0.02, 0.02
SETTING = ("problem", "estimator", "batch_size", "group_size", "factor")
LAWS = (
    (U11_PRINTED, "printed law", "wrong law"),
    (U11_CORRECTED, "law", "wrong law"),
    (U11_NORMAL, "normal", "wrong normal"),
    (U11_NORMAL_GAP, "normal gap", "wrong law"),
)
"""Statements of a law, the quantity that is the distance from it, and that of a law which is wrong."""
LEVELS = np.linspace(0.01, 0.99, 50)
TAIL = 0.05


def cells(quick: bool) -> list[Cell]:
    """Long series for the leave-one-out estimator (and GRPO, on one prompt), shorter ones for its rivals and other settings."""
    main: list[dict[str, Any]] = [
        {"problem": problem, "estimator": name} for problem, names in ESTIMATORS.items() for name in names
    ]
    common: dict[str, Any] = {"estimator": "rloo", "steps": STEPS} | USUAL
    cells = []
    shown = [*main[::3], *VARIANTS[-2:]] if quick else [*main, *VARIANTS]
    for setting in shown:
        settings = common | setting
        long = setting in main and settings["estimator"] in ("rloo", "grpo")
        runs = QUICK_RUNS if quick else settings.get("runs", LONG.get(settings["problem"], RUNS) if long else SHORT)
        chunk = min(runs, CHUNK_RUNS)
        cells.append(Cell(settings | {"runs": chunk}, runs // chunk))
    return cells


@cache
def _linearise(name: str, estimator: str, batch_size: int, group_size: int) -> Linearisation:
    problem, best, _ = maximum(name)
    return linearise(problem, best, estimator, batch_size=batch_size, group_size=group_size)


def _linear(settings: Settings) -> Linearisation:
    return _linearise(*(settings[name] for name in ("problem", "estimator", "batch_size", "group_size")))


def _scale(linear: Linearisation, factor: float) -> tuple[float, int]:
    """Return beta = factor / lambda_min of the estimator's drift, and an offset that keeps the first steps stable."""
    beta = factor / linear.slowest
    return beta, int(20.0 * beta * np.abs(np.linalg.eigvals(linear.drift)).max()) + 200


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Mapping[str, Any]:
    """Train from the maximiser; return (n + offset) times the gap, and the squared Mahalanobis distance, of each run."""
    problem, best, highest = maximum(settings["problem"])
    linear = _linear(settings)
    beta, offset = _scale(linear, settings["factor"])
    training = gt.simulate_training(
        problem,
        best,
        settings["estimator"],
        gt.Harmonic(beta, offset),
        batch_size=settings["batch_size"],
        group_size=settings["group_size"],
        steps=settings["steps"],
        replications=settings["runs"],
        rng=seed_of(rng),
        workers=1,
    )
    scale = settings["steps"] + offset
    deviation = np.sqrt(scale) * (training.theta - best) @ linear.directions
    inverse = np.linalg.inv(limit_covariance(linear, beta))
    return {
        "gap": (scale * (highest - training.objectives[:, 0])).tolist(),
        "distance": np.einsum("ri,ij,rj->r", deviation, inverse, deviation).tolist(),
        "diverged": int(training.diverged.sum()),
    }


def kolmogorov_distance(sample: np.ndarray, cdf: Any) -> float:
    """Return the largest distance between the sample's distribution function and a law's."""
    return law_distance(lambda ordered: np.interp(ordered, *_tabulated(cdf, ordered)), sample).estimate


def _tabulated(cdf: Any, ordered: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tabulate a distribution function on the sample's own quantiles, in the tails in equal ratios: errors are below 1e-4."""
    tail = np.geomspace(TAIL, 1.0 / len(ordered), 60)
    levels = np.concatenate([np.linspace(0.0, 1.0, 501), tail, 1.0 - tail])
    points = np.unique(np.quantile(ordered, levels))
    return points, np.asarray(cdf(points))


def printed_law(linear: Linearisation, beta: float) -> gt.WeightedChiSquare:
    """Return the law with the covariance as printed: the Lyapunov equation without the factor beta^2."""
    stable = beta * linear.drift - np.eye(len(linear.curvatures)) / 2.0
    return linear.gap_law(np.asarray(solve_continuous_lyapunov(stable, linear.noise), dtype=np.float64))


def rows(settings: Settings, results: list[Any]) -> Iterator[dict[str, Any]]:
    """One row for each quantity: means, distances to the laws, and, at the usual sizes, the quantiles for the QQ plot."""
    gap, distance = (np.concatenate([chunk[name] for chunk in results]) for name in ("gap", "distance"))
    linear = _linear(settings)
    beta, offset = _scale(linear, settings["factor"])
    law, rank = linear.gap_law(limit_covariance(linear, beta)), len(linear.curvatures)
    finite = gap_recursion(linear, gt.Harmonic(beta, offset).steps(settings["steps"]), np.zeros((rank, rank)))[-1]
    diverged = {"diverged": sum(chunk["diverged"] for chunk in results)}
    common = {name: settings[name] for name in (*SETTING, "steps")} | {"beta": beta, "offset": offset, "level": np.nan} | diverged
    for quantity, mean in (("mean", law.mean()), ("finite mean", (settings["steps"] + offset) * float(finite))):
        yield common | {"quantity": quantity, "prediction": mean} | summary(gap)
    common |= {"standard_error": 0.0, "replications": len(gap)}
    for quantity, sample, cdf in (
        ("law", gap, law.cdf),
        ("printed law", gap, printed_law(linear, beta).cdf),
        ("wrong law", gap, gt.WeightedChiSquare(1.25 * law.weights).cdf),
        ("normal gap", gap, lambda x: ndtr((x - law.mean()) / law.std())),
        ("normal", distance, lambda x: chdtr(rank, x)),
        ("wrong normal", distance, lambda x: chdtr(rank + max(1, rank // 4), x)),
    ):
        yield common | {"quantity": quantity, "estimate": kolmogorov_distance(sample, cdf), "prediction": 0.0}
    if is_usual(settings):
        for level, estimate, prediction in zip(LEVELS, np.quantile(gap, LEVELS), law.ppf(LEVELS), strict=True):
            sides = {"estimate": float(estimate), "prediction": float(prediction)}
            yield common | {"quantity": "quantile", "level": level} | sides


def is_usual(row: Mapping[Any, Any] | pd.Series) -> bool:
    """Whether B, G and beta are the usual ones."""
    return all(row[name] == value for name, value in USUAL.items())


def setting_label(row: Mapping[str, Any]) -> str:
    """Return the problem and estimator, and whatever differs from B = 1, G = 4 and beta = 2/lambda_min."""
    symbols = {"batch_size": "B", "group_size": "G", "factor": "beta lambda_min"}
    extra = [f"{symbol} = {row[name]:g}" for name, symbol in symbols.items() if row[name] != USUAL[name]]
    return f"{row['problem']} ({', '.join([str(row['estimator']), *extra])})"


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Read the laws off the table; with beta just above its least value, the mean at finite n, which is far from the limit's."""
    for values, part in table.groupby(list(SETTING), sort=False):
        setting, at = dict(zip(SETTING, values, strict=True)), part.set_index("quantity")
        where, mean = setting_label(setting), at.loc["mean"]
        finite, limit = (float(at.loc[name, "prediction"]) for name in ("finite mean", "mean"))
        if setting["factor"] < 1.0:
            own, control = (evidence(mean, prediction, MEAN_MARGIN) for prediction in (finite, limit))
            yield U11_FINITE.claim(where, own, control)
            continue
        for statement, name, wrong in LAWS:
            if statement is not U11_NORMAL_GAP or setting["problem"] == "crowd":
                own, control = (evidence(at.loc[quantity], 0.0, LAW_MARGIN) for quantity in (name, wrong))
                yield statement.claim(where, own, control)
        if is_usual(setting) and setting["estimator"] in ("rloo", "grpo"):
            own, control = (evidence(mean, prediction, MEAN_MARGIN) for prediction in (limit, 1.25 * limit))
            yield U11_MEAN.claim(where, own, control)
