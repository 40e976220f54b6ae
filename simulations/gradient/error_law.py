"""U3 to U5: the exact error law by enumeration.

The error of the leave-one-out estimator is enumerated for each group size. It is compared with the printed laws, with the exact
ones and with the oracle's error. In the controls the estimator is GRPO as it is practised, or the last term of the exact laws has
G^2 for G(G-1).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence import PARTS, Comparison, Margin, Statement, log_log_slope
from grpo_theory.evidence.reading import largest
from grpo_theory.harness.study import Cell, Settings
from grpo_theory.theory import leave_one_out_traces, remainder_bound
from simulations.sources import CORRECTION, DEMYSTIFYING, derived

SLOPE = Margin(0.15, "half tells a slope of 2 from 1; over G = 8 to 64 the next order bends an exact power law by less")
U3 = Statement(
    "U3",
    f"{DEMYSTIFYING}, Theorem 2",
    "MSE(x) = trace Sigma_oracle(x)/G + O(E||W||^2/G^2)",
    PARTS,
    "Z bounded",
    formula=r"With $Z$ bounded, at each prompt "
    r"$$\mathrm{MSE}(x)=\frac{\mathrm{tr}\,\Sigma_{\mathrm{oracle}}(x)}{G}+O\!\left(\frac{E\|W\|^2}{G^2}\right)$$",
)
REMAINDER = Statement(
    "U3/printed",
    f"{DEMYSTIFYING}, Theorem 2",
    "MSE(x) - trace Sigma_oracle/G <= (range Z)^2 E||W||^2/G^2",
    "upper bound",
    formula=r"The remainder's constant is at most $1$: "
    r"$$\mathrm{MSE}(x)-\frac{\mathrm{tr}\,\Sigma_{\mathrm{oracle}}}{G}\le\frac{(\mathrm{range}\,Z)^2E\|W\|^2}{G^2}$$",
)
LAW = Statement(
    "U3/corrected",
    derived(2),
    "MSE(x) = trace Sigma_oracle/G + [Var(Z) E||W||^2 + ||g||^2]/(G(G-1)), every G >= 2",
    "identity",
    formula=r"$$\mathrm{MSE}(x)=\frac{\mathrm{tr}\,\Sigma_{\mathrm{oracle}}(x)}{G}+\frac{\mathrm{Var}(Z\mid "
    r"x)\,E\left[\|W\|^2\mid x\right]+\|g(x)\|^2}{G(G-1)}\qquad\text{for every }G\ge2$$",
    whose=CORRECTION,
)
RATE = Statement(
    "U3/rate",
    f"{DEMYSTIFYING}, Theorem 2",
    "MSE(x) - trace Sigma_oracle/G falls as G^-2",
    "rate",
    formula=r"The remainder falls as $G^{-2}$.",
    margin=SLOPE,
)
U4 = Statement(
    "U4",
    f"{DEMYSTIFYING}, Proposition 3",
    "MSE = c1/B + c2/(BG) + O(E||W||^2/(BG^2))",
    PARTS,
    formula=r"$$\mathrm{MSE}=\frac{c_1}{B}+\frac{c_2}{BG}+O\!\left(\frac{E\|W\|^2}{BG^2}\right),$$ "
    r"$$c_1=E\|g(X)-g\|^2,\quad c_2=E\,\mathrm{tr}\,\Sigma_{\mathrm{oracle}}(X)$$",
)
BATCH_REMAINDER = Statement(
    "U4/printed",
    f"{DEMYSTIFYING}, Proposition 3",
    "MSE - c1/B - c2/(BG) <= (range Z)^2 E||W||^2/(BG^2)",
    "upper bound",
    formula=r"The remainder's constant is at most $1$: "
    r"$$\mathrm{MSE}-\frac{c_1}B-\frac{c_2}{BG}\le\frac{(\mathrm{range}\,Z)^2E\|W\|^2}{BG^2}$$",
)
BATCH_LAW = Statement(
    "U4/corrected",
    derived(2),
    "MSE = c1/B + c2/(BG) + c3/(BG(G-1)), every G >= 2",
    "identity",
    formula=r"$$\mathrm{MSE}=\frac{c_1}{B}+\frac{c_2}{BG}+\frac{c_3}{BG(G-1)},$$ $$c_3=E\left[\mathrm{Var}(Z\mid "
    r"X)\,E[\|W\|^2\mid X]+\|g(X)\|^2\right]$$",
    whose=CORRECTION,
)
U5 = Statement(
    "U5",
    f"{DEMYSTIFYING}, Corollary 4",
    "without terms of higher order in G, MSE(GRPO) = MSE(oracle)",
    PARTS,
    formula=r"Without terms of higher order in $G$, for a prompt and for a batch, "
    r"$$\mathrm{MSE}(\mathrm{GRPO})=\mathrm{MSE}(\mathrm{oracle})$$",
)
PROMPT = Statement(
    "U5/prompt",
    f"{DEMYSTIFYING}, Corollary 4",
    "for each prompt, MSE(leave-one-out)/MSE(oracle) - 1 falls as G^-1",
    "rate",
    formula=r"For each prompt, $\mathrm{MSE}(\mathrm{GRPO})/\mathrm{MSE}(\mathrm{oracle})-1$ falls as $G^{-1}$.",
    margin=SLOPE,
)
BATCH = Statement(
    "U5/batch",
    f"{DEMYSTIFYING}, Corollary 4",
    "for a batch, MSE(leave-one-out) - MSE(oracle) falls as G^-2, not G^-1",
    "rate",
    formula=r"For a batch, $\mathrm{MSE}(\mathrm{GRPO})-\mathrm{MSE}(\mathrm{oracle})$ falls as $G^{-2}$, and not as "
    r"$G^{-1}$.",
    margin=SLOPE,
)

GROUP_SIZES = (2, 4, 8, 16, 32, 64)
BATCH_SIZE = 4
DIVIDED = "grpo"
"""The control of bounds and rates: GRPO as it is practised, through the same enumeration. Divided by the group's standard
deviation it estimates another gradient, so what the laws leave over does not vanish as they say. Its variance alone is larger by
the factor 1/Var(Z), at least 4 for binary rewards."""

Laws = dict[int, gt.GradientLaw]
"""The exact law of an estimator, by group size."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem; exact, so quick is no different."""
    return [Cell({"problem": name}) for name in gt.gallery.names("gradient")]


