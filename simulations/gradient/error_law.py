"""U3 to U5: the exact error law by enumeration.

The error of the leave-one-out estimator is enumerated for each group size. It is compared with the printed laws, with the exact
ones and with the oracle's error. In the controls the estimator is GRPO as it is practised, or the last term of the exact laws has
G^2 for G(G-1).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence import Comparison, log_log_slope
from grpo_theory.evidence.reading import largest
from grpo_theory.harness.study import Cell, Settings
from grpo_theory.theory import leave_one_out_traces, remainder_bound
from simulations.statements import stated

U3, REMAINDER, LAW, RATE, U4, BATCH_REMAINDER = stated("U3", "U3/printed", "U3/corrected", "U3/rate", "U4", "U4/printed")
BATCH_LAW, U5, PROMPT, BATCH = stated("U4/corrected", "U5", "U5/prompt", "U5/batch")

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
