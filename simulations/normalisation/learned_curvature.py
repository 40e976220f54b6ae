"""N9, N10: variance against curvature, and how alike representations become, where features are learned.  Networks of two layers.

All values are exact, along ascent by exact gradients. Many draws of inputs and starts are the sample. The paper's curvature is
read in two ways, as for SmolLM2's head. The first is E||W||^2, the trace of the policy's Fisher matrix; the second is E A^2
||W||^2, that of the loss. Beside them stands the norm of the Hessian of J_i, with the second derivatives of the logits.

Within an iteration the control has the variances of other prompts. Over iterations it has the standard deviation in place of the
curvature. For representations it has features that stay.
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
from grpo_theory.harness.summary import summary
from grpo_theory.problem.two_layer import TwoLayerMap
from simulations.normalisation.correlations import KINDS
from simulations.normalisation.measured_statements import WITHIN
from simulations.normalisation.network_curvature import hessian_norms
from simulations.normalisation.networks import BOTH, ascent, network_problem, pair_cosines
from simulations.seeds import seed_of
from simulations.statements import stated

ACROSS, HESSIAN_LEARNED, ALIKE = stated("N9/across, learned features", "N9/Hessian, learned features", "N10/learned features")

WIDTHS, QUICK_WIDTHS = (4, 16, 64), (16,)
UPDATES, STRIDE = (0, 20, 40, 80, 160), 0.4
"""As far as in the study of the phases, in a quarter of its updates."""
DRAWS, QUICK_DRAWS = 48, 8
"""Enough for the limits of few runs to distinguish the printed correlation from none."""
PROXIES, HESSIAN = ("Fisher, trace", "weighted, trace"), "Hessian, norm"
PRINTED, NONE, STRONG = 0.34, 0.1, 0.9
"""A correlation below a tenth is called none, as for SmolLM2's head."""
RISE = 0.02
"""A fifth of what inputs have, 0.088: less would not be seen in a histogram."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each width."""
    common = {"updates": list(UPDATES), "draws": QUICK_DRAWS if quick else DRAWS}
    return [Cell({"width": width, **common}) for width in (QUICK_WIDTHS if quick else WIDTHS)]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> list[dict[str, float]]:
    """Return what is measured on each draw."""
    seeds = seed_of(rng).generate_state(settings["draws"]).tolist()
    return [measured(network_problem(settings["width"], seed, mixture=BOTH), settings["updates"], seed) for seed in seeds]


def measured(problem: gt.Problem, updates: list[int], seed: int) -> dict[str, float]:
    """Return correlations of variances and curvatures over prompts and over iterations, and by how much features grow alike."""
    network = problem.policy.logit_map
    assert isinstance(network, TwoLayerMap)
    variances, cosines = [], []
    curvatures: dict[str, list[Array]] = {what: [] for what in (*PROXIES, HESSIAN)}
    for n, place in enumerate(ascent(problem, 0.0, updates[-1], STRIDE)):
        if n in updates:
            moments = gt.moments(problem, place.theta)
            variances.append(moments.reward_variance)
            cosines.append(float(np.abs(pair_cosines(network.hidden(place.theta))).mean()))
            for what, values in zip(
                curvatures, (moments.score_power, moments.oracle_power, hessian_norms(problem, place)), strict=True
            ):
                curvatures[what].append(values)
    found = correlations(np.array(variances), {what: np.array(values) for what, values in curvatures.items()}, seed)
    return found | {"rise": cosines[-1] - cosines[0], "start": cosines[0], "no rise": 0.0}


def correlations(variances: Array, curvatures: dict[str, Array], seed: int) -> dict[str, float]:
    """Return means of correlations of variances with curvatures, (T, M) each, within and across iterations, and broken ones."""
    others = variances[:, np.random.default_rng(seed).permutation(variances.shape[1])]
    means = {}
    for how, kind in KINDS.items():
        for what, values in curvatures.items():
            within = {"within": variances, "others": others}
            for over, left in within.items():
                means[f"{over}, {what} ({how})"] = float(kind(left, values, np.ones_like(left)).mean())
            means[f"across, {what} ({how})"] = float(kind(variances.T, values.T, np.ones_like(values.T)).mean())
        means[f"across, deviation ({how})"] = float(kind(variances.T, np.sqrt(variances).T, np.ones_like(variances.T)).mean())
    return means


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each measure: its mean over the draws."""
    table = pd.DataFrame(results[0])
    common = {"width": settings["width"], "prediction": np.nan}
    return [common | {"quantity": name} | summary(table[name].to_numpy()) for name in table]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """The printed correlations for both readings of the curvature; that of the Hessian; and how alike features grow."""
    for width, part in table.groupby("width", sort=False):
        at = part.set_index("quantity")
        turned = at.assign(estimate=-at["estimate"])
        sizes = at.assign(estimate=at["estimate"].abs())
        for what, how in product(PROXIES, KINDS):
            where = f"networks of width {width:g}, {what} ({how})"
            own, control = (evidence(at.loc[f"{over}, {what} ({how})"].to_dict(), PRINTED) for over in ("within", "others"))
            yield WITHIN.claim(where, own, control)
            own, control = (evidence(sizes.loc[f"across, {one} ({how})"].to_dict(), NONE) for one in (what, "deviation"))
            yield ACROSS.claim(where, own, control)
        where = f"networks of width {width:g}"
        own, control = (evidence(turned.loc[f"{over}, {HESSIAN} (Spearman)"].to_dict(), -STRONG) for over in ("within", "others"))
        yield HESSIAN_LEARNED.claim(where, own, control)
        own, control = (evidence(turned.loc[name].to_dict(), -RISE) for name in ("rise", "no rise"))
        yield ALIKE.claim(where, own, control, {"mean |cos| at the start": float(at.loc["start", "estimate"])})
