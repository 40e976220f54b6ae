"""Hidden biases of group-based methods (arXiv 2601.05002): shared prefixes, and what Adam makes of scale and clip.

In the controls weights are others, a penalty is in the loss, a correction for the start is wrong, or momentum is missing.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.harness import check
from simulations.literature.drawn import GRADED, POLICIES, over, world
from simulations.sequence.divergences import gradient
from simulations.sequence.parts import composed
from simulations.statements import stated

DRAWS = over(draw=range(4))


def prefix_parts(rng, whole, by_length):
    """Return how the surrogate moves with tokens of a shared prefix, W_agg of a group, and the prefix's score times that.

    A group of six on a tree. All of its responses have the first token 1 if `whole`, on policy. Else a few have, at another
    policy than that which sampled. Ratios are of tokens, and there is no clip.
    """
    problem = world("tree", rng, GRADED, prompts=1)
    paths, then = problem.policy.paths, problem.at()
    theta = problem.theta + (0.0 if whole else 0.3) * rng.normal(size=problem.theta.size)
    group = rng.integers(1 if whole else 0, 4, size=6)
    advantages = rng.normal(size=6)
    advantages -= advantages.mean()
    alpha = 1.0 / paths.lengths[group] if by_length else 1.0
    sharing, edge = group > 0, paths.edges[1, 0]
    old = then.token_log_probabilities[0, edge]
    ratio = np.exp(problem.at(theta).token_log_probabilities[0, edge] - old)
    moved = gradient(problem, lambda logs: (alpha * advantages)[sharing].sum() * np.exp(logs[0, edge] - old), theta)
    return moved, (alpha * ratio * advantages)[sharing].sum(), gradient(problem, lambda logs: logs[0, edge], theta)


@check(
    *stated("hidden-biases/proposition 1", "hidden-biases/cancels"),
    cases=DRAWS,
    broken={"exchanged": True},
    setting="draw {draw}",
)
def prefix(rng, exchanged=False):
    """The aggregate times the prefix's score; and its sum with uniform weights, where the whole group shares the prefix."""
    seed = rng.integers(2**62)
    moved, _, score = prefix_parts(np.random.default_rng(seed), False, True)
    aggregate = prefix_parts(np.random.default_rng(seed), False, not exchanged)[1]
    shared, _, unit = prefix_parts(rng, True, exchanged)
    return {"hidden-biases/proposition 1": (moved, aggregate * score), "hidden-biases/cancels": (shared, 0.0 * unit)}


def adam(gradient_at, theta, steps, betas=(0.9, 0.999), rate=0.05):
    """Return the points of an ascent by Adam, without its epsilon, shape (steps + 1, d)."""
    optimiser, moments, path = gt.Adam(betas, eps=1e-300), np.zeros((2, 1, theta.size)), [theta]
    for count in range(1, steps + 1):
        at = path[-1][None].copy()
        optimiser.move(at, gradient_at(path[-1], count)[None], moments, optimiser.settings, rate, count)
        path.append(at[0])
    return np.array(path)


def mean_path(drawn, scale, penalty):
    """Return the path of Adam along mean updates of Dr. GRPO, 20 steps, with rewards times a scale."""
    bandit = gt.Bandit.from_law(drawn.bandit.values * scale, drawn.bandit.probabilities, drawn.bandit.prompt_weights)
    kl = gt.KL(penalty, np.full((bandit.n_prompts, bandit.n_responses), 0.25)) if penalty else None
    problem = gt.Problem(bandit, drawn.policy, kl=kl, theta=drawn.theta)
    kernel = composed("dr_grpo", "none", kl="k2 in loss") if penalty else "dr_grpo"
    return adam(lambda at, _: gt.gradient_mean(problem, at, kernel, batch_size=1, group_size=4), drawn.theta, 20)


@check(stated("hidden-biases/proposition 2"), cases=over(policy=POLICIES), broken={"penalty": 0.1})
def scaling(policy, rng, penalty=0.0):
    """Both paths, rewards a hundred times as large in one; in the broken case with a penalty in the loss."""
    drawn = world(policy, rng, GRADED)
    return mean_path(drawn, 1.0, penalty), mean_path(drawn, 100.0, penalty)


