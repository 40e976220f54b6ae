"""Problems whose whole runs are predicted or advised on, logs of them with sketches, and the planner that reads the logs."""

from dataclasses import replace
from functools import cache

import numpy as np

import grpo_theory as gt
from grpo_theory.data import trained_model
from grpo_theory.estimation import find
from grpo_theory.plan import Limits, choose_group_size
from grpo_theory.plan.efficiency import EstimatorLaws, choose_by_efficiency
from grpo_theory.problem.gallery import KINDS
from grpo_theory.schedule import step_sizes
from grpo_theory.simulate import BLOCK_RUNS
from grpo_theory.simulate.ascents import make_training
from simulations.plan.pilot_problems import chain
from simulations.runs.arms import success_rates
from simulations.runs.worlds import WORLDS

WIDTHS = {"network of 3": 3, "network of 8": 8, "network of 32": 32}
LINEAR, WALK, CHAIN_OF_TWELVE = "linear", "walk", "chain"
PROMPTS, ANSWERS, INPUTS, SEED = 40, 16, 16, 3
"""Of the networks: success rates at the start are from 1/16 to 1/2, because the first policy is uniform."""
WALK_TOKENS, WALK_SUCCESS = 16, 0.1
SKETCH = 128
"""Numbers of a sketch: a squared length errs by 13%."""
PLANNED, PERMUTED, CONTROL = "planned", "permuted", "control"
"""The planner with a log, with one whose rewards are permuted, and with its recommendation multiplied."""
LOGGED, LEVEL = 8, 0.95
"""The logged responses to a prompt, and the planner's level."""


@cache
def problem(name, draw=0):
    """Return a draw of a kind of problem, at the parameter at which training starts; the walk is one problem."""
    if name == WALK:
        return KINDS["goal walk"](WALK_TOKENS, WALK_SUCCESS)
    if name == CHAIN_OF_TWELVE:
        return chain(draw).listed()
    if name == LINEAR:
        return WORLDS["few prompts"].problem(draw)
    rng = np.random.default_rng((SEED, draw))
    inputs = rng.normal(size=(PROMPTS, INPUTS))
    ranks = rng.permuted(np.tile(np.arange(ANSWERS), (PROMPTS, 1)), axis=1)
    right = ranks < np.round(np.geomspace(1, ANSWERS / 2, PROMPTS))[:, None]
    policy = gt.TwoLayerSoftmax(inputs, WIDTHS[name], ANSWERS, scale=WIDTHS[name] ** -0.5)
    return gt.Problem(gt.Bandit(right.astype(float)), policy, theta=policy.start(rng))


def sampler(case, theta):
    """Return a function of prompts (N,) and a generator that draws a response to each: chances of success and sketches."""
    return (walked if isinstance(case.policy, gt.TokenChain) else listed)(case, theta)


def listed(case, theta):
    """Return what draws from a list of responses, whose scores are sketched."""
    below, success = np.cumsum(case.policy.probabilities(theta), axis=1), case.bandit.mean_reward
    sketched = sketches(case, theta)

    def draw(prompts, rng):
        of = below[prompts]
        responses = (rng.random(prompts.size)[:, None] * of[:, -1:] > of).sum(axis=1)
        return success[prompts, responses], sketched[prompts, responses]

    return draw


def sketches(case, theta):
    """Return the sketches (M, K, J) of the scores of all responses, by one projection."""
    scores, d = case.policy.scores(theta), case.policy.dimension
    return scores @ (np.random.default_rng(SEED).normal(size=(d, SKETCH)) / np.sqrt(SKETCH)) if d > SKETCH else scores


def walked(case, theta):
    """Return what draws responses token by token along a chain, with their scores."""
    chain, success, tangent = case.policy, case.bandit.state_probabilities[:, -1], case.policy.tangent(theta)
    logits = chain.logits(theta)[0].reshape(chain.transitions.shape)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    p = weights / weights.sum(axis=1, keepdims=True)
    below = np.cumsum(p, axis=1)[:, :-1]

    def draw(prompts, rng):
        states, rows = chain.starts[prompts], np.arange(prompts.size)
        logit_gradients, goes_on = np.zeros((prompts.size, *p.shape)), np.ones(prompts.size, dtype=bool)
        for _ in range(chain.horizon):
            tokens = (rng.random(prompts.size)[:, None] > below[states]).sum(axis=1)
            logit_gradients[rows, states] += np.where(goes_on[:, None], np.eye(p.shape[1])[tokens] - p[states], 0.0)
            ended = chain.ends[states, tokens]
            states = np.where(goes_on, chain.transitions[states, tokens], states)
            goes_on &= ~ended
        return success[states], tangent.adjoint_by_prompt(logit_gradients.reshape(prompts.size, -1))

    return draw


