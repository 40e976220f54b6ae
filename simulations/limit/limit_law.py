"""U11: the limit law of the suboptimality gap.

U11: the limit law of the suboptimality gap, by simulation of many training runs.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg import solve_continuous_lyapunov
from scipy.special import chdtr, ndtr

import grpo_theory as gt
from grpo_theory.evidence import PARTS, Claim, Statement
from grpo_theory.evidence.reading import evidence
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.theory import Linearisation, gap_recursion, limit_covariance, linearise
from grpo_theory.theory.distance import law_distance
from simulations.maximum import maximum
from simulations.sources import CORRECTION, DEMYSTIFYING, OURS, derived

U11 = Statement(
    "U11",
    f"{DEMYSTIFYING}, Theorem 8",
    "n Delta(theta_n) -> sum w_k chi^2_1, sqrt(n) Q'(theta_n - theta*) is normal",
    PARTS,
    formula=r"$$n\,\Delta(\theta_n)\to\sum_kw_k\,\chi^2_{1,k},$$ $$w_k\text{ the eigenvalues of "
    r"}\tfrac12S^{1/2}\mathrm{diag}(\lambda)S^{1/2},$$ $$S=\int_0^\infty e^{-(-\beta H^*-I/2)u}\,Q'\Gamma "
    r"Q\,e^{-(-\beta H^*-I/2)u}\,du$$",
)
U11_PRINTED = Statement(
    "U11/printed",
    f"{DEMYSTIFYING}, Theorem 8",
    "n Delta(theta_n) -> sum w_k chi^2_1, S as printed",
    "law",
    formula=r"The limit law of $n\,\Delta(\theta_n)$, with $S$ as printed.",
)
U11_CORRECTED = Statement(
    "U11/corrected",
    derived(6),
    "n Delta(theta_n) -> sum w_k chi^2_1, S with the factor beta^2",
    "law",
    formula=r"The covariance has the square of the step scale as a factor: $$S=\beta^2\int_0^\infty e^{-(-\beta "
    r"H^*-I/2)u}\,Q'\Gamma Q\,e^{-(-\beta H^*-I/2)u}\,du$$",
    whose=CORRECTION,
)
U11_NORMAL = Statement(
    "U11/normal",
    f"{DEMYSTIFYING}, Theorem 8",
    "sqrt(n) Q'(theta_n - theta*) is normal: its Mahalanobis distance is chi^2_r",
    "law",
    formula=r"$\sqrt n\,Q'(\theta_n-\theta^*)$ is normal: its Mahalanobis distance is $\chi^2_r$.",
)
U11_MEAN = Statement(
    "U11/mean",
    derived(6),
    "E n Delta(theta_n) = sum w_k",
    "equality",
    formula=r"$E\,n\,\Delta(\theta_n)=\sum_kw_k$.",
    whose=OURS,
)
U11_NORMAL_GAP = Statement(
    "U11/normal gap",
    f"question beside {DEMYSTIFYING}, Theorem 8",
    "n Delta(theta_n) is normal, with 32 comparable weights",
    "law",
    formula=r"$n\,\Delta(\theta_n)$ itself is normal, with 32 comparable weights.",
    whose=OURS,
)
U11_FINITE = Statement(
    "U11/finite",
    derived(6),
    "E n Delta(theta_n) at finite n, by the exact recursion, beta just above 1/(2 lambda_min)",
    "equality",
    formula=r"$E\,n\,\Delta(\theta_n)$ at finite $n$ by the exact recursion, $\beta$ just above $1/(2\lambda_{\min})$.",
    whose=OURS,
)

STEPS = 2000
RUNS, QUICK_RUNS, CHUNK_RUNS = 81920, 2048, 2048
LONG = {"kl-linear": 184_320, "single": 131_072, "conflict": 286_720, "kl-sequence": 143_360}
"""Where a run of the usual length was too near to a margin: it says of each row how many runs would decide it."""
SHORT = 77_824
"""With so many runs the band's half-width is half the margin, which leaves as much for the gap itself."""
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
LEVELS = np.linspace(0.01, 0.99, 50)
TAIL = 0.05


