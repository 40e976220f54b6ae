"""U11 to U13: the weights of the limit law, exact.

Against the group size, the baseline, the number of prompts, and n.  Broken: the leave-one-out mean is taken twice, or is a mean
over pairs, so that differences fall as 1/G; the oracle's values are off; the predicted skewness is a quarter too large; and
exponents are twice what they are.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Comparison, Margin, Statement, log_log_slope
from grpo_theory.evidence.rules import IDENTITY_TOLERANCE
from grpo_theory.exact import check_optimum
from grpo_theory.harness.study import Cell, Settings
from grpo_theory.theory import leave_one_out_covariance, leave_one_out_parts
from simulations.kernels import kernel_at
from simulations.limit.prompt_weights import PromptBaselines, dependence, law_of_noise
from simulations.limit.transient import shortfall
from simulations.maximum import maximum
from simulations.sources import DEMYSTIFYING, OURS, derived

UNRELATED = "Q'WW'Q and Z are uncorrelated given X"
SQUARE = Margin(
    0.3, "an exponent of 2 is told from one of 1; from G = 4 to 16 the factor G/(G-1) makes an exact law's slope -2.16"
)
U12 = Statement(
    "U12",
    f"{DEMYSTIFYING}, Corollary 9",
    "w_k(leave-one-out) - w_k(oracle) = O(G^-2), B fixed",
    "rate",
    formula=r"At a fixed number of prompts, $$w_k(\mathrm{GRPO})-w_k(\mathrm{oracle})=O(G^{-2})$$",
    margin=SQUARE,
)
U13 = Statement(
    "U13",
    f"{DEMYSTIFYING}, Corollary 10",
    "no prompt-only baseline has smaller weights than the oracle: max over k and baselines of w_k(oracle)/w_k(baseline) <= 1",
    "upper bound",
    UNRELATED,
    formula=r"If $Q'WW'Q$ and $Z$ are uncorrelated given $X$, no baseline that depends on the prompt alone has smaller "
    r"weights: $$w_k(\mathrm{oracle})\le w_k(C)\quad\text{for every }k\text{ and every }C=C(x)$$",
)
ESTIMATED = Statement(
    "U13/estimated",
    f"{DEMYSTIFYING}, Corollary 10",
    "nor than leave-one-out, up to O(G^-2): max over k and baselines of w_k(leave-one-out) - w_k(baseline), B fixed",
    "rate",
    UNRELATED,
    formula=r"Nor smaller than the leave-one-out mean's, up to $O(G^{-2})$.",
    margin=SQUARE,
)
CORRELATED = Statement(
    "U13/correlated",
    f"beyond {DEMYSTIFYING}, Corollary 10",
    "no prompt-only baseline has smaller weights than the oracle, though Q'WW'Q and Z are correlated",
    "upper bound",
    whose=OURS,
)
TRANSIENT = Statement(
    "U11/transient",
    derived(6),
    "the slowest part of E n Delta falls short of its limit by a multiple of n^-(2 beta lambda_min - 1)",
    "rate",
    formula=r"The slowest part of $E\,n\,\Delta$ falls short of its limit by a multiple of "
    r"$n^{-(2\beta\lambda_{\min}-1)}$.",
    whose=OURS,
)
SKEWNESS = Statement(
    "U11/skewness",
    derived(6),
    "distance of the standardised gap from the normal = skewness/(6 sqrt(2 pi)) within 1%",
    "upper bound",
    formula=r"The standardised gap is $\mathrm{skewness}/(6\sqrt{2\pi})$ away from the normal, within $1\%$.",
    whose=OURS,
)
COMPARABLE = Statement(
    "U11/comparable",
    derived(6),
    "the distance of the standardised gap from the normal falls as M^-1/2",
    "rate",
    formula=r"The distance of the standardised gap from the normal falls as $M^{-1/2}$.",
    whose=OURS,
)

PROBLEMS = ("kl-tabular", "kl-linear", "conflict", "single")
ASSUMED = ("kl-tabular", "indifferent", "balanced")
"""Where Corollary 10's assumption holds."""
GROUP_SIZES = (4, 8, 16)
"""At which all groups are enumerated."""
CURVE = tuple(range(GROUP_SIZES[0], GROUP_SIZES[-1] + 1))
"""At which the closed form is drawn."""
TWICE = kernel_at("scaled_mean", 2.0, "twice the mean")
"""Corollary 9 broken: a leave-one-out mean that is taken twice has a baseline of 2 V however large the group."""
OFFSET_VALUE = 0.2
"""Corollary 10 broken: an oracle whose values are off by a fifth of the reward's range."""
CROWDS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
SLOW_FACTORS = (0.6, 0.75, 1.0)
STEPS = 1 << 13
SHARE_OF_EXPONENT = 0.15
"""The margin of the other rates, relative to their exponents."""


