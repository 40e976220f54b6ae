"""U6, R2: no baseline, V, b*, and their leave-one-out twins.

Which baseline has the lower variance is simulated on every problem, by differences of estimators on the same draws; Assumption 2
and the parabola of the variance are exact.  Broken: the mean is added instead of taken off, which is worse than none for V > 0;
the baseline is one reward too high, whose error is higher by E||W||^2/G than that of b*; the policy is nudged; and a baseline of
a tenth of the largest reward is taken for none.
"""

from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.evidence import PARTS, Claim, Statement
from grpo_theory.evidence.reading import evidence, exact
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.theory import baseline_trace, break_even_group_size, leave_one_out_traces
from simulations.gradient.baseline_statements import VANILLA_4, VANILLA_64
from simulations.gradient.cells import gradient_cells, merge, simulate_estimators
from simulations.kernels import kernel_at
from simulations.sources import CORRECTION, DEMYSTIFYING, OURS, UNCORRELATED, derived

U6 = Statement(
    "U6",
    f"{DEMYSTIFYING}, Corollary 5",
    "GRPO's MSE is at most that of every prompt-only baseline, below vanilla if V != 0",
    PARTS,
    UNCORRELATED,
    formula=r"If $\|W\|^2$ and $Z$ are uncorrelated given $X$, then as $G$ grows "
    r"$$\mathrm{MSE}(\mathrm{GRPO})\le\mathrm{MSE}(C)\quad\text{for every baseline }C=C(x),$$ and it is strictly "
    r"below the error without a baseline if $V(x)\ne0$.",
)
ASSUMPTION = Statement(
    "U6/assumption",
    f"{DEMYSTIFYING}, Assumption 2",
    "||W||^2 and Z are uncorrelated given X: the largest |correlation| is 0",
    "identity",
    formula=r"Assumption 2: $\|W\|^2$ and $Z$ are uncorrelated given $X$, so the largest absolute correlation is $0$.",
)
CORRECTED = Statement(
    "U6/corrected",
    derived(3),
    "trace Sigma_C - trace Sigma_V = E||W||^2 [(C-b*)^2 - (V-b*)^2]: C beats V iff it is nearer to b*",
    "identity",
    formula=r"$$\mathrm{tr}\,\Sigma_C-\mathrm{tr}\,\Sigma_V=E\|W\|^2\left[(C-b^*)^2-(V-b^*)^2\right],$$ "
    r"$$b^*=\frac{E\|W\|^2Z}{E\|W\|^2}$$ A baseline $C$ beats $V$ if and only if it is nearer to $b^*$.",
    whose=CORRECTION,
)
BEST = Statement(
    "R2",
    "Greensmith et al. 2004",
    "b* at most the value baseline, G = 64",
    "upper bound",
    formula=r"Of all baselines that depend on the prompt alone the least noisy is $$b^*(x)=\frac{E[\|W\|^2Z\mid "
    r"x]}{E[\|W\|^2\mid x]}$$ Judged at $G=64$: its error is at most that of the value baseline.",
)
PLUG_IN_4 = Statement(
    "R2/plug-in, G=4", "measured", "leave-one-out b* at most leave-one-out mean, G = 4", "upper bound", whose=OURS
)
PLUG_IN_64 = Statement(
    "R2/plug-in, G=64", "measured", "leave-one-out b* at most leave-one-out mean, G = 64", "upper bound", whose=OURS
)

ESTIMATORS = ("reinforce", "oracle", "optimal", "rloo", "optimal_loo")
GROUP_SIZES = (4, 64)
COMPARISONS = (
    (VANILLA_4, 4, "rloo", "reinforce"),
    (VANILLA_64, 64, "rloo", "reinforce"),
    (BEST, 64, "optimal", "oracle"),
    (PLUG_IN_4, 4, "optimal_loo", "rloo"),
    (PLUG_IN_64, 64, "optimal_loo", "rloo"),
)
"""Statement, group size, and the estimator that it says is at most as noisy as another."""
MEAN_ADDED = kernel_at("scaled_mean", -1.0, "mean added")
ONE_TOO_HIGH = kernel_at("shifted_optimal", 1.0, "b* + 1")
MISTAKEN = {"rloo": MEAN_ADDED, "optimal": ONE_TOO_HIGH, "optimal_loo": ONE_TOO_HIGH}
"""What is put in the place of the first in the broken comparisons."""
PAIRS = tuple(
    dict.fromkeys(pair for *_, first, second in COMPARISONS for pair in ((first, second), (MISTAKEN[first].name, second)))
)
NUDGE = 0.1
"""How far the first parameter of the policy, a logit or a weight of logits, is moved where Assumption 2 is broken."""
OFFSET = 0.1
"""The baseline that is taken for none."""


def estimators() -> list[str | gt.Estimator]:
    """Return what is simulated, on the same draws: the registered estimators, and those of the controls."""
    return [*ESTIMATORS, MEAN_ADDED, ONE_TOO_HIGH]


def cells(quick: bool) -> list[Cell]:
    """Every problem at a small and at a large group."""
    return gradient_cells(estimators(), GROUP_SIZES, batch_size=4, quick=quick)