def cells(quick: bool) -> list[Cell]:
    """Long series for the leave-one-out estimator (and GRPO, on one prompt), shorter ones for its rivals and other settings."""
    main: list[dict[str, Any]] = [
        {"problem": problem, "estimator": name} for problem, names in ESTIMATORS.items() for name in names
    ]
    common: dict[str, Any] = {"estimator": "rloo", "steps": STEPS} | USUAL
    found = []
    shown = [*main[::3], *VARIANTS[-2:]] if quick else [*main, *VARIANTS]
    for setting in shown:
        settings = common | setting
        long = setting in main and settings["estimator"] in ("rloo", "grpo")
        runs = settings.get("runs", LONG.get(settings["problem"], RUNS) if long else SHORT)
        runs = QUICK_RUNS if quick else runs
        chunk = min(runs, CHUNK_RUNS)
        found.append(Cell(settings | {"runs": chunk}, runs // chunk))
    return found


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


def simulate(settings: Settings, rng: np.random.SeedSequence, chunk: int) -> Mapping[str, Any]:
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
        rng=rng,
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


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each quantity: means, distances to the laws, and, at the usual sizes, the quantiles for the QQ plot."""
    gap = np.concatenate([result["gap"] for result in results])
    distance = np.concatenate([result["distance"] for result in results])
    linear = _linear(settings)
    beta, offset = _scale(linear, settings["factor"])
    law, printed = linear.gap_law(limit_covariance(linear, beta)), printed_law(linear, beta)
    wrong = gt.WeightedChiSquare(1.25 * law.weights)
    rank = len(linear.curvatures)
    finite = gap_recursion(linear, gt.Harmonic(beta, offset).steps(settings["steps"]), np.zeros((rank, rank)))[-1]
    names = ("problem", "estimator", "batch_size", "group_size", "steps", "factor")
    common = {name: settings[name] for name in names} | {"beta": beta, "offset": offset, "replications": len(gap)}
    common["diverged"] = sum(result["diverged"] for result in results)
    error = float(gap.std(ddof=1) / np.sqrt(len(gap)))
    quantities = [
        ("mean", float(gap.mean()), law.mean(), error),
        ("finite mean", float(gap.mean()), (settings["steps"] + offset) * float(finite), error),
        ("law", kolmogorov_distance(gap, law.cdf), 0.0, 0.0),
        ("printed law", kolmogorov_distance(gap, printed.cdf), 0.0, 0.0),
        ("wrong law", kolmogorov_distance(gap, wrong.cdf), 0.0, 0.0),
        ("normal gap", kolmogorov_distance(gap, lambda x: ndtr((x - law.mean()) / law.std())), 0.0, 0.0),
        ("normal", kolmogorov_distance(distance, lambda x: chdtr(rank, x)), 0.0, 0.0),
        ("wrong normal", kolmogorov_distance(distance, lambda x: chdtr(rank + max(1, rank // 4), x)), 0.0, 0.0),
    ]
    found = [
        common | {"quantity": name, "level": np.nan, "estimate": estimate, "prediction": prediction, "standard_error": se}
        for name, estimate, prediction, se in quantities
    ]
    if not is_usual(settings):
        return found
    for level, estimate, prediction in zip(LEVELS, np.quantile(gap, LEVELS), law.ppf(LEVELS), strict=True):
        quantile = {"quantity": "quantile", "level": level, "estimate": float(estimate), "prediction": float(prediction)}
        found.append(common | quantile | {"standard_error": 0.0})
    return found


def is_usual(row: Mapping[Any, Any] | pd.Series) -> bool:
    """Whether B, G and beta are the usual ones."""
    return all(row[name] == value for name, value in USUAL.items())


def setting_label(row: Mapping[str, Any]) -> str:
    """Return the problem and estimator, and whatever differs from B = 1, G = 4 and beta = 2/lambda_min."""
    symbols = {"batch_size": "B", "group_size": "G", "factor": "beta lambda_min"}
    extra = [f"{symbol} = {row[name]:g}" for name, symbol in symbols.items() if row[name] != USUAL[name]]
    return f"{row['problem']} ({', '.join([str(row['estimator']), *extra])})"


def _law_claims(where: str, part: pd.DataFrame) -> list[Claim]:
    at = part.set_index("quantity")

    def distances(name: str, control: str) -> list[Any]:
        return [evidence(at.loc[quantity], 0.0, LAW_MARGIN) for quantity in (name, control)]

    found = [
        U11_PRINTED.claim(where, *distances("printed law", "wrong law")),
        U11_CORRECTED.claim(where, *distances("law", "wrong law")),
        U11_NORMAL.claim(where, *distances("normal", "wrong normal")),
    ]
    if is_usual(part.iloc[0]) and at.loc["law", "estimator"] in ("rloo", "grpo"):
        mean = at.loc["mean"]
        own, control = (evidence(mean, factor * float(mean["prediction"]), MEAN_MARGIN) for factor in (1.0, 1.25))
        found.append(U11_MEAN.claim(where, own, control))
    if part["problem"].iloc[0] == "crowd":
        found.append(U11_NORMAL_GAP.claim(where, *distances("normal gap", "wrong law")))
    return found


def _slow_claims(where: str, part: pd.DataFrame) -> list[Claim]:
    """Beta just above its least value: the mean at finite n follows the recursion, and is far from the limit's."""
    at = part.set_index("quantity")
    own, control = (evidence(at.loc["mean"], float(at.loc[name, "prediction"]), MEAN_MARGIN) for name in ("finite mean", "mean"))
    return [U11_FINITE.claim(where, own, control)]


def claims(table: pd.DataFrame) -> list[Claim]:
    """Read the laws off the table."""
    found = []
    settings = ["problem", "estimator", "batch_size", "group_size", "factor"]
    for _, part in table.groupby(settings, sort=False):
        where = setting_label(part.iloc[0].to_dict())
        found += _slow_claims(where, part) if part["factor"].iloc[0] < 1.0 else _law_claims(where, part)
    return found
