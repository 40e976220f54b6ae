"""N9, N10: variance against curvature, and how alike representations become, where features are learned.  Networks of two layers.

All values are exact, along ascent by exact gradients. Many draws of inputs and starts are the sample. The paper's curvature is
read in two ways, as for SmolLM2's head. The first is E||W||^2, the trace of the policy's Fisher matrix; the second is E A^2
||W||^2, that of the loss. Beside them stands the norm of the Hessian of J_i, with the second derivatives of the logits.

A prompt's logits depend on the first layer through a = W1 x. They bend only where a unit and what it feeds move together. Take
the slopes g of J_i in its logits. Second derivatives exist along the H units' inputs and along the H weights of g's combination
of the outputs. They also exist along h, for each other combination. Along all directions that are orthogonal to these 2 H + K - 1
it has none. (docs/derivations.md, section 5.1)

Within an iteration the control has the variances of other prompts. Over iterations it has the standard deviation in place of the
curvature. For representations it has features that stay.
"""

from itertools import product

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence.reading import mean_of
from grpo_theory.harness import check, run
from grpo_theory.problem.two_layer import ACTIVATIONS, split_layers
from simulations.normalisation.correlations import KINDS
from simulations.normalisation.measured_statements import WITHIN
from simulations.normalisation.networks import PROMPTS, ascent, network_problem, pair_cosines
from simulations.seeds import seed_of
from simulations.statements import stated

ACROSS, HESSIAN_LEARNED, ALIKE = stated("N9/across, learned features", "N9/Hessian, learned features", "N10/learned features")

WIDTHS, QUICK_WIDTHS = (4, 16, 64), (16,)
UPDATES, STRIDE = (0, 20, 40, 80, 160), 0.4
"""As far as in the study of the phases, in a quarter of its updates."""
DRAWS, QUICK_DRAWS = 48, 8
"""Enough for the limits of few runs to distinguish the printed correlation from none."""
PROXIES, HESSIAN = {"Fisher, trace": "score_squared_norm", "weighted, trace": "oracle_squared_norm"}, "Hessian, norm"
"""Of the proxies their names among the moments."""
PRINTED, NONE, STRONG = 0.34, 0.1, 0.9
"""A correlation below a tenth is called none, as for SmolLM2's head."""
RISE = 0.02
"""A fifth of what inputs have, 0.088: less would not be seen in a histogram."""


def cases(quick):
    """One case for each width."""
    common = {"updates": list(UPDATES), "draws": QUICK_DRAWS if quick else DRAWS}
    return [{"width": width, **common} for width in (QUICK_WIDTHS if quick else WIDTHS)]


def readings(quick):
    """One case for each width, reading of the curvature and correlation."""
    return [case | {"what": what, "how": how} for case in cases(quick) for what, how in product(PROXIES, KINDS)]


@run()
def measured(width, updates, draws, rng):
    """Return variances and curvatures along the ascent on each draw, (draws, T, M), and mean |cos| of hidden units (draws, T)."""
    seeds = seed_of(rng).generate_state(draws).tolist()
    found = [course(network_problem(width, seed), updates) for seed in seeds]
    for seed, one in zip(seeds, found, strict=True):
        one["others"] = np.array(one["variance"])[:, np.random.default_rng(seed).permutation(PROMPTS)]
    return {name: [one[name] for one in found] for name in found[0]}


def course(problem, updates):
    """Return what is measured on one draw after these numbers of updates."""
    places = [place for n, place in enumerate(ascent(problem, 0.0, updates[-1], STRIDE)) if n in updates]
    moments = [gt.moments(problem, place.theta) for place in places]
    units = [problem.policy.logit_map.hidden(place.theta) for place in places]
    found = {"variance": [at.reward_variance for at in moments], "cosine": [np.abs(pair_cosines(one)).mean() for one in units]}
    found |= {what: [getattr(at, name) for at in moments] for what, name in PROXIES.items()}
    return found | {HESSIAN: [hessian_norms(problem, place) for place in places]}


