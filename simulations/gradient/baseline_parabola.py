"""U6: Assumption 2, and the parabola of the variance as a function of the baseline, exact.

The variances without a baseline and with V are enumerated and compared with the parabola. In one control a baseline of a tenth of
the largest reward stands for none. In the other the policy is nudged, which breaks the assumption where it holds.
"""

from collections.abc import Iterator

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence import Comparison
from grpo_theory.harness.study import Cell, Settings
from grpo_theory.theory import baseline_trace
from simulations.gradient.baseline_statements import assumption_facts, correlations
from simulations.kernels import kernel_at
from simulations.statements import stated

U6, ASSUMPTION, CORRECTED = stated("U6", "U6/assumption", "U6/corrected")

NUDGE = 0.1
"""How far the first parameter of the policy, a logit or a weight of logits, is moved where Assumption 2 is broken."""
OFFSET = 0.1
"""The baseline that is taken for none."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem; exact, so quick is no different."""
    return [Cell({"problem": name}) for name in gt.gallery.names("gradient")]


def compare(settings: Settings) -> Iterator[Comparison]:
    """Yield the largest correlation, and the largest gap to the parabola in units of E||W||^2."""
    problem = gt.gallery.problem(settings["problem"])
    moments, nudged = gt.moments(problem, problem.theta), problem.theta.copy()
    nudged[0] += NUDGE
    here, near = correlations(moments), correlations(gt.moments(problem, nudged))
    facts = assumption_facts(here)
    yield ASSUMPTION.compare(problem.name, here["correlation_max"], 0.0, broken=near["correlation_max"], facts=facts)
    none, offset, value = (
        gt.gradient_law(problem, problem.theta, kernel, batch_size=1, group_size=2).prompt_traces * 2
        for kernel in ("reinforce", kernel_at("constant_baseline", OFFSET), "oracle")
    )
    excess = baseline_trace(moments, 0.0) - baseline_trace(moments, moments.value)
    gap, broken = (np.max(np.abs(traces - value - excess) / moments.score_power) for traces in (none, offset))
    yield CORRECTED.compare(problem.name, gap, 0.0, broken=broken, facts=facts)
