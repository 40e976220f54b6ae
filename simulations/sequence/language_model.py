"""T3, T6 to T8 on SmolLM2: what updates estimate after 1, 4 and 16 updates on one rollout, exact.

The policies are its head before and after the updates; answers have one token, or several. In the controls the trajectory's ratio
is left out, or updates are turned or 5% too long. Or responses are the old policy's instead of the current one's.
"""

import numpy as np
from scipy.optimize import brentq

import grpo_theory as gt
from grpo_theory.estimation import CLIPS, find
from grpo_theory.harness import check, run
from simulations.sequence.parts import NOTICEABLE, composed, cosine, turned
from simulations.statements import stated

ONE_TOKEN, SEVERAL = ("lm-zero-shot", "lm-few-shot", "lm-instruct"), "lm-answers"
"""The problems whose answers have one token, and that whose answers have several."""
UPDATES, QUICK_UPDATES = (1, 2, 3, 4, 6, 8, 11, 16), (1, 4)
JUDGED = (1, 4, 16)
"""Claims are about these numbers of updates; the others are for curves."""
GROUP_SIZE, BATCH_SIZE = 8, 32
WIDTH = 0.2
"""Of every clip, as practised."""
FIRST = 1e-3
"""KL(before || after) of the first update, in nats a response: what trainers watch stays between about 1e-4 and 1e-2."""


def leave_one_out(ratio, clip="none"):
    """Return leave-one-out advantages with a ratio and a clip."""
    return composed("rloo", ratio, CLIPS[clip].with_widths(WIDTH, WIDTH))


UPDATE = leave_one_out("token", "by sign")
"""What the policy is updated with: token ratios clipped by the advantage's sign."""


def estimators(horizon):
    """Return the estimators that are compared; of one token the token's ratio is the trajectory's."""
    ratios = ("none", "trajectory", "token", "geometric")[: None if horizon > 1 else 2]
    clipped = {"trajectory, clipped": leave_one_out("trajectory", "upper only"), "token, clipped": UPDATE}
    return {ratio: leave_one_out(ratio) for ratio in ratios} | clipped | {"tic": find("tic_grpo")}


def divergence(problem, before, after):
    """Return E KL(pi_before || pi_after) of whole responses, in nats."""
    then, now = (problem.policy.log_probabilities(theta) for theta in (before, after))
    return float(problem.bandit.prompt_weights @ (np.exp(then) * (then - now)).sum(axis=1))


def checkpoints(problem, update, counts, group_size):
    """Return the policy after each of some numbers of expected updates, all on responses of the problem's own policy.

    The step size is constant, and such that the first update moves the policy by `FIRST` nats.
    """
    start = np.array(problem.theta)
    sizes: dict = {"batch_size": 1, "group_size": group_size, "behaviour": start}
    first = gt.gradient_mean(problem, start, update, **sizes)
    unit = first / np.linalg.norm(first)

    def excess(log_length):
        return float(np.log(divergence(problem, start, start + np.exp(log_length) * unit) / FIRST))

    # About the square root, because the divergence grows as the square of the length.
    guess = -0.5 * excess(0.0)
    step = np.exp(brentq(excess, guess - 3.0, guess + 3.0, xtol=1e-3)) / np.linalg.norm(first)
    policies, theta = {}, start
    for count in range(1, max(counts) + 1):
        theta = theta + step * gt.gradient_mean(problem, theta, update, **sizes)
        if count in counts:
            policies[count] = theta
    return policies


