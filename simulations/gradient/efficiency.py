"""Efficiency of estimators with different means, against the group size, exact.

A learning rate undoes any factor on an estimator, so a squared error about the gradient compares only those with one mean.
Efficiency compares them all, for one step: (g . E ghat)^2/(||g||^2 E||ghat||^2).

In one control GRPO has the group size of its least squared error, which counts a factor as an error. In the other the group's
deviation multiplies the advantages instead of dividing them.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.estimation import find
from grpo_theory.estimation.kernel import centre
from grpo_theory.estimation.registry import make_estimator
from grpo_theory.exact.group_law import efficiency_of
from grpo_theory.harness import check, rows, run
from simulations.gradient.groups import RESPONSES
from simulations.statements import stated

PARTS = stated("efficiency/larger groups", "efficiency/best sizes", "efficiency/at 32")
GROUP_SIZES = (*range(2, 17), 20, 24, 32, 48, 64)
LARGE = 32
"""The group size that arXiv 2603.01162 reports as the best one."""
JUDGED = ("lm-zero-shot", "lm-few-shot", "lm-instruct", "lm-answers")
"""A language model's heads.  On the made-up problems, of 4 to 16 prompts, 1,024 responses leave next to no noise to compare."""


def multiplied(batch, advantages):
    """Broken: the group's deviation multiplies the advantages instead of dividing them."""
    for b in range(batch.rewards.shape[0]):
        advantages[b] *= np.sqrt(centre(batch.rewards[b], advantages[b]) / (batch.rewards.shape[1] - 1.0))


ESTIMATORS = {name: find(name) for name in ("reinforce", "rloo", "grpo", "max_rl")}
ESTIMATORS["multiplied"] = make_estimator("multiplied", multiplied, minimum_group_size=2, exchangeable=True)


def cases(quick):
    """Each problem; a quick run looks at one of the heads and half of the group sizes."""
    names = ("lm-few-shot",) if quick else (*gt.gallery.names("gradient"), "lm-answers")
    return [{"problem": name, "every": 2 if quick else 1} for name in names]


def on_heads(quick):
    """Those of a language model's heads."""
    return [case for case in cases(quick) if case["problem"] in JUDGED]


def measures(problem, estimator, group_sizes):
    """Return efficiency, and squared error relative to ||g||^2, at each group size, with N/G prompts, whole or not."""
    point = problem.at(problem.theta)
    found = []
    for size in group_sizes:
        law = gt.exact.law_between(point, point, ESTIMATORS[estimator], batch_size=1, group_size=size)
        noise, g, mean = law.trace * size / RESPONSES, law.true_gradient, law.mean
        efficiency = float(efficiency_of(g @ mean, float(g @ g), mean @ mean + noise))
        found.append((efficiency, (noise + law.bias @ law.bias) / (g @ g)))
    return dict(zip(("efficiency", "error"), np.transpose(found), strict=True))


@run()
def measured(problem, every):
    """Measure all estimators at all group sizes, or at every other one."""
    problem, sizes = gt.gallery.problem(problem), sorted({*GROUP_SIZES[::every], LARGE})
    return {"sizes": sizes, "of": {name: measures(problem, name, sizes) for name in ESTIMATORS}}


@check(*PARTS, of=measured, cases=on_heads, broken={"flawed": True}, setting="{problem}")
def judged(found, flawed=False):
    """GRPO against the leave-one-out mean: best group sizes, best efficiencies, and what is lost with 32 responses."""
    sizes, rloo, grpo, multiplied = found["sizes"], *(found["of"][name] for name in ("rloo", "grpo", "multiplied"))
    ours, theirs = rloo["efficiency"], grpo["efficiency"]
    best, other = ours.argmax(), grpo["error"].argmin() if flawed else theirs.argmax()
    lost, others_lost = (max(some) / some[sizes == LARGE][0] for some in (ours, multiplied["efficiency"] if flawed else theirs))
    facts = {"best group size, rloo": sizes[best], "best group size, grpo": sizes[other]}
    facts |= {"best efficiency, rloo": ours[best], "best efficiency, grpo": theirs[other]}
    less = (sizes[best] - sizes[other], ours[best] - theirs[other], others_lost - lost)
    return {one.id: (value, 0.0, facts) for one, value in zip(PARTS, less, strict=True)}


@rows(of=measured, cases=cases)
def drawn(found):
    """All measures of all estimators."""
    for name, by_quantity in found["of"].items():
        for quantity, values in by_quantity.items():
            for size, value in zip(found["sizes"], values, strict=True):
                yield {"estimator": name, "responses": RESPONSES, "group_size": size, "quantity": quantity, "estimate": value}
