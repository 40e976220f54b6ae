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

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import evidence
from grpo_theory.harness.study import Cell, Rows, Settings
from simulations.normalisation.correlations import KINDS
from simulations.normalisation.heads import ascent, head_problem, hidden_states
from simulations.normalisation.measured_statements import WITHIN
from simulations.statements import stated

PROXY, ACROSS, HESSIAN_WITHIN = stated("N9", "N9/across", "N9/Hessian")

PROBLEMS = ("lm-few-shot", "lm-zero-shot", "lm-instruct")
RIDGE, STRIDE, END, MOST_UPDATES = 0.01, 0.1, 0.9, 1000
"""Where the head is trained by exact gradients, as in `prompt_cosines`."""
ITERATIONS = 13
"""From the start to END, equally far apart in mean success."""
PROXIES = ("Fisher, trace", "weighted, trace")
HESSIAN = "Hessian, norm"
CURVATURES = (*PROXIES, HESSIAN, "Hessian, trace")
PRINTED, NONE, STRONG = 0.34, 0.1, 0.9
"""A correlation below a tenth is called none."""
RESAMPLES, QUICK_RESAMPLES = 400, 50


def cells(quick: bool) -> list[Cell]:
    """One cell for each way of asking; quick looks at one."""
    common = {"iterations": ITERATIONS, "end": END, "resamples": QUICK_RESAMPLES if quick else RESAMPLES}
    return [Cell({"problem": name, **common}) for name in (PROBLEMS[:1] if quick else PROBLEMS)]


def curvatures(probabilities: Array, right: Array, squared_lengths: Array) -> dict[str, Array]:
    """Return the four curvatures (M,) of policies pi (M, K), right answers one-hot (M, K), features' squared lengths (M,)."""
    pi, power = probabilities, (probabilities**2).sum(axis=1)
    value = (pi * right).sum(axis=1)
    scores = ((np.eye(pi.shape[1]) - pi[:, None]) ** 2).sum(axis=-1)
    loss = (pi * (right - value[:, None]) ** 2 * scores).sum(axis=1)
    return {
        "Fisher, trace": squared_lengths * (1.0 - power),
        "weighted, trace": squared_lengths * loss,
        "Hessian, norm": squared_lengths * np.abs(np.linalg.eigvalsh(hessian_forms(pi, right))).max(axis=1),
        "Hessian, trace": squared_lengths * np.abs(2.0 * value * (power - value)),
    }


def hessian_forms(pi: Array, right: Array) -> Array:
    """Return B of each prompt, shape (M, K, K), with which Hess J_i = B (x) h h'."""
    value = (pi * right).sum(axis=1)[:, None, None]
    gap = right - pi
    fisher = pi[:, :, None] * np.eye(pi.shape[1]) - pi[:, :, None] * pi[:, None, :]
    return np.asarray(value * (gap[:, :, None] * gap[:, None, :] - fisher))


def trained(settings: Settings) -> tuple[Array, list[dict[str, Array]]]:
    """Return V_i (T, M) and the curvatures of T iterations."""
    name = settings["problem"]
    problem = head_problem(name, RIDGE)
    lengths = (hidden_states(gt.gallery.problem(name)) ** 2).sum(axis=1)
    variances: list[Array] = []
    course: list[dict[str, Array]] = []
    wanted = np.zeros(1)
    for now in ascent(problem, 0.0, MOST_UPDATES, STRIDE):
        success = float(now.value.mean())
        if not course:
            wanted = np.linspace(success, settings["end"], settings["iterations"])
        while len(course) < len(wanted) and success >= wanted[len(course)]:
            pi = np.exp(now.logits - np.logaddexp.reduce(now.logits, axis=1, keepdims=True))
            variances.append(now.deviation**2)
            course.append(curvatures(pi, problem.bandit.mean_reward, lengths))
        if len(course) == len(wanted):
            return np.array(variances), course
    raise ValueError(f"the path must reach a mean success of {settings['end']:g}")


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Rows:
    """Correlate V_i and curvatures over prompts and over iterations; prompts are resampled for the errors."""
    variances, path = trained(settings)
    n_prompts = variances.shape[1]
    shuffled = variances[:, rng.permutation(n_prompts)]
    resamples = rng.multinomial(n_prompts, np.full(n_prompts, 1.0 / n_prompts), settings["resamples"]).astype(np.float64)
    table: Rows = []
    for what in (*CURVATURES, "deviation"):
        curvature = np.sqrt(variances) if what == "deviation" else np.array([at[what] for at in path])
        for (control, own), (how, kind) in product(((False, variances), (True, shuffled)), KINDS.items()):
            at = {"curvature": what, "control": control, "how": how, "replications": n_prompts}
            within = [float(kind(v, c, np.ones(n_prompts))) for v, c in zip(own, curvature, strict=True)]
            drawn = np.array([kind(v, c, resamples) for v, c in zip(own, curvature, strict=True)])
            error = float(drawn.mean(axis=0).std(ddof=1))
            table.append(at | {"over": "prompts", "estimate": float(np.mean(within)), "standard_error": error})
            across = kind(own.T, curvature.T, np.ones((1, len(own))))
            error = float(across.std(ddof=1) / np.sqrt(n_prompts))
            table.append(at | {"over": "iterations", "estimate": float(across.mean()), "standard_error": error})
    return table


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each curvature, kind of correlation, and what it is taken over."""
    return [{"problem": settings["problem"]} | row | {"prediction": np.nan} for row in results[0]]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """The printed correlations, for every reading of the curvature."""
    for name, part in table.groupby("problem", sort=False):
        at = part.set_index(["over", "how", "control", "curvature"])
        sizes, turned = (at.assign(estimate=estimate) for estimate in (at["estimate"].abs(), -at["estimate"]))
        for what, how in product(CURVATURES, KINDS):
            where = f"{name}, {what} ({how})"
            own, control = (evidence(at.loc["prompts", how, broken, what], PRINTED) for broken in (False, True))
            yield WITHIN.claim(where, own, control)
            own, control = (evidence(sizes.loc["iterations", how, False, one], NONE) for one in (what, "deviation"))
            yield ACROSS.claim(where, own, control)
        # "At least 0.9" is an upper bound of minus the correlation.
        own, control = (evidence(turned.loc["prompts", "Spearman", broken, HESSIAN], -STRONG) for broken in (False, True))
        yield HESSIAN_WITHIN.claim(str(name), own, control)