def policies(problem, old, now):
    """Return how far the policies are apart: ratios of tokens and of responses, under the old policy."""
    paths, weights = problem.policy.paths, problem.bandit.prompt_weights[:, None]
    p = weights * old.probabilities
    log_ratios = now.token_log_probabilities - old.token_log_probabilities
    ratios = np.exp(paths.gather(log_ratios))
    per_token = (p / (p @ paths.lengths).sum())[:, :, None] * paths.taken
    right = (problem.bandit.mean_reward > old.moments.value[:, None])[:, :, None]
    products = now.token_products
    together, apart = products.sum(axis=(-2, -1)), np.einsum("mktt->mk", products)
    shares = {"cross terms": weights * now.probabilities, "cross terms, old responses": p}
    return {
        "nats": divergence(problem, old.theta, now.theta),
        "effective sample share": 1.0 / float((p * np.exp(paths.along(log_ratios)) ** 2).sum()),
        "tokens clipped": float((per_token * np.where(right, ratios > 1.0 + WIDTH, ratios < 1.0 - WIDTH)).sum()),
        # E||sum_t w_t||^2 / E sum_t ||w_t||^2 less 1, for responses drawn by either policy.
        **{name: float((share * together).sum() / (share * apart).sum() - 1.0) for name, share in shares.items()},
    }


def updates(problem, old, now):
    """Return mean updates' distances from gradients, cosines with the current one, and errors, relative to its length."""
    gradient = now.moments.gradient
    scale = float(np.linalg.norm(gradient))

    def compared(mean, variance):
        bias, stale = (float(np.linalg.norm(mean - one)) / scale for one in (gradient, old.moments.gradient))
        error = variance / scale**2 + bias**2
        return {"to current": bias, "to old": stale, "cosine": cosine(mean, gradient), "error": error}

    found, horizon = {}, problem.policy.paths.horizon
    for name, estimator in estimators(horizon).items():
        law = gt.exact.law_between(now, old, estimator, batch_size=BATCH_SIZE, group_size=GROUP_SIZE)
        factor = float(horizon) if name == "tic" else 1.0
        found[name] = compared(factor * law.mean, factor**2 * law.trace)
        if name == "none":
            found["turned"] = compared(turned(law.mean, gradient), law.trace)
        if name == "trajectory":
            found["too long"] = compared(1.05 * law.mean, 1.05**2 * law.trace)
    return found


def cases(quick):
    """Each way of asking and the longer answers; quick looks at fewer, after fewer updates."""
    problems = ("lm-few-shot", SEVERAL) if quick else (*ONE_TOKEN, SEVERAL)
    return [{"problem": name, "counts": list(QUICK_UPDATES if quick else UPDATES)} for name in problems]


@run()
def updated(problem, counts):
    """Return what is measured at every checkpoint."""
    found = gt.gallery.problem(problem)
    old, measured = found.at(found.theta), {}
    for count, theta in checkpoints(found, UPDATE, counts, GROUP_SIZE).items():
        now = found.at(theta)
        measured[str(count)] = {"policy": policies(found, old, now)} | updates(found, old, now)
    return measured


@check(
    *stated("T7/language model", "T7/language model, TIC", "T8/language model"),
    *stated("T3/language model", "T6/language model", "T7/language model, error"),
    of=updated,
    cases=lambda quick: [{**one, "after": count} for one in cases(quick) for count in one["counts"] if count in JUDGED],
    broken={"wrong": True},
    setting="{problem}, {after} updates",
)
def compared(found, problem, after, wrong=False):
    """What is stated after so many updates; of several tokens also on cross terms, the old gradient, and errors."""
    at, policy = found[str(after)], found[str(after)]["policy"]
    sides = {
        "T7/language model": (at["none" if wrong else "trajectory"]["to current"], 0.0),
        "T7/language model, TIC": (at["none" if wrong else "tic"]["to current"], 0.0),
        "T8/language model": (1.0 - at["turned" if wrong else "none"]["cosine"], NOTICEABLE),
    }
    if problem == SEVERAL:
        token = at["trajectory" if wrong else "token"]
        sides |= {
            "T3/language model": (policy["cross terms, old responses" if wrong else "cross terms"], 0.0),
            "T6/language model": (token["to old"] - token["to current"], 0.0),
            "T7/language model, error": (at["too long" if wrong else "trajectory"]["error"] - at["token"]["error"], 0.0),
        }
    facts = {name: policy[name][0] for name in ("nats", "effective sample share", "tokens clipped")}
    return {name: (*both, facts) for name, both in sides.items()}
