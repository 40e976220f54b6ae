"""U14, U15: standardised advantages and token ratios as the group grows, exact.

Advantages divided by the group's standard deviation are set against those divided by the prompt's, off policy, and the weights
of the KL term against its slope.  Broken: the variance or the standard error in the place of the deviation, and another policy.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.estimation.registry import make_estimator
from grpo_theory.evidence import PARTS, Claim, Margin, Statement, log_log_slope
from grpo_theory.evidence.reading import exact
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from simulations.sequence.divergences import STEP
from simulations.sequence.parts import composed
from simulations.sequence.standardised import leave_out, standardised
from simulations.sources import CORRECTION, DEMYSTIFYING, derived

NEAR = Margin(
    0.1, "A tenth of the exponent is a factor of 1.2 over these group sizes, which nobody who chooses one would notice."
)
U14 = Statement(
    "U14",
    f"{DEMYSTIFYING}, Lemma 11",
    "with standardised advantages, token ratios and a KL term the estimator tends, as G grows, to the printed U-statistic",
    PARTS,
    formula=r"With standardised advantages, token ratios $\mu_t$ and a KL term the estimator tends, as $G$ grows, to the "
    r"U-statistic with the kernel $$\tfrac12\left[\sum_t\mu^i_tW^i_t-\sum_t\mu^j_tW^j_t\right]\frac{Z_i-Z_j}{"
    r"\sigma}+\tfrac\kappa2\left[\sum_t(\mu^i_t-1)W^i_t+\sum_t(\mu^j_t-1)W^j_t\right]$$",
)
STANDARDISED = Statement(
    "U14/standardised",
    f"{DEMYSTIFYING}, Lemma 11",
    "E||estimate - U-statistic over the true standard deviation||^2 falls as 1/G, from 256 to 1024",
    "rate",
    formula="The squared distance from the U-statistic over the true deviation falls as $1/G$, from $256$ to $1024$.",
    margin=NEAR,
)
PRINTED = Statement(
    "U14/printed",
    f"{DEMYSTIFYING}, Lemma 11",
    "with pi_ref = pi_0 the K3 penalty adds kappa (mu_t - 1) W_t, mu_t = pi/pi_0 of token t",
    "identity",
    formula=r"With $\pi_{\mathrm{ref}}=\pi_0$ the K3 penalty adds $\kappa\sum_t(\mu_t-1)W_t$, $\mu_t=\pi/\pi_0$.",
)
CORRECTED = Statement(
    "U14/corrected",
    derived(19),
    "it adds kappa (1/mu_t - 1) W_t",
    "identity",
    formula=r"With $\pi_{\mathrm{ref}}=\pi_0$ the K3 penalty adds the inverse ratio: "
    r"$$\kappa\sum_t\left(\frac1{\mu_t}-1\right)W_t$$",
    whose=CORRECTION,
)
VARIANCE = Statement(
    "U15/variance",
    f"{DEMYSTIFYING}, Theorem 12",
    "the variance given the prompt falls as 1/G, from 256 to 1024",
    "rate",
    margin=NEAR,
)

PROBLEMS = ("sequence-tabular", "sequence-shared", "linear")
GROUP_SIZES = (256, 512, 1024)
DRIFT, STRAY = 0.5, 0.01


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem, exact; quick takes the first alone."""
    settings = {"group_sizes": list(GROUP_SIZES), "drift": DRIFT, "stray": STRAY}
    return [Cell({"problem": name} | settings) for name in PROBLEMS[: 1 if quick else None]]


def off_the_limit(batch, advantages):
    """The same less what it is with the prompt's own standard deviation."""
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        variance = leave_out(batch.rewards[b], advantages[b])
        if variance > 0.0:
            for g in range(group_size):
                advantages[b, g] *= 1.0 / np.sqrt(variance) - 1.0 / batch.standard_deviations[b]


def off_by_variance(batch, advantages):
    """Broken: the variance in the place of the standard deviation, its root forgotten."""
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        variance = leave_out(batch.rewards[b], advantages[b])
        if variance > 0.0:
            for g in range(group_size):
                advantages[b, g] *= 1.0 / variance - 1.0 / batch.standard_deviations[b]


def by_standard_error(batch, advantages):
    """Broken: the standard error of the mean in the place of the standard deviation."""
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        variance = leave_out(batch.rewards[b], advantages[b])
        if variance > 0.0:
            for g in range(group_size):
                advantages[b, g] /= np.sqrt(variance / group_size)


KERNELS = {
    function.__name__: make_estimator(function.__name__, function, minimum_group_size=2)
    for function in (standardised, off_the_limit, off_by_variance, by_standard_error)
}


def simulate(settings: Settings, rng: np.random.SeedSequence, chunk: int) -> Rows:
    """Return squared sizes and variances group size by group size, and errors of the KL term's weights."""
    problem = gt.gallery.problem(settings["problem"])
    steps = np.random.default_rng(rng).normal(size=(2, problem.policy.dimension))
    drift, stray = (settings[name] * step / np.linalg.norm(step) for name, step in zip(("drift", "stray"), steps, strict=True))
    theta = problem.theta + drift
    then, here, astray = (problem.at(at).token_log_probabilities for at in (problem.theta, theta, theta + stray))
    errors = {
        "printed": _weight_error(np.expm1(here - then), here - then),
        "printed, astray": _weight_error(np.expm1(here - then), astray - then),
        "corrected": _weight_error(np.expm1(then - here), here - then),
        "corrected, astray": _weight_error(np.expm1(then - here), astray - then),
    }
    table: Rows = [{"quantity": name, "group_size": 0, "estimate": error} for name, error in errors.items()]
    for name, kernel in KERNELS.items():
        for size in settings["group_sizes"]:
            sizes = {"batch_size": 1, "group_size": size}
            law = gt.gradient_law(problem, theta, composed(kernel, "token"), **sizes, behaviour=problem.theta)
            measured = {
                name: law.trace + float(law.mean @ law.mean),
                f"{name}, variance": float(law.prompt_weights @ law.prompt_traces),
            }
            table += [{"quantity": key, "group_size": size, "estimate": value} for key, value in measured.items()]
    return table


def _weight_error(weights: Array, log_ratios: Array) -> float:
    """Return the largest error of a token's weight W_t as the derivative of -k3 in log pi, with r = pi_0/pi and log pi/pi_0."""
    stepped = log_ratios + 1j * STEP
    return float(np.abs(weights + (np.exp(-stepped) + stepped).imag / STEP).max())


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each quantity and group size."""
    return [{"problem": settings["problem"], "prediction": 0.0, **EXACT} | row for row in results[0]]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Log-log slopes in G, and the weights of the KL term; the controls send broken kernels, and another policy."""
    slopes = (
        (STANDARDISED, "off_the_limit", "off_by_variance"),
        (VARIANCE, "standardised, variance", "by_standard_error, variance"),
    )
    for problem, part in table.groupby("problem", sort=False):
        for statement, *names in slopes:
            curves = (part[part["quantity"] == name].set_index("group_size")["estimate"] for name in names)
            own, control = (exact(log_log_slope(curve.index, curve)[0], -1.0) for curve in curves)
            yield statement.claim(str(problem), own, control)
        gaps = part.set_index("quantity")["estimate"]
        for statement, name in ((PRINTED, "printed"), (CORRECTED, "corrected")):
            yield statement.claim(str(problem), exact(gaps[name], 0.0), exact(gaps[f"{name}, astray"], 0.0))