def compare(settings: Settings) -> Iterator[Comparison | dict[str, Any]]:
    """Yield the errors beside the law and its constants, and the worst of each statement over the group sizes."""
    problem = gt.gallery.problem(settings["problem"])
    law = gt.group_size_law(problem, problem.theta)
    constants = {"c1": law.c1, "c2": law.c2, "c3": law.c3, "optimum": law.optimum, "paper_optimum": law.paper_optimum}
    loo, oracle, divided = (
        {size: gt.gradient_law(problem, problem.theta, name, batch_size=BATCH_SIZE, group_size=size) for size in GROUP_SIZES}
        for name in ("rloo", "oracle", DIVIDED)
    )
    for size, error in loo.items():
        common = {"problem": problem.name, "batch_size": BATCH_SIZE, "group_size": size, **constants}
        yield common | {"estimate": error.mse, "prediction": float(law.mse(BATCH_SIZE, size))}
    yield from _remainders(problem, law, loo, divided)
    yield from _laws(problem, law, loo)
    yield from _rates(problem.name, law, oracle, (loo, divided))


def _remainders(problem: gt.Problem, law: gt.GroupSizeLaw, loo: Laws, divided: Laws) -> Iterator[Comparison]:
    """The printed O(1/G^2) remainder with the explicit constant (range of Z)^2: what is left over the bound is at most 1."""
    moments, reward_range = gt.moments(problem, problem.theta), float(np.ptp(problem.bandit.values))
    live = moments.score_power > 0.0
    power = float(moments.prompt_weights @ moments.score_power)

    def of_a_prompt(size: int, error: gt.GradientLaw) -> float:
        over = (error.prompt_traces - moments.oracle_trace / size) / remainder_bound(moments, size, reward_range)
        return float(np.max(over[live]))

    def of_the_batch(size: int, error: gt.GradientLaw) -> float:
        over = error.mse - (law.c1 + law.c2 / size) / BATCH_SIZE
        return over / (reward_range**2 * power / (BATCH_SIZE * size**2))

    for statement, ratio in ((REMAINDER, of_a_prompt), (BATCH_REMAINDER, of_the_batch)):
        worst, broken = (largest([ratio(*one) for one in errors.items()]) for errors in (loo, divided))
        yield statement.compare(problem.name, worst, 1.0, broken=broken)


def _laws(problem: gt.Problem, law: gt.GroupSizeLaw, loo: Laws) -> Iterator[Comparison]:
    """Yield the exact law against enumeration, by prompt and by batch; the control has G^2 for G(G-1), at G = 2 half the term."""
    moments = gt.moments(problem, problem.theta)
    live = moments.score_power > 0.0
    of_prompts, of_batches = [], []
    for size, error in loo.items():
        closed = leave_one_out_traces(moments, size)
        printed = moments.oracle_trace / size + moments.second_order / size**2
        of_prompts.append([np.max(np.abs(one / closed - 1.0)[live]) for one in (error.prompt_traces, printed)])
        of_batch = float(law.mse(BATCH_SIZE, size)), (law.c1 + law.c2 / size + law.c3 / size**2) / BATCH_SIZE
        of_batches.append([abs(error.mse / one - 1.0) for one in of_batch])
    for statement, gaps in ((LAW, of_prompts), (BATCH_LAW, of_batches)):
        gap, broken = (largest(side) for side in zip(*gaps, strict=True))
        yield statement.compare(problem.name, gap, 0.0, broken=broken)


def _rates(name: str, law: gt.GroupSizeLaw, oracle: Laws, both: tuple[Laws, Laws]) -> Iterator[Comparison]:
    """Log-log slopes over G = 8 to 64 of what is left over the first terms, and over the oracle's error."""
    large = [size for size in oracle if size >= 8]
    for statement, exponent, excess in (
        (RATE, -2.0, lambda size, error: error.prompt_mse - law.c2 / size),
        (PROMPT, -1.0, lambda size, error: error.prompt_mse / oracle[size].prompt_mse - 1.0),
        (BATCH, -2.0, lambda size, error: error.mse - oracle[size].mse),
    ):
        slope, broken = (log_log_slope(large, [excess(size, errors[size]) for size in large])[0] for errors in both)
        yield statement.compare(name, slope, exponent, broken=broken)