def _prediction(estimator: str, moments: gt.Moments, group_size: int) -> float:
    """Return the exact error for each prompt on average where there is a closed form, else NaN."""
    traces = {
        "reinforce": baseline_trace(moments, 0.0) / group_size,
        "oracle": baseline_trace(moments, moments.value) / group_size,
        "optimal": baseline_trace(moments, moments.optimal_baseline) / group_size,
        "rloo": leave_one_out_traces(moments, group_size),
        ONE_TOO_HIGH.name: baseline_trace(moments, moments.optimal_baseline + 1.0) / group_size,
    }
    return float(moments.prompt_weights @ traces[estimator]) if estimator in traces else float("nan")


def predict(settings: Settings) -> dict[str, float]:
    """Return the largest gaps between enumerated variances, no baseline less V, and the parabola, and a nudged correlation.

    The gaps are in units of E||W||^2; the second is that of a baseline of 0.1, taken for none.  The correlation is the largest of
    a policy that is nudged off this one.
    """
    problem = gt.gallery.problem(settings["problem"])
    moments = gt.moments(problem, problem.theta)
    none, offset, value = (
        gt.gradient_law(problem, problem.theta, kernel, batch_size=1, group_size=2).prompt_traces * 2
        for kernel in ("reinforce", kernel_at("constant_baseline", OFFSET), "oracle")
    )
    excess = baseline_trace(moments, 0.0) - baseline_trace(moments, moments.value)
    gaps = (float(np.max(np.abs(found - value - excess) / moments.score_power)) for found in (none, offset))
    nudged = problem.theta.copy()
    nudged[0] += NUDGE
    correlation = float(np.max(np.abs(gt.moments(problem, nudged).score_reward_correlation)))
    return {**dict(zip(("parabola_gap", "parabola_gap_offset"), gaps, strict=True)), "correlation_nudged": correlation}


def simulate(settings: Settings, rng: np.random.SeedSequence, chunk: int) -> dict[str, Any]:
    """Simulate one chunk; with the first goes what is exact."""
    return {
        **simulate_estimators(settings, estimators(), rng, chunk),
        "prediction": predict(settings) if chunk == 0 else None,
    }


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each estimator and one for each paired difference, with the assumption's measures on each."""
    simulation = merge(results)
    problem = gt.gallery.problem(settings["problem"])
    moments = gt.moments(problem, problem.theta)
    f = moments.prompt_weights
    group_size = settings["group_size"]
    common = {
        "problem": problem.name,
        "batch_size": settings["batch_size"],
        "group_size": group_size,
        "replications": simulation.replications,
        "value": float(f @ moments.value),
        "correlation_mean": float(f @ np.abs(moments.score_reward_correlation)),
        "correlation_max": float(np.max(np.abs(moments.score_reward_correlation))),
        "vanilla_wins": float(f @ (moments.optimal_baseline < moments.value / 2.0)),
        "break_even": break_even_group_size(moments),
        **results[0]["prediction"],
    }
    found = []
    for name, estimate, error in zip(
        simulation.estimators, simulation.prompt_mse, simulation.prompt_mse_standard_error, strict=True
    ):
        row = {"estimator": name, "estimate": float(estimate), "standard_error": float(error)}
        found.append(common | row | {"prediction": _prediction(name, moments, group_size)})
    for first, second in PAIRS:
        estimate, error = simulation.prompt_mse_difference(first, second)
        prediction = _prediction(first, moments, group_size) - _prediction(second, moments, group_size)
        row = {"estimator": f"{first} - {second}", "estimate": estimate, "standard_error": error}
        found.append(common | row | {"prediction": prediction})
    return found


def _facts(row: pd.Series) -> dict[str, float]:
    return {
        "mean |corr(||W||^2, Z)|": row["correlation_mean"],
        "max |corr|": row["correlation_max"],
        "share of prompts where no baseline beats V": row["vanilla_wins"],
    }


def _comparison(statement: Statement, size: int, first: str, second: str, problem: str, part: pd.DataFrame) -> Claim:
    """Compare two estimators by their paired difference."""
    at = part[part["group_size"] == size].set_index("estimator")
    own, broken = (at.loc[f"{name} - {second}"] for name in (first, MISTAKEN[first].name))
    return statement.claim(problem, evidence(own, 0.0), evidence(broken, 0.0), facts=_facts(own))


def _identities(problem: str, row: pd.Series) -> list[Claim]:
    """Assumption 2, and the parabola."""
    return [
        statement.claim(problem, exact(row[quantity], 0.0), exact(row[broken], 0.0), _facts(row))
        for statement, quantity, broken in (
            (ASSUMPTION, "correlation_max", "correlation_nudged"),
            (CORRECTED, "parabola_gap", "parabola_gap_offset"),
        )
    ]


def claims(table: pd.DataFrame) -> list[Claim]:
    """Read the identities and the comparisons off the table."""
    found = []
    for problem, part in table.groupby("problem", sort=False):
        found += _identities(str(problem), part.iloc[0])
        found += [_comparison(*comparison, str(problem), part) for comparison in COMPARISONS]
    return found
