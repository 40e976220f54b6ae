"""U17, R5: which gradient each KL term estimates, exact.

In the reward and in the loss, on and off policy, means are compared with gradients of divergences. In one control responses are
drawn from another policy than the one that is meant, 1% of a step away. In the other the slope is the printed one.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.estimation.kl_term import KL_TERMS, KLTerm
from grpo_theory.evidence import Comparison
from grpo_theory.harness.study import Cell, Settings
from simulations.sequence.divergences import STEP, between, expected, gradient
from simulations.sequence.kl_targets import log_reference_of, off_policy_targets, on_policy_targets
from simulations.sequence.parts import composed, cosine, of_length
from simulations.statements import stated

U17 = stated("U17")
SIDES = {
    "value": stated("U17/value"),
    "printed slope": stated("U17/printed"),
    "slope": stated("U17/corrected"),
}
"""What is stated about the values and the slopes, by the quantity that is measured."""
R5 = stated("R5")
MEANS = {
    "k1 in reward": stated("R5/k1 in reward"),
    "k1 in loss": stated("R5/k1 in loss"),
    "k3 in loss, as printed": stated("U17/printed mean"),
    **{
        term: stated(f"R5/{term}")
        for term in (
            *("k2 in reward", "k3 in reward", "k2 in loss", "k3 in loss"),
            *("k1 in reward/off policy", "k1 in loss/off policy", "k2 in loss/off policy", "k3 in loss/off policy"),
        )
    },
}
"""What is stated about the means, by the term."""

PROBLEMS = ("kl-tabular", "kl-linear", "kl-sequence", "crowd")
AWAY, DRIFT, STRAY = 0.7, 0.5, 0.01
"""How far the policy is from the reference, and the one that sampled from it. The controls' draws come from a policy that is 1%
of a step of length 1 away from the one that is meant. What this does to a mean shows in the third digit."""
GROUP_SIZE = 2


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem; exact, so quick is no different."""
    return [Cell({"problem": name, "away": AWAY, "drift": DRIFT, "stray": STRAY}) for name in PROBLEMS]


def printed_slope(log_ratios, terms):
    """Fill in 1 - pi/reference, the slope of k3 as the paper prints it; log_ratios are of pi/reference."""
    for t in range(terms.shape[0]):
        for i in range(terms.shape[1]):
            terms[t, i] = 1.0 - np.exp(log_ratios[t, i])


PRINTED = KLTerm("k3 in loss, as printed", "loss", printed_slope)
TERMS = {**KL_TERMS, PRINTED.name: PRINTED}


def penalty_alone(problem: gt.Problem) -> gt.Problem:
    """Return the problem without rewards and with a penalty of strength 1: all that an estimate then shows is the KL term."""
    assert problem.kl is not None
    nothing = gt.Bandit(np.zeros((problem.bandit.n_prompts, problem.bandit.n_responses)), problem.bandit.prompt_weights)
    return gt.Problem(nothing, problem.policy, gt.KL(1.0, problem.kl.reference), problem.theta)


def estimated(problem: gt.Problem, term: KLTerm, theta: Array, behaviour: Array | None) -> Array:
    """Return the exact mean of what a KL term contributes to the estimate, as a gradient to descend, shape (d,).

    In the reward it is multiplied by the trajectory ratio, as the advantage is; in the loss by none, as trainers have it.
    """
    chosen = composed("reinforce", "trajectory" if term.place == "reward" else "none", kl=term)
    return -gt.gradient_mean(problem, theta, chosen, batch_size=1, group_size=GROUP_SIZE, behaviour=behaviour)


def slope_error(here: gt.Point, term: KLTerm) -> float:
    """Return the largest difference, over tokens, of a term's slope from the derivative of k3 in the token's log probability."""
    log_ratios = here.log_ratios_to_reference
    slopes = np.empty_like(log_ratios)
    term.fill(np.ascontiguousarray(log_ratios), slopes)
    stepped = log_ratios + 1j * STEP
    return float(np.abs(slopes - (np.exp(-stepped) + stepped).imag / STEP).max())


def value_error(problem: gt.Problem, here: gt.Point, sampler: gt.Point) -> float:
    """Return how far, in nats, the mean of k3 over responses of `sampler` is from KL(pi || reference)."""
    terms = np.empty_like(here.log_ratios_to_reference)
    KL_TERMS["k3 in reward"].fill(np.ascontiguousarray(here.log_ratios_to_reference), terms)
    mean = expected(problem, sampler, lambda logs: terms)(here.token_log_probabilities)
    return float(abs(mean - between(problem, log_reference_of(problem))(here.token_log_probabilities)))


def compare(settings: Settings, rng: np.random.Generator) -> Iterator[Comparison | dict[str, Any]]:
    """Yield discrepancies relative to the gradient of KL(pi || reference), and how near to it each mean is.

    The control draws from another policy, or has the printed slope.
    """
    name = settings["problem"]
    problem = penalty_alone(gt.gallery.problem(name))
    steps = rng.normal(size=(3, problem.policy.dimension))
    away, drift, stray = (of_length(settings[part], step) for part, step in zip(("away", "drift", "stray"), steps, strict=True))
    here, then, at_stray = problem.at(away), problem.at(away + drift), problem.at(away + stray)
    wanted = gradient(problem, between(problem, log_reference_of(problem)), away)
    scale = float(np.linalg.norm(wanted))
    samplers = {
        "on": (None, away + stray, on_policy_targets(problem, here)),
        "off": (then.theta, then.theta + stray, off_policy_targets(problem, here, then)),
    }
    for policy, (behaviour, astray, targets) in samplers.items():
        for term, target in targets.items():
            mean, wrong = (estimated(problem, TERMS[term], away, sampled) for sampled in (behaviour, astray))
            gap, broken, from_reverse = (
                float(np.linalg.norm(one - other)) / scale for one, other in ((mean, target), (wrong, target), (mean, wanted))
            )
            along = cosine(mean, wanted) if float(np.linalg.norm(mean)) > 1e-10 * scale else 0.0
            facts = {"distance from the gradient of KL(pi || reference)": from_reverse, "cosine with it": along}
            yield MEANS[f"{term}/off policy" if policy == "off" else term].compare(name, gap, 0.0, broken=broken, facts=facts)
            row = {"problem": name, "term": term, "policy": policy, "quantity": "gradient", "estimate": gap}
            yield row | {"from_reverse": from_reverse, "cosine": along}
    for side, (gap, broken) in {
        "value": (value_error(problem, here, here), value_error(problem, here, at_stray)),
        "slope": (slope_error(here, TERMS["k3 in loss"]), slope_error(at_stray, PRINTED)),
        "printed slope": (slope_error(here, PRINTED), slope_error(at_stray, PRINTED)),
    }.items():
        yield SIDES[side].compare(name, gap, 0.0, broken=broken)
