"""U17, R5: which gradient each KL term estimates, exact.

In the reward and in the loss, on and off policy, means are compared with gradients of divergences. In one control responses are
drawn from another policy than the one that is meant, 1% of a step away. In the other the slope is the printed one.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.estimation.parts import KL_TERMS, KLTerm
from grpo_theory.harness import check
from simulations.sequence.divergences import STEP, at_held_prefixes, between, expected, gradient
from simulations.sequence.parts import composed, cosine, of_length
from simulations.statements import stated

U17, R5 = stated("U17", "R5")

PROBLEMS = ("kl-tabular", "kl-linear", "kl-sequence", "crowd")
SETTINGS = {"away": 0.7, "drift": 0.5, "stray": 0.01}
"""How far the policy is from the reference, and the one that sampled from it. The controls' draws come from a policy that is 1%
of a step of length 1 away from the one that is meant. What this does to a mean shows in the third digit."""


def printed_slope(log_ratios, terms):
    """Fill in 1 - pi/reference, the slope of k3 as the paper prints it; log_ratios are of pi/reference."""
    for t in range(terms.shape[0]):
        for i in range(terms.shape[1]):
            terms[t, i] = 1.0 - np.exp(log_ratios[t, i])


PRINTED = KLTerm("k3 in loss, as printed", "loss", printed_slope)
TERMS = {**KL_TERMS, PRINTED.name: PRINTED}


def penalty_alone(problem):
    """Return the problem without rewards and with a penalty of strength 1: all that an estimate then shows is the KL term."""
    nothing = gt.Bandit(np.zeros((problem.bandit.n_prompts, problem.bandit.n_responses)), problem.bandit.prompt_weights)
    return gt.Problem(nothing, problem.policy, gt.KL(1.0, problem.kl.reference), problem.theta)


def targets(problem, here, sampler):
    """Return what each term is said to estimate (docs/derivations.md, section 19), of own responses or another policy's."""
    log_reference, then = problem.log_reference, sampler.token_log_probabilities
    paths, weights = problem.policy.paths, problem.bandit.prompt_weights

    def slope(divergence):
        return gradient(problem, divergence, here.theta)

    def k2(logs):
        return 0.5 * (logs - log_reference) ** 2

    def moving(logs):
        return weights @ (np.exp(paths.along(logs)) * paths.along(k2(then))).sum(axis=1)

    reverse = slope(between(problem, log_reference))
    if sampler is not here:
        return {
            "k1 in reward/off policy": reverse - slope(between(problem, then)),
            "k1 in loss/off policy": slope(expected(problem, sampler, lambda logs: logs)),
            "k2 in loss/off policy": slope(expected(problem, sampler, k2)),
            "k3 in loss/off policy": slope(expected(problem, sampler, lambda logs: np.exp(log_reference - logs) + logs)),
        }
    forward = slope(at_held_prefixes(problem, here, lambda logs: np.exp(log_reference) * (log_reference - logs)))
    return {
        "k1 in reward": reverse,
        "k2 in reward": slope(moving),
        "k3 in reward": reverse - forward,
        "k1 in loss": np.zeros_like(reverse),
        "k2 in loss": slope(at_held_prefixes(problem, here, lambda logs: np.exp(logs) * (logs - log_reference))),
        "k3 in loss": forward,
        PRINTED.name: forward,
    }


def estimated(problem, term, theta, behaviour):
    """Return the exact mean of what a KL term contributes to the estimate, as a gradient to descend, shape (d,).

    In the reward it is multiplied by the trajectory ratio, as the advantage is; in the loss by none, as trainers have it.
    """
    chosen = composed("reinforce", "trajectory" if term.place == "reward" else "none", kl=term)
    return -gt.gradient_mean(problem, theta, chosen, batch_size=1, group_size=2, behaviour=behaviour)


def filled(term, point):
    """Return a term's values at the log ratios of a policy to the reference."""
    terms = np.empty_like(point.log_ratios_to_reference)
    term.fill(np.ascontiguousarray(point.log_ratios_to_reference), terms)
    return terms


@check(
    *stated("U17/value", "U17/corrected", "U17/printed", "U17/printed mean"),
    *stated("R5/k1 in reward", "R5/k1 in loss", "R5/k2 in reward", "R5/k3 in reward", "R5/k2 in loss", "R5/k3 in loss"),
    *stated(*(f"R5/{term}/off policy" for term in ("k1 in reward", "k1 in loss", "k2 in loss", "k3 in loss"))),
    cases=[{"problem": name, **SETTINGS} for name in PROBLEMS],
    broken={"astray": True, "slope": PRINTED},
    setting="{problem}",
)
def terms(problem, away, drift, stray, rng, astray=False, slope=KL_TERMS["k3 in loss"]):
    """Discrepancies relative to the gradient of KL(pi || reference), and how near to it each mean is; of a slope over tokens."""
    alone = penalty_alone(gt.gallery.problem(problem))
    steps = rng.normal(size=(3, alone.policy.dimension))
    theta, by, off = (of_length(length, step) for length, step in zip((away, drift, stray), steps, strict=True))
    here, then, drawn = alone.at(theta), alone.at(theta + by), alone.at(theta + off if astray else theta)
    kl = between(alone, alone.log_reference)
    wanted = gradient(alone, kl, theta)
    scale, sides = np.linalg.norm(wanted), {}
    for sampler in (here, then):
        for name, target in targets(alone, here, sampler).items():
            behaviour = sampler.theta + off if astray else None if sampler is here else sampler.theta
            mean = estimated(alone, TERMS[name.removesuffix("/off policy")], theta, behaviour)
            facts = {
                "distance from the gradient of KL(pi || reference)": np.linalg.norm(mean - wanted) / scale,
                "cosine with it": cosine(mean, wanted) if np.linalg.norm(mean) > 1e-10 * scale else 0.0,
            }
            key = "U17/printed mean" if name == PRINTED.name else f"R5/{name}"
            sides[key] = (np.linalg.norm(mean - target) / scale, 0.0, facts)
    # The value of k3, a mean over responses, is in nats; its slope is the derivative in a token's log probability.
    values = filled(KL_TERMS["k3 in reward"], here)
    mean = expected(alone, drawn, lambda logs: values)(here.token_log_probabilities)
    stepped = drawn.log_ratios_to_reference + 1j * STEP
    right = (np.exp(-stepped) + stepped).imag / STEP
    return sides | {
        "U17/value": (abs(mean - kl(here.token_log_probabilities)), 0.0),
        "U17/corrected": (np.abs(filled(slope, drawn) - right).max(), 0.0),
        "U17/printed": (np.abs(filled(PRINTED, drawn) - right).max(), 0.0),
    }
