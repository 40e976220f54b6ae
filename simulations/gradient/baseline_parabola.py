"""U6: Assumption 2, and the parabola of the variance as a function of the baseline, exact.

The variances without a baseline and with V are enumerated and compared with the parabola. In one control a baseline of a tenth of
the largest reward stands for none. In the other the policy is nudged, which breaks the assumption where it holds. Its
first parameter, a logit or a weight of logits, is moved by 0.1.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.harness import check
from grpo_theory.theory import baseline_trace
from simulations.gradient.baseline_statements import assumption_facts, correlations
from simulations.kernels import kernel_at
from simulations.statements import stated

U6, *PARTS = stated("U6", "U6/assumption", "U6/corrected")
CASES = [{"problem": name} for name in gt.gallery.names("gradient")]


@check(*PARTS, cases=CASES, broken={"nudge": 0.1, "offset": 0.1}, setting="{problem}")
def parabola(problem, nudge=0.0, offset=0.0):
    """The largest correlation, and the largest gap to the parabola in units of E||W||^2."""
    problem = gt.gallery.problem(problem)
    moments, nudged = gt.moments(problem, problem.theta), problem.theta.copy()
    nudged[0] += nudge
    near = correlations(gt.moments(problem, nudged))
    facts = assumption_facts(near)
    kernels, sizes = (kernel_at("constant_baseline", offset), "oracle"), {"batch_size": 1, "group_size": 2}
    none, value = (gt.gradient_law(problem, problem.theta, kernel, **sizes).prompt_traces * 2 for kernel in kernels)
    excess = baseline_trace(moments, 0.0) - baseline_trace(moments, moments.value)
    gaps = np.abs(none - value - excess) / moments.score_squared_norm
    return {"U6/assumption": (near["correlation_max"], 0.0, facts), "U6/corrected": (gaps, 0.0, facts)}