@check(
    *stated("hidden-biases/equation 5", "hidden-biases/equation 5, mended"),
    cases=DRAWS,
    broken={"late": 1},
    sound={"printed": False},
    setting="draw {draw}",
)
def moments(rng, late=0, printed=True, beta=0.9):
    """The mean of random gradients at steps 2 to 12: by the printed recursion, by the mended one, and freed of its start."""
    gradients, mean, found, mended, meant = rng.normal(size=(12, 3)) + 1.0, np.zeros(3), [], [], []
    for t, one in enumerate(gradients, 1):
        if t > 1:
            ends = [1.0 - beta ** (t - 1 + late), 1.0 - beta ** (t + late)]
            found.append(beta * mean / ends[0 if printed else 1] + (1.0 - beta) * one / ends[1])
            mended.append((beta * mean + (1.0 - beta) * one) / ends[1])
            meant.append((beta * mean + (1.0 - beta) * one) / (1.0 - beta**t))
        mean = beta * mean + (1.0 - beta) * one
    return {"hidden-biases/equation 5": (found, meant), "hidden-biases/equation 5, mended": (mended, meant)}


@check(
    stated("hidden-biases/equation 36"),
    cases=over(steps=(3, 10, 100), betas=((0.9, 0.95), (0.9, 0.999))),
    broken={"saturated": True},
    setting="T = {steps}, betas {betas}",
)
def overshoot(steps, betas, rng, saturated=False):
    """Steps of Adam after gradients have stopped, over the last before; in the broken case as printed for large T."""
    gradients = rng.normal(size=(steps, 4))
    gradients[steps - 1 :] = 0.0
    path = adam(lambda _, count: gradients[count - 1] if count < steps else np.zeros(4), np.zeros(4), steps + 5, betas)
    taken = np.linalg.norm(np.diff(path, axis=0), axis=1)
    k, (first, second) = np.arange(6), betas
    told = (first / np.sqrt(second)) ** (k + 1)
    if not saturated:
        told *= (1.0 - first ** (steps - 1)) / (1.0 - first ** (steps + k))
        told *= np.sqrt((1.0 - second ** (steps + k)) / (1.0 - second ** (steps - 1)))
    return taken[steps - 1 :] / taken[steps - 2], told


def ratios_beyond(problem, response, sign, betas):
    """Return the ratio of a response once it has left 1 +- 0.2 and its gradient has ended, over 30 steps of Adam."""
    start = problem.at().probabilities[0, response]
    ended: list[float] = []

    def ratio(theta):
        return problem.at(theta).probabilities[0, response] / start

    def gradient_at(theta, count):
        if ended or sign * (ratio(theta) - 1.0) > 0.2:
            ended.append(count)
            return np.zeros(theta.size)
        return sign * ratio(theta) * problem.policy.scores(theta)[0, response]

    path = adam(gradient_at, problem.theta, 60, betas, rate=0.1)
    return np.array([ratio(theta) for theta in path[ended[0] - 1 : ended[0] + 30]])


@check(
    *stated("hidden-biases/proposition 3", "hidden-biases/negative advantage"),
    cases=over(policy=POLICIES, draw=range(8)),
    broken={"betas": (0.0, 0.999)},
    sound={"positive": -1.0},
    setting="{policy}, draw {draw}",
)
def beyond(policy, rng, betas=(0.9, 0.999), positive=1.0):
    """The smallest step away from 1 of the ratio of the third likeliest response, whose advantage is 1, or -1."""
    problem = world(policy, rng, prompts=1)
    response = int(problem.at().probabilities[0].argsort()[1])
    signs = {"hidden-biases/proposition 3": positive, "hidden-biases/negative advantage": -1.0}
    return {name: (0.0, (sign * np.diff(ratios_beyond(problem, response, sign, betas))).min()) for name, sign in signs.items()}
