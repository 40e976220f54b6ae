"""P4: groups that stop by their own rewards, in whole runs at an equal number of responses.

Groups that grow until they are mixed, and successive halving, are compared with groups of one size. The worlds are those of the
study `allocation`, whose rules set sizes before they sample, and their prompts are drawn anew many times. Every update spends 128
responses. Each rule has the best of a grid of constant steps, one for all draws, and limits count draws and this choice. In the
controls the rule's runs are stopped at a quarter of the responses, or have none.

The compiled trainer has no groups whose size depends on their own rewards. So training is written here, many runs side by side.
It has leave-one-out estimates and plain ascent, for policies of one token with logits that are linear in the parameters.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from grpo_theory.evidence.reading import evidence
from grpo_theory.exact import objective
from grpo_theory.harness import check, run
from simulations.best_rate import lead
from simulations.runs.allocation import BATCH, CHECKPOINTS, GROUP, TITLES, WORLDS, rates_of
from simulations.seeds import child_seed, seed_of
from simulations.statements import stated

STATED = {"first mixed": "allocation/stopped, whole runs", "halving": "allocation/halving, whole runs"}
DRAWS, QUICK_DRAWS, RUNS = 128, 4, 2
"""Draws of the prompts, and runs of each."""
SPENT = BATCH * GROUP
"""The responses of an update, whatever the rule."""
MOST, LEAST = 16, 2
"""Responses of a group that stops when it is mixed: twice the usual number, and what a mixed group needs."""
HALVED_FROM, ROUNDS = 4, 2
"""Of 16 prompts with 4 responses 8 go on to 8, and 4 of these to 16: that is 128 responses, too."""


class Rule(NamedTuple):
    """How long groups grow.

    Attributes
    ----------
    groups, most : int
        The groups of an update at most, B, and the responses of a group at most, U.
    sizes : callable
        ``sizes(rewards)``: how many responses each group takes, integers (..., B), from the rewards (..., B, U) that it would see
        one by one.  It may not look beyond what it takes.
    """

    groups: int
    most: int
    sizes: Callable


def first_mixed_sizes(rewards):
    """Each group stops when it has seen both rewards; prompt after prompt, until `SPENT` responses are spent."""
    other = rewards != rewards[..., :1]
    wanted = np.where(other.any(axis=-1), other.argmax(axis=-1) + 1, rewards.shape[-1])
    before = wanted.cumsum(axis=-1) - wanted
    return np.clip(SPENT - before, 0, wanted)


def halved_sizes(rewards):
    """Successive halving: the half of the groups whose share of right responses is nearest to a half doubles, again and again."""
    sizes = np.full(rewards.shape[:-1], HALVED_FROM)
    for played in range(ROUNDS):
        size = HALVED_FROM << played
        score = np.where(sizes == size, np.abs(rewards[..., :size].mean(axis=-1) - 0.5), np.inf)
        going_on = score.argsort(axis=-1, kind="stable")[..., : rewards.shape[-2] >> (played + 1)]
        np.put_along_axis(sizes, going_on, 2 * size, axis=-1)
    return sizes


RULES = {
    "equal": Rule(BATCH, GROUP, lambda rewards: np.full(rewards.shape[:-1], rewards.shape[-1])),
    "first mixed": Rule(SPENT // LEAST, MOST, first_mixed_sizes),
    "halving": Rule(BATCH, HALVED_FROM << ROUNDS, halved_sizes),
}


def logit_gradients(probabilities, right, rule, rng):
    """Return estimates in the logits, shape (S, R, M, K): means over the groups begun of 1/n sum_i A_i e_i, A leave-one-out.

    Advantages add up to 0 in each group, so that the mean score takes no part.

    Parameters
    ----------
    probabilities : ndarray, shape (S, R, M, K)
        Of the policies of R runs at each of S steps. A run has the same random words at all steps.
    right : ndarray of bool, shape (M, K)
        Answers of reward 1.
    rule : Rule
    rng : Generator
    """
    steps, runs, n_prompts, n_answers = probabilities.shape
    prompts = rng.integers(n_prompts, size=(runs, rule.groups))
    cumulative = probabilities.cumsum(axis=-1)[:, np.arange(runs)[:, None], prompts]
    drawn, answers = rng.random((runs, rule.groups, rule.most)), np.zeros((steps, runs, rule.groups, rule.most), dtype=np.int8)
    for answer in range(n_answers - 1):
        answers += drawn > cumulative[..., answer, None]
    rewards = right[prompts[..., None], answers]
    sizes = rule.sizes(rewards)
    taken = np.arange(rule.most) < sizes[..., None]
    share = (rewards & taken).sum(axis=-1) / np.maximum(sizes, 1)
    # A group of one, which the budget cut off, says nothing.
    weights = np.where(taken, (rewards - share[..., None]) / np.maximum(sizes - 1, 1)[..., None], 0.0)
    weights /= (sizes > 0).sum(axis=-1)[..., None, None]
    policies = np.arange(steps * runs).reshape(steps, runs, 1, 1)
    places = (policies * n_prompts + prompts[..., None]) * n_answers + answers
    found = np.bincount(places.ravel(), weights.ravel(), probabilities.size)
    return np.asarray(found, dtype=np.float64).reshape(probabilities.shape)


def successes(problem, rule, rates, updates, rng, runs):
    """Train by plain ascent with each constant step; return mean success after numbers of updates, shape (S, runs, C)."""
    right, theta, found = problem.bandit.mean_reward > 0.5, np.tile(problem.theta, (len(rates), runs, 1)), []
    # Most features of tabular policies are 0.
    columns = csr_array(problem.policy.jacobian().reshape(right.size, -1).T)
    for update in range(1, updates[-1] + 1):
        probabilities = np.exp(problem.policy.log_probabilities(theta))
        estimates = logit_gradients(probabilities, right, rule, rng).reshape(-1, right.size)
        theta += np.array(rates)[:, None, None] * np.asarray(columns @ estimates.T).T.reshape(theta.shape)
        if update in updates:
            found.append((np.exp(problem.policy.log_probabilities(theta)) * right).sum(axis=-1).mean(axis=-1))
    return np.stack(found, axis=-1)


def cases(quick):
    """Each world, at each number of updates; a quick run has one world and few draws."""
    sizes = {"draws": QUICK_DRAWS if quick else DRAWS, "runs": RUNS}
    return [{"world": world, "updates": n} | sizes for world in list(WORLDS)[: 1 if quick else None] for n in CHECKPOINTS]


def deal(world, draws, runs, **_):
    """Return the rules, a chunk each."""
    return {"world": world, "draws": draws, "runs": runs, "optimiser": "SGD", "arms": list(RULES)}, len(RULES)


@run(dealt=deal, shared=True)
def trained(world, optimiser, arms, draws, runs, rng, chunk):
    """Train with one rule; return mean success by step, draw and checkpoint."""
    rates, found = rates_of(world, optimiser), []
    for draw in range(draws):
        own = np.random.default_rng(child_seed(seed_of(rng), draw))
        found.append(successes(WORLDS[world].problem(draw), RULES[arms[chunk]], rates, CHECKPOINTS, own, runs).mean(axis=1))
    return {"success": np.stack(found, axis=1)[None]}


@check(
    *stated(*STATED.values()),
    of=trained,
    cases=cases,
    broken={"early": True},
    setting=lambda world, updates, **_: f"{TITLES[world]}, {updates * SPENT:,} responses",
)
def equal_ahead(found, world, updates, early=False):
    """By how much equal sizes are ahead; in the broken case the rule has a quarter of the responses, or none."""
    at, problem = CHECKPOINTS.index(updates), WORLDS[world].problem()
    success = dict(zip(RULES, found["success"], strict=True))
    facts = {f"success, {arm}": lead([own[..., at]])["estimate"] for arm, own in success.items()}
    start = np.full((1, found["success"].shape[2]), objective(problem, problem.theta))
    sides = {}
    for rule, name in STATED.items():
        own = success[rule][..., at] if not early else success[rule][..., 0] if at else start
        sides[name] = evidence(lead([success["equal"][..., at], own], (1.0, -1.0)), 0.0), facts
    return sides