Rows = Iterator[Comparison | dict[str, Any]]


def cells(quick: bool) -> list[Cell]:
    """Exact, so quick is no different."""
    problems = [
        Cell({"part": part, "problem": problem})
        for part, names in (
            ("group size", PROBLEMS),
            ("baseline", (*PROBLEMS, "indifferent", "balanced")),
            ("estimated", ASSUMED),
            ("transient", ("kl-tabular", "conflict")),
        )
        for problem in names
    ]
    return [*problems, Cell({"part": "comparable", "problem": "crowd"})]


def _noise(problem: gt.Problem, best: np.ndarray, group_size: int) -> np.ndarray:
    """Covariance of one prompt's leave-one-out estimate, in closed form."""
    return leave_one_out_covariance(problem, best, batch_size=1, group_size=group_size)


def _enumerated(problem: gt.Problem, best: np.ndarray, estimator: str | gt.Estimator, group_size: int) -> np.ndarray:
    """Covariance of one prompt's estimate, by enumeration of all groups."""
    return gt.gradient_covariance(problem, best, estimator, batch_size=1, group_size=group_size)


def compare(settings: Settings) -> Rows:
    """Yield one part."""
    parts: dict[str, Callable[[str], Rows]] = {
        "group size": _by_group_size,
        "baseline": _by_baseline,
        "estimated": _by_estimated,
        "transient": _by_step,
        "comparable": _by_prompts,
    }
    yield from parts[settings["part"]](settings["problem"])


def _by_group_size(name: str) -> Rows:
    """Differences of the weights from the oracle's, of leave-one-out and of the broken kernel: all groups enumerated.

    And those of leave-one-out in closed form, on a fine grid of group sizes.
    """
    enumerated: dict[str, list[float]] = {"rloo - oracle": [], "twice": []}
    for size in CURVE:
        baselines = PromptBaselines(name, size)
        problem, best = baselines.problem, baselines.best
        row = {"problem": name, "group_size": size}
        closed = _from_oracle(baselines, _noise(problem, best, size))
        yield row | {"quantity": "rloo - oracle, closed form", "estimate": closed}
        if size in GROUP_SIZES:
            for quantity, kernel in (("rloo - oracle", "rloo"), ("twice", TWICE)):
                enumerated[quantity].append(_from_oracle(baselines, _enumerated(problem, best, kernel, size)))
            yield row | {"quantity": "rloo - oracle", "estimate": enumerated["rloo - oracle"][-1]}
    slope, broken = (log_log_slope(GROUP_SIZES, differences)[0] for differences in enumerated.values())
    yield U12.compare(name, slope, -2.0, broken=broken)


def _from_oracle(baselines: PromptBaselines, noise: Array) -> float:
    """Return the largest difference of an estimator's weights from the oracle's."""
    return float(np.abs(baselines.of_noise(noise) - baselines.weights(baselines.moments.value)).max())


