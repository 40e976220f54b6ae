"""R1: which objective finite groups climb, with binary rewards, for every trainer's convention.

The enumerated mean updates are compared with h'(p) grad p in closed form, and GRPO's slope with its limit and its greatest value.

In the updates' controls a convention has the other ddof, forgets to divide by the mean, or has the own sample wrongly in or out.
In that of the limit an epsilon of 0.0002 does not go away as groups grow. In that of the greatest value the ddof is 0.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.estimation import find
from grpo_theory.evidence import log_log_slope
from grpo_theory.harness import check, rows
from grpo_theory.theory import best_slope, finite_group_objective, left_out_slope, relative_slope, standardised_slope
from simulations.statements import stated

R1 = stated("R1")
PROBLEMS = ("two-arms", "tabular", "linear", "sequence-shared")
"""With binary rewards and no penalty."""
GROUP_SIZES = (2, 3, 8, 32)
LARGE = (128, 256, 512, 1024)
DRAWN = (2, 4, 8, 64)
PROBABILITIES = np.round(np.linspace(0.005, 0.995, 100), 4)
AT = 0.3
"""Where the limit is read: away from 1/2, where everything is symmetric, and with 38 failures or successes at the least G."""
CONVENTIONS: dict = {
    "trl_grpo": (lambda p, size: standardised_slope(p, size, 1, 1e-4), {"ddof": 0}),
    "verl_grpo": (lambda p, size: standardised_slope(p, size, 1, 1e-6), {"ddof": 0}),
    "openrlhf_group_norm": (lambda p, size: standardised_slope(p, size, 1, 1e-9), {"ddof": 0}),
    "rllm": (lambda p, size: standardised_slope(p, size, 0, 1e-6), {"ddof": 1}),
    "nemo_rl": (lambda p, size: left_out_slope(p, size, 1, 1e-6), {"ddof": 0}),
    "max_rl": (relative_slope, "prime_rl"),
    "verl_grpo_passk": (lambda p, size: best_slope(p, size, 1, 1e-6), {"ddof": 0}),
    "trl_grpo_none": (lambda p, size: np.full(p.shape, 1.0 - 1.0 / size), "trl_rloo"),
    "trl_rloo": (lambda p, size: np.ones(p.shape), "trl_grpo_none"),
}
"""The closed form of h'(p), and a broken kernel: the other ddof; a division by the mean forgotten; the own sample in, or out."""
BARE = find("openrlhf_group_norm").with_parameters(epsilon=0.0)
CASES = [{"convention": name} for name in CONVENTIONS]


@check(stated("R1/update"), cases=CASES, broken={"right": False}, setting="{convention}")
def update(convention, right=True):
    """How far enumerated mean updates are from h'(p) grad p, relative to the largest of these, on all problems."""
    slope, wrong = CONVENTIONS[convention]
    broken = find(convention).with_parameters(**wrong) if isinstance(wrong, dict) else wrong
    gaps = []
    for problem in map(gt.gallery.problem, PROBLEMS):
        for size in GROUP_SIZES[convention == "nemo_rl" :]:  # of two groups' others there is one, and no ddof matters
            law = gt.gradient_law(problem, problem.theta, convention if right else broken, batch_size=1, group_size=size)
            expected = slope(gt.moments(problem, problem.theta).value, size)[:, None] * law.true_logit_gradients
            gaps.append(np.abs(law.mean_logit_gradients - expected).max() / np.abs(expected).max())
    return np.array(gaps), 0.0


@check(stated("R1/limit"), broken={"epsilon": 0.0002}, setting=f"p = {AT}")
def limit(epsilon=0.0):
    """The exponent of G in the distance of GRPO's slope from its limit."""
    slopes = np.array([float(finite_group_objective(BARE.with_parameters(epsilon=epsilon), size).slope(AT)) for size in LARGE])
    return log_log_slope(LARGE, np.abs(slopes * np.sqrt(AT * (1.0 - AT)) - 1.0))[0], -1.0


@check(stated("R1/greatest"), broken={"ddof": 0.0}, setting="G = 2 to 64")
def greatest(ddof=1.0):
    """GRPO's greatest slope over (G - 1)/sqrt(G)."""
    most = [
        finite_group_objective(BARE.with_parameters(ddof=ddof), size).slope_range[1] / ((size - 1.0) / np.sqrt(size))
        for size in DRAWN
    ]
    return np.array(most), 1.0


@rows(cases=CASES)
def curves(convention):
    """h'(p) and h(p), from a kernel."""
    for size in DRAWN:
        objective = finite_group_objective(convention, size)
        for p, slope, value in zip(PROBABILITIES, objective.slope(PROBABILITIES), objective.value(PROBABILITIES), strict=True):
            yield {"kind": "curve", "group_size": size, "p": p, "value": value, "estimate": slope}
