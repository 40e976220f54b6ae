"""How random responses are, and what grows with their length, exact, up to 4,096 tokens.

A score is a sum over tokens, each with mean 0 given what came before, so squared lengths add up. What counts is how uncertain
tokens are, and not how many there are.

In one control only responses that succeed are averaged, whose tokens' scores have another mean. In another, the task is one whose
tokens are nearly sure and whose reward tells of each. In that of the ratios, second moments grow like the average over states.
"""

from functools import partial

import numpy as np

import grpo_theory as gt
from grpo_theory.harness import check
from grpo_theory.problem.chain_point import visits
from grpo_theory.problem.gallery import KINDS
from simulations.length.grid import RATES, SETTING, kinds_and_rates, point_of, reached
from simulations.statements import stated

POWER, LARGER, UNCORRELATED_AT_LENGTH = stated("length/score power", "length/larger groups", "length/uncorrelated")
RATIO = stated("length/trajectory ratio")

SHORT, LONG = 64, 1024
"""Twice the size is the least that a trainer can set who knows powers of two."""
CORRELATED = 0.1
"""A correlation r moves the best baseline from the value by r standard deviations of the reward times the relative spread of
||W||^2, which is below 1 here: a tenth is what a reader would not look up a baseline for."""
DRIFT = 0.05
"""The standard deviation by which the behaviour policy's logits differ: a token's ratio is then within a few percent of 1."""
SEED = 35
FORGETS = "bigram text"
"""The kind whose responses have one length and forget their first state."""
REMEMBERS = partial(kinds_and_rates, kinds=[kind for kind in KINDS if kind != FORGETS])
"""The others."""
SURE = "copy"
"""The kind whose tokens are nearly sure, and whose reward tells of each: one that moves the digit has a long score and mostly no
success."""


@check(POWER, cases=kinds_and_rates, broken={"right": True}, setting=SETTING)
def power(kind, success, right=False):
    """Powers carried along responses, against sums over the states visited; the control has responses that succeed."""
    point = point_of(kind, LONG, success)
    walk, p = point.walk(point.state_probabilities, point.unit_shares), point.state_probabilities
    tokens = visits(walk, point.policy.starts).sum(axis=1) @ (1.0 - (p**2).sum(axis=1))
    given = point.own_sums.products[:, 1, 0, 0] / point.own_sums.mass[:, 1]
    return (given if right else tokens) / point.moments.score_squared_norm, 1.0


@check(UNCORRELATED_AT_LENGTH, cases=REMEMBERS, broken={"sure": True}, setting=SETTING)
def uncorrelated(kind, success, sure=False):
    """The correlation at the prompt where it is greatest; E||W||^4 of the text needs the products of all pairs of parameters."""
    if sure:  # the control differs from the task that is judged in its rate at least
        kind, success = SURE, RATES[success == RATES[0]]
    return np.abs(point_of(kind, LONG, success).moments.score_reward_correlation), CORRELATED


@check(LARGER, cases=kinds_and_rates, broken={"sure": True, "lengths": [SHORT, LONG]}, setting=SETTING)
def larger(kind, success, lengths, sure=False):
    """By how much the best group size less 1 falls short of doubling."""
    if sure:
        kind, success = SURE, RATES[success == RATES[0]]
    problems = {length: KINDS[kind](length, success) for length in lengths}
    sizes = {length: gt.group_size_law(problem, problem.theta).optimum for length, problem in problems.items()}
    facts = {f"best group size at {length:,} tokens": size for length, size in sizes.items()}
    return 2.0 * (sizes[SHORT] - 1.0) - (sizes[LONG] - 1.0), 0.0, facts


@check(RATIO, cases=partial(kinds_and_rates, kinds=[FORGETS]), broken={"over_states": True}, setting=SETTING)
def growth(kind, success, over_states=False, length=LONG):
    """Growth at the last token, against the eigenvalue; the control is the average of sum p^2/p_0 over the states visited."""
    point, rng = point_of(kind, length, success), np.random.default_rng(SEED)
    chain = point.policy
    behaviour = np.exp(chain.token_log_probabilities(point.theta + DRIFT * rng.standard_normal(point.theta.size)))
    squares = point.state_probabilities**2 / behaviour
    kernel = np.zeros((chain.n_states, chain.n_states))
    np.add.at(kernel, (np.arange(chain.n_states)[:, None], chain.transitions), squares)
    closed = [kernel[np.ix_(states, states)] for states in (reached(chain, start) for start in chain.starts.tolist())]
    own = np.array([np.abs(np.linalg.eigvals(one)).max() for one in closed])
    here = visits(point.walk(squares, point.unit_shares), chain.starts)[:, -2:].sum(axis=2)
    found = here[:, 1] / here[:, 0]
    first = np.argmax(np.abs(found / own - 1.0))
    facts = {"growth a token": found[first], "second moment": here[first, 1]}
    if over_states:
        found = visits(point.walk(behaviour, point.unit_shares), chain.starts)[:, -1] @ squares.sum(axis=1)
    return found[first], own[first], facts