def leads(name: str) -> dict[str, float]:
    """Return by what factor weights lie above the least of any baseline: the oracle's, a wrong oracle's, those of two others."""
    baselines = PromptBaselines(name, 4)
    value = baselines.moments.value
    tried = {
        "oracle": value,
        "optimal": baselines.moments.optimal_baseline,
        "reinforce": 0.0 * value,
        "wrong oracle": value + OFFSET_VALUE,
    }
    return {quantity: baselines.lead(baselines.weights(baseline)) for quantity, baseline in tried.items()}


def _by_baseline(name: str) -> Rows:
    """No baseline has a smaller weight than the oracle."""
    lead, measured = leads(name), dependence(*maximum(name)[:2])
    facts = {"dependence of Q'WW'Q and Z": measured, "of b*": lead["optimal"], "of no baseline": lead["reinforce"]}
    statement = U13 if measured < IDENTITY_TOLERANCE else CORRELATED
    yield statement.compare(name, lead["oracle"], 1.0, broken=lead["wrong oracle"], facts=facts)


def _by_estimated(name: str) -> Rows:
    """How far leave-one-out's weights, and those of means over pairs, lie above the least of any baseline, by group size."""
    excesses = []
    for size in GROUP_SIZES:
        baselines = PromptBaselines(name, size)
        problem, best = baselines.problem, baselines.best
        between, oracle, second = leave_one_out_parts(problem, best)
        noises = _noise(problem, best, size), between + (oracle + second) / size
        excesses.append([float((baselines.of_noise(noise) - baselines.least).max()) for noise in noises])
    slope, broken = (log_log_slope(GROUP_SIZES, side)[0] for side in zip(*excesses, strict=True))
    yield ESTIMATED.compare(name, slope, -2.0, broken=broken)


def _by_prompts(name: str) -> Rows:
    """The largest distance of the standardised law from the normal, what its skewness predicts, and its rate."""
    distances, predictions = [], []
    for prompts in CROWDS:
        problem = gt.gallery.crowd(prompts)
        best = gt.find_optimum(problem, problem.theta)
        law = law_of_noise(*check_optimum(problem, best), _noise(problem, best, 4))
        points = np.linspace(-3.0, 4.0, 701)
        distances.append(float(np.abs(law.cdf(law.mean() + law.std() * points) - ndtr(points)).max()))
        skewness = 2.0**1.5 * (law.weights**3).sum() / (law.weights**2).sum() ** 1.5
        predictions.append(float(skewness / (6.0 * np.sqrt(2.0 * np.pi))))
        row = {"problem": name, "quantity": "distance", "prompts": prompts}
        yield row | {"estimate": distances[-1], "prediction": predictions[-1]}
    off, broken = (abs(distances[-1] / (factor * predictions[-1]) - 1.0) for factor in (1.0, 1.25))
    yield SKEWNESS.compare("crowd (64 prompts)", off, 0.01, broken=broken)
    yield _rate(COMPARABLE, "crowd (2 to 64 prompts)", (CROWDS, distances), -0.5)


def _by_step(name: str) -> Rows:
    """The shortfall of E n Delta from its limit, started at the maximiser, in the slowest direction; and when all have set in."""
    for factor in SLOW_FACTORS:
        n, shortfalls, set_in = shortfall(name, factor, STEPS)
        yield {"problem": name, "quantity": "set in", "factor": factor, "estimate": set_in}
        yield _rate(TRANSIENT, f"{name} (beta lambda_min = {factor:g})", (n, shortfalls), 1.0 - 2.0 * factor)


def _rate(statement: Statement, setting: str, curve: tuple[ArrayLike, ArrayLike], exponent: float) -> Comparison:
    """Compare the slope of a curve with an exponent, and with twice it."""
    slope, _ = log_log_slope(*curve)
    near = SHARE_OF_EXPONENT * abs(exponent)
    return statement.compare(setting, slope, exponent, broken=slope, broken_prediction=2.0 * exponent, margin=near)