def within(variances, curvatures, how):
    """Return the correlation over the prompts of an iteration, averaged over iterations, on each draw."""
    return KINDS[how](variances, curvatures, np.ones_like(variances)).mean(axis=1)


@check(WITHIN, ACROSS, of=measured, cases=readings, broken={"wrong": True}, setting="networks of width {width}, {what} ({how})")
def proxies(found, what, how, wrong=False):
    """The printed correlations; the wrong ones are of other prompts' variances, and of the deviation in place of curvature."""
    variances, curvatures = found["variance"], found[what]
    over_prompts = within(found["others"] if wrong else variances, curvatures, how)
    turned = np.swapaxes(variances, 1, 2), np.swapaxes(np.sqrt(variances) if wrong else curvatures, 1, 2)
    mean, *error = mean_of(within(*turned, how))
    return {WITHIN.id: (mean_of(over_prompts), PRINTED), ACROSS.id: ((abs(mean), *error), NONE)}


@check(HESSIAN_LEARNED, ALIKE, of=measured, cases=cases, broken={"wrong": True}, setting="networks of width {width}")
def hessian_and_units(found, wrong=False):
    """The rank correlation with the Hessian's norm, and how alike features grow; the wrong ones stay."""
    cosines = found["cosine"]
    ranks = within(found["others" if wrong else "variance"], found[HESSIAN], "Spearman")
    rise = cosines[:, 0 if wrong else -1] - cosines[:, 0]
    facts = {"mean |cos| at the start": cosines[:, 0].mean()}
    return {HESSIAN_LEARNED.id: (mean_of(-ranks), -STRONG), ALIKE.id: (mean_of(-rise), -RISE, facts)}


def hessian_norms(problem, place):
    """Return ||Hess J_i|| of each prompt, shape (M,), at a place on the way of a network."""
    return np.abs(np.linalg.eigvalsh(hessians(problem, place))).max(axis=1)


def hessians(problem, place):
    """Return Hess J_i in an orthonormal basis of the directions where it is not 0, shape ``(M, 2 H + K - 1, 2 H + K - 1)``."""
    network = problem.policy.logit_map
    scale, act, width = network.scale, ACTIVATIONS[network.activation], network.width
    hidden, second = network.hidden(place.theta), split_layers(network, place.theta)[1]
    lengths = np.linalg.norm(network.inputs, axis=1)[:, None]
    slopes = place.now.logit_gradients
    rest = complements(slopes)
    sizes = np.linalg.norm(slopes, axis=1, keepdims=True)
    units = scale * lengths[:, None] * second * act.slope(hidden)[:, None]
    along = scale * (slopes / sizes)[:, :, None] * hidden[:, None]
    others = scale * np.linalg.norm(hidden, axis=1)[:, None, None] * rest
    tangent = np.concatenate([units, along, others], axis=2)
    whole = np.swapaxes(tangent, 1, 2) @ logit_hessians(problem, place) @ tangent
    first, mixed = np.arange(width), width + np.arange(width)
    whole[:, first, first] += scale * lengths**2 * (slopes @ second) * act.bend(hidden)
    for rows, columns in ((first, mixed), (mixed, first)):
        whole[:, rows, columns] += scale * sizes * lengths * act.slope(hidden)
    return whole


def logit_hessians(problem, place):
    """Return the second derivatives of J_i in its logits, shape (M, K, K): E (r - V) [(e - pi)(e - pi)' - (diag pi - pi pi')]."""
    pi = np.exp(problem.policy.log_probabilities(place.theta))
    slopes = place.now.logit_gradients
    across = pi[:, :, None] * slopes[:, None] + slopes[:, :, None] * pi[:, None]
    return slopes[:, :, None] * np.eye(pi.shape[1]) - across


def complements(vectors):
    """Return an orthonormal basis of what is orthogonal to each vector (M, K), shape (M, K, K - 1)."""
    units = np.broadcast_to(np.eye(vectors.shape[1]), (*vectors.shape, vectors.shape[1]))
    return np.linalg.qr(np.concatenate([vectors[:, :, None], units], axis=2))[0][:, :, 1:]