def courses(case, starts, estimator, rate, sizes, looks, seed):
    """Train from each start (R, d); return success after numbers of updates, (R, looks), and the last parameters (R, d).

    `sizes` are the numbers of prompts and of responses to each.
    """
    if isinstance(case.policy, gt.TokenChain):
        batch = {"batch_size": sizes[0], "group_size": sizes[1], "replications": len(starts)}
        going_on = {"steps": looks[-1], "checkpoints": looks, "rng": seed, "workers": 1}
        runs = gt.simulate_training(case, starts, estimator, gt.Constant(rate), **batch, **going_on)
        return runs.objectives, runs.theta
    # The driver itself, because the check of stability that comes before whole runs takes longer than they do.
    training, found, ends = make_training(case, find(estimator), step_sizes(gt.Constant(rate), looks[-1]), sizes), [], []
    for block, first in enumerate(range(0, len(starts), BLOCK_RUNS)):
        going, rates = training.start(seed, block, starts[first : first + BLOCK_RUNS]), []
        for count in looks:
            going.advance(count)
            rates.append(success_rates(case, going.theta) @ case.bandit.prompt_weights)
        found.append(np.stack(rates, axis=1))
        ends.append(going.theta)
    return np.concatenate(found), np.concatenate(ends)


def draw_log(draw, prompts, size, rng):
    """Draw a group of responses to each of some prompts, each with its reward and sketch."""
    index = np.repeat(np.arange(prompts.size), size)
    success, sketched = draw(prompts[index], rng)
    return gt.RaggedRollouts(index, (rng.random(index.size) < success).astype(float), sketched)


def permuted(log, rng):
    """Return a log whose rewards are permuted over all its responses: its sketches say nothing of them."""
    return gt.RaggedRollouts(log.index, rng.permutation(log.rewards), log.known_scores)


def nearest(sizes, asked):
    """Return the one of some sizes that is nearest to a size, in octaves."""
    return int(sizes[np.abs(np.log2(sizes / asked)).argmin()])


def plan(log, estimator, limits):
    """Return the group size that the planner recommends to who names the estimator."""
    if estimator in ("rloo", "dr_grpo"):
        return choose_group_size(log, limits, LEVEL).group_size
    law = EstimatorLaws(log, limits, None).of(gt.estimators()[estimator])
    assert law is not None
    return choose_by_efficiency(law, replace(limits, max_group_size=LOGGED).batches()[1], LEVEL).group_size


def ask(log, estimator, budget, sizes, rng):
    """Return what the planner recommends from a log, and from a permuted one: the nearest of some sizes."""
    limits = Limits(budget=budget, max_group_size=max(sizes))
    logs = {PLANNED: log, PERMUTED: permuted(log, rng)}
    return {arm: nearest(np.array(sizes), plan(one, estimator, limits)) for arm, one in logs.items()}


@cache
def problem_at_start(trained="last block"):
    """Return SmolLM2 before training, as a linear policy with the features of the start in balanced coordinates.

    Its scores there are the model's own. `trained` is what is going to learn: the last block and the head, or adapters in all
    blocks.
    """
    data = trained_model(trained)
    count, answers = data.probabilities.shape
    powers, directions = np.linalg.eigh(data.kernel.reshape(count * answers, -1))
    features = directions * np.sqrt(np.maximum(powers, 0.0))
    theta = np.linalg.lstsq(features, np.log(data.probabilities).ravel(), rcond=None)[0]
    right = np.eye(answers)[gt.data.arithmetic().answers[data.questions[:count]]]
    return gt.Problem(gt.Bandit(right), gt.LinearSoftmax(features.reshape(count, answers, -1)), theta=theta)
