"""N9: reward variance against curvature, over SmolLM2's questions and over training.

J_i has features X_i = I (x) h_i', in the head's own coordinates. Its curvature is measured by

- Fisher, trace: E||W||^2 = ||h||^2 (1 - ||pi||^2), the sum of the diagonal of the Fisher matrix of the policy;
- weighted, trace: E A^2 ||W||^2, the same of the loss, whose gradients are A W with A = r - V;
- Hessian, norm: ||h||^2 ||B||, with B = pi_* [(e_* - pi)(e_* - pi)' - (diag pi - pi pi')];
- Hessian, trace: |tr| = 2 ||h||^2 pi_* | ||pi||^2 - pi_* |.

Here * is the right answer. The paper's curvature is the diagonal of a Fisher matrix; the paper does not say which one, so both
are here. Within an iteration the control has the variances of other prompts. Over iterations it has the prompt's own standard
deviation in place of its curvature, which surely moves with its variance.
"""

from itertools import product

import numpy as np
from scipy.special import softmax

import grpo_theory as gt
from grpo_theory.harness import check, run
from simulations.normalisation.correlations import KINDS
from simulations.normalisation.heads import ascent, head_problem, hidden_states
from simulations.normalisation.measured_statements import WITHIN
from simulations.normalisation.prompt_cosines import END, MOST_UPDATES, PROBLEMS, STRIDE, WHITENED, milestones
from simulations.statements import stated

PROXY = stated("N9")
CURVATURES = ("Fisher, trace", "weighted, trace", "Hessian, norm", "Hessian, trace")
PRINTED, NONE, STRONG = 0.34, 0.1, 0.9
"""A correlation below a tenth is called none."""


def cases(quick, **names):
    """Each way of asking, one if quick, with each curvature and kind of correlation that is named."""
    # thirteen iterations from the start to END, equally far apart in mean success
    common = {"iterations": 13, "end": END, "resamples": 50 if quick else 400}
    named = [dict(zip(names, values, strict=True)) for values in product(*names.values())]
    return [{"problem": problem, **common, **one} for problem in (PROBLEMS[:1] if quick else PROBLEMS) for one in named]


def curvatures(pi, right, squared_lengths):
    """Return the four curvatures (M,) of policies pi (M, K), right answers one-hot (M, K), features' squared lengths (M,)."""
    power = (pi**2).sum(axis=1)
    value = (pi * right).sum(axis=1)
    scores = ((np.eye(pi.shape[1]) - pi[:, None]) ** 2).sum(axis=-1)
    loss = (pi * (right - value[:, None]) ** 2 * scores).sum(axis=1)
    return {
        "Fisher, trace": squared_lengths * (1.0 - power),
        "weighted, trace": squared_lengths * loss,
        "Hessian, norm": squared_lengths * np.abs(np.linalg.eigvalsh(hessian_matrices(pi, right))).max(axis=1),
        "Hessian, trace": squared_lengths * np.abs(2.0 * value * (power - value)),
    }


def hessian_matrices(pi, right):
    """Return B of each prompt, shape (M, K, K), with which Hess J_i = B (x) h h'."""
    value = (pi * right).sum(axis=1)[:, None, None]
    gap = right - pi
    fisher = pi[:, :, None] * np.eye(pi.shape[1]) - pi[:, :, None] * pi[:, None, :]
    return value * (gap[:, :, None] * gap[:, None, :] - fisher)


@run()
def correlations(problem, iterations, end, resamples, rng):
    """Return the correlations of V_i and curvatures over prompts and over iterations, with errors and the number of prompts.

    The head is trained by exact gradients, as in `prompt_cosines`; prompts are resampled for the errors.
    """
    head, lengths = head_problem(problem, WHITENED), (hidden_states(gt.gallery.problem(problem)) ** 2).sum(axis=1)
    path = milestones(ascent(head, 0.0, MOST_UPDATES, STRIDE), iterations, end)
    each = [
        curvatures(softmax(one.logits, axis=1), head.bandit.mean_reward, lengths) | {"deviation": one.deviation} for one in path
    ]
    variances, n = np.array([one.deviation**2 for one in path]), len(lengths)
    shuffled = variances[:, rng.permutation(n)]
    weights = rng.multinomial(n, np.full(n, 1.0 / n), resamples).astype(np.float64)
    found: dict = {}
    for what, (how, kind) in product((*CURVATURES, "deviation"), KINDS.items()):
        curvature = np.array([at[what] for at in each])
        one = found.setdefault(what, {}).setdefault(how, {})
        for name, own in (("own", variances), ("shuffled", shuffled)):
            within, drawn = (
                np.array([kind(v, c, w) for v, c in zip(own, curvature, strict=True)]) for w in (np.ones(n), weights)
            )
            one[name] = [within.mean(), drawn.mean(axis=0).std(ddof=1), n]
        across = kind(variances.T, curvature.T, np.ones((1, iterations)))
        one["across"] = [across.mean(), across.std(ddof=1) / np.sqrt(n), n]
    return found


@check(
    WITHIN,
    of=correlations,
    cases=lambda quick: cases(quick, curvature=CURVATURES, how=KINDS),
    broken={"prompts": "shuffled"},
    setting="{problem}, {curvature} ({how})",
)
def within(found, curvature, how, prompts="own"):
    """Over prompts, for every reading of the curvature; in the control the variances are those of other prompts."""
    return tuple(found[curvature][how][prompts]), PRINTED


@check(
    stated("N9/across"),
    of=correlations,
    cases=lambda quick: cases(quick, curvature=CURVATURES, how=KINDS),
    broken={"curvature": "deviation"},
    setting="{problem}, {curvature} ({how})",
)
def across(found, curvature, how):
    """The size of the correlation over iterations."""
    mean, error, n = found[curvature][how]["across"]
    return (abs(mean), error, n), NONE


@check(stated("N9/Hessian"), of=correlations, cases=cases, broken={"prompts": "shuffled"}, setting="{problem}")
def hessian_within(found, prompts="own"):
    """The rank correlation with the norm of the Hessian: "at least 0.9" is an upper bound of minus the correlation."""
    mean, error, n = found["Hessian, norm"]["Spearman"][prompts]
    return (-mean, error, n), -STRONG
