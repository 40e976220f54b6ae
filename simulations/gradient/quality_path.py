"""Figure 4: errors, constants and winners as the language model's head learns.

All numbers are exact, by the closed forms that `error_law` checks by enumeration. They are judged at mean successes of 0.15,
0.35, 0.6 and 0.85. An error is that of one group about its own prompt's gradient. The spread between prompts is left out: it is
the same for all estimators and would hide what tells them apart.

In the controls V is added instead of subtracted, or the baseline is one other reward. In that of the quality, the better policy
is seen through groups of 4 instead of 64.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Comparison
from grpo_theory.evidence.reading import largest
from grpo_theory.harness.study import Cell, Settings
from grpo_theory.theory import baseline_trace, break_even_group_size, leave_one_out_traces
from simulations.gradient.baseline_statements import FIFTH, LINE, NEAR, SAME
from simulations.gradient.trained_heads import trained_heads
from simulations.statements import stated

TRAINED, QUALITY = stated("U6/vanilla, trained", "U6/quality")

PROBLEMS = ("lm-zero-shot", "lm-few-shot")
QUALITIES = (0.15, 0.2, 0.25, 0.35, 0.45, 0.6, 0.7, 0.85)
JUDGED = (0.15, 0.35, 0.6, 0.85)
GROUP_SIZES = (4, 8, 16, 32, 64)
SHOWN = ("reinforce", "oracle", "rloo")
WRONG_SIGN, PAIRS = "oracle, wrong sign", "means of pairs"
"""The broken estimators. In the first, V is added to the reward instead of subtracted, always worse than no baseline. In the
second the baseline is one other reward, leave-one-out in groups of 2, whose second-order term does not fall with G."""


Errors = Mapping[int, Mapping[str, float]]
"""By group size and estimator."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each start; exact, so quick is no different."""
    return [Cell({"problem": problem}) for problem in PROBLEMS]


def errors(moments: gt.Moments, group_size: int) -> dict[str, float]:
    """Return the mean error of one group about its prompt's gradient, by estimator, the controls' among them."""
    traces: dict[str, Array] = {
        "reinforce": baseline_trace(moments, 0.0) / group_size,
        "oracle": baseline_trace(moments, moments.value) / group_size,
        "optimal": baseline_trace(moments, moments.optimal_baseline) / group_size,
        "rloo": leave_one_out_traces(moments, group_size),
        WRONG_SIGN: baseline_trace(moments, -moments.value) / group_size,
        PAIRS: leave_one_out_traces(moments, 2) * 2.0 / group_size,
    }
    return {name: float(moments.prompt_weights @ trace) for name, trace in traces.items()}


def compare(settings: Settings) -> Iterator[Comparison | dict[str, Any]]:
    """Train the head, and yield at each quality the constants of the error law, Assumption 2's measures and the errors."""
    name = settings["problem"]
    problem, judged = gt.gallery.problem(name), {}
    for quality, theta in zip(QUALITIES, trained_heads(problem, QUALITIES), strict=True):
        law, moments = gt.group_size_law(problem, theta), gt.moments(problem, theta)
        f = moments.prompt_weights
        policy = {
            **{"c1": law.c1, "c2": law.c2, "c3": law.c3, "optimum": law.optimum},
            "correlation_mean": float(f @ np.abs(moments.score_reward_correlation)),
            "vanilla_wins": float(f @ (moments.optimal_baseline < moments.value / 2.0)),
            "break_even": break_even_group_size(moments),
        }
        by_size = {size: errors(moments, size) for size in GROUP_SIZES}
        for size, by_estimator in by_size.items():
            common = {"problem": name, "quality": quality, "group_size": size, **policy}
            yield from (common | {"estimator": one, "estimate": error} for one, error in by_estimator.items())
        if quality in JUDGED:
            yield from _winners(f"{name}, success {quality:g}", by_size, _facts(policy))
            judged[quality] = by_size
    yield from _progress(name, judged)


def _facts(policy: Mapping[str, float]) -> dict[str, float]:
    return {
        **{name: policy[name] for name in ("c1", "c2", "c3")},
        "G*": policy["optimum"],
        "mean |corr(||W||^2, Z)|": policy["correlation_mean"],
        "share of prompts where no baseline beats V": policy["vanilla_wins"],
        "leave-one-out beats no baseline above G": policy["break_even"],
    }


def _winners(where: str, by_size: Errors, facts: Mapping[str, float]) -> Iterator[Comparison]:
    """One policy: leave-one-out against no baseline and against the oracle."""

    def excess(name: str, other: str, sizes: tuple[int, ...]) -> float:
        return largest([by_size[size][name] / by_size[size][other] - 1.0 for size in sizes])

    for statement, broken, other, sizes, bound in (
        (TRAINED, WRONG_SIGN, "reinforce", GROUP_SIZES, 0.0),
        (NEAR, PAIRS, "oracle", (8,), FIFTH),
        (SAME, PAIRS, "oracle", (32, 64), LINE),
    ):
        own, wrong = (excess(name, other, sizes) for name in ("rloo", broken))
        yield statement.compare(where, own, bound, broken=wrong, facts=facts)


def _progress(problem: str, judged: Mapping[float, Errors]) -> Iterator[Comparison]:
    """From each policy to the next better one."""
    for name in SHOWN:
        for worse, better in pairwise(JUDGED):
            before = judged[worse][64][name]
            rise, broken = (np.log(judged[better][size][name] / before) for size in (64, 4))
            yield QUALITY.compare(f"{problem} ({name}), success {worse:g} to {better:g}", rise, 0.0, broken=broken)
