"""DAPO's dynamic sampling: what it climbs, and what it costs.

Uniform groups are dropped or redrawn. The effect on the mean update and the cost in rollouts are simulated and compared with
exact laws. The controls keep groups that are all wrong, divide by B, or redraw the prompt.
"""

from functools import cache
from itertools import product

import numpy as np

import grpo_theory as gt
from grpo_theory.harness import check, run
from grpo_theory.theory import mixed_share
from simulations.gradient.groups import advantages_of
from simulations.statements import stated

DYNAMIC_SAMPLING = stated("dynamic sampling")
QUANTITIES = tuple(f"dynamic sampling/{name}" for name in ("redrawn", "noise", "rollouts", "dropped", "same prompt"))
POWERLESS = dict.fromkeys(
    ((QUANTITIES[4], f"sequence-shared (G = {size})") for size in (2, 4)),
    "the two schemes differ by 1% to 2% there, and the margin is 5%",
) | dict.fromkeys(
    ((one, "two-arms (G = 4)") for one in QUANTITIES[:3]),
    "few groups are all wrong there: keeping them changes 2%, and the margin is 5%",
)
PROBLEMS = {"two-arms": 1, "mixed": 2, "sequence-shared": 6, "lm-few-shot": 32}
"""Each with how many chunks it takes until its rows are decided; signals of single groups are weakest on the language model."""
ALONE = ("two-arms",)
"""Where there is one prompt, to redraw it and to redraw the group are the same."""
CHUNK_GROUPS = 1 << 17
STUBBORN, MOST_TRIES = 8, 1024
"""One in this many groups is redrawn at its own prompt, which takes long where nearly all groups are uniform."""
ESTIMATOR = "rloo"


def cases(quick):
    """Each problem with groups of 2 and of 4."""
    groups = {name: CHUNK_GROUPS >> 2 if quick else CHUNK_GROUPS * chunks for name, chunks in PROBLEMS.items()}
    common, where = {"batch_size": 4}, product(groups, (2, 4))
    return [{"problem": name, "group_size": size, "chunk_groups": groups[name], **common} for name, size in where]


@cache
def tables(problem, group_size):
    """Return the point, the outcomes' distribution functions, each a whole number higher, and <W, g>/||g||^2 by response."""
    problem = gt.gallery.problem(problem)
    mean = gt.gradient_mean(problem, problem.theta, ESTIMATOR, batch_size=1, group_size=group_size)
    point, direction = problem.at(problem.theta), problem.policy.logits(mean / (mean @ mean))
    laws = np.cumsum(point.outcome_probabilities, axis=1)[:, :-1]
    return point, (laws + np.arange(len(laws))[:, None]).ravel(), (point.logit_gradients * direction[:, None]).sum(axis=-1)


def draw(problem, prompts, group_size, rng):
    """Draw a group for each prompt (n,): what it adds along the plain mean update, relative to it, and its rewards (n, G)."""
    point, ends, slopes = tables(problem, group_size)
    places = np.searchsorted(ends, prompts[:, None] + rng.random((len(prompts), group_size)), side="right")
    outcomes = places - prompts[:, None] * (ends.size // len(point.rewards))
    rewards = point.rewards[prompts[:, None], outcomes]
    return (advantages_of(ESTIMATOR, rewards) * slopes[prompts[:, None], point.outcome_responses[outcomes]]).mean(axis=1), rewards


def until_mixed(problem, prompts, group_size, rng):
    """Return what groups add that are drawn again at the same prompt (n,) until they are mixed, twice as many at a time."""
    along, waiting, tries = np.empty(len(prompts)), np.arange(len(prompts)), 1
    while waiting.size:
        added, rewards = draw(problem, np.repeat(prompts[waiting], tries), group_size, rng)
        mixed = (np.ptp(rewards, axis=1) > 0.0).reshape(-1, tries)
        done, first = mixed.any(axis=1), mixed.argmax(axis=1)
        along[waiting[done]] = added.reshape(-1, tries)[done, first[done]]
        waiting, tries = waiting[~done], min(2 * tries, MOST_TRIES)
    return along


@run(chunk_groups=CHUNK_GROUPS)
def schemes(problem, group_size, batch_size, chunk_groups, rng):
    """Run each scheme, right and broken; return how many values there are, their sum and that of their squares."""
    weights = gt.gallery.problem(problem).bandit.prompt_weights
    prompts = rng.choice(np.arange(weights.size), chunk_groups, p=weights)
    along, rewards = draw(problem, prompts, group_size, rng)
    mixed, not_all_right = np.ptp(rewards, axis=1) > 0.0, rewards.min(axis=1) < 1.0
    added, left = np.where(mixed, along, 0.0).reshape(-1, batch_size).sum(axis=1), mixed.reshape(-1, batch_size).sum(axis=1)
    kept = [along[mixed], along[not_all_right]]
    waits = [np.diff(np.flatnonzero(one), prepend=-1).astype(np.float64) for one in (mixed, not_all_right)]
    same = until_mixed(problem, prompts[: chunk_groups // STUBBORN], group_size, rng)
    dropped = [added / np.maximum(left, 1), added / batch_size]
    found = [kept, [one**2 for one in kept], waits, dropped, [same, kept[0]]]
    sums = [[[values.size, values.sum(), (values**2).sum()] for values in pair] for pair in found]
    return {"sums": np.array([sums])}


def predict(problem, group_size, batch_size):
    """Return what derivations, section 23, says of each mean, from exact laws, and the error saved at equal rollouts."""
    problem = gt.gallery.problem(problem)
    law = gt.gradient_law(problem, problem.theta, ESTIMATOR, batch_size=1, group_size=group_size)
    mixed = mixed_share(problem.at(problem.theta).moments.value, group_size)
    share, g = float(law.prompt_weights @ mixed), law.mean / (law.mean @ law.mean)
    by_prompt = (problem.policy.logits(g) * law.mean_logit_gradients).sum(axis=1)
    second, dropped = float(law.variance_along(g[None])[0]) + 1.0, (1.0 - (1.0 - share) ** batch_size) / share
    means = (1.0 / share, second / share, 1.0 / share, dropped, float(law.prompt_weights @ (by_prompt / mixed)))
    return dict(zip(QUANTITIES, means, strict=True)), (1.0 / share - 1.0) * float(law.mean @ law.mean) / law.trace


@check(*stated(*QUANTITIES), of=schemes, cases=cases, broken={"broken": 1}, setting="{problem} (G = {group_size})")
def means(found, problem, group_size, batch_size, broken=0):
    """Means against exact predictions."""
    predicted, gain = predict(problem, group_size, batch_size)
    sides = {}
    for (name, exact), (n, total, squares) in zip(predicted.items(), found["sums"].sum(axis=0)[:, broken], strict=True):
        error = np.sqrt(max(squares / n - (total / n) ** 2, 0.0) / (n - 1.0))
        if name != QUANTITIES[4] or problem not in ALONE:
            sides[name] = (total / n, error, n), exact, {"error saved at equal rollouts": gain}
    return sides
