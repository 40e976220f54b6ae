"""N8: prompts that share features: the gains of a step where they interact weakly, and what happens elsewhere.

The study measures how far the mean gain of a prompt falls short of its guarantee. It takes the worst of random pairs, of pairs
that a search finds, of paths, and of pairs on which too small a constant shows. In the controls steps descend; for the sums,
prompts stop learning.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence.reading import largest
from grpo_theory.harness import check
from simulations.normalisation.ascent import Prompts, Step
from simulations.normalisation.interaction import FACTS, course, falling_short, opposed, shortfall, worst_prompt
from simulations.normalisation.prompts import label, mixture
from simulations.normalisation.prompts import prompts as made
from simulations.statements import stated

N8 = stated("N8")
UPDATES = ("plain", "divided", "divided, without R1")
TOO_SMALL = ("divided, appendix", "divided, without R2")
"""Updates whose constants the proof does not allow, judged where they could fail."""
GAINS = {name: f"N8/{name}".replace("plain", "plain gain").replace("divided", "divided gain") for name in (*UPDATES, *TOO_SMALL)}
ALIKE = {"one right answer, alike": (0.3, 0.3), "one right answer, unlike": (0.5, 0.02)}
"""Success rates of two prompts with one right answer: those of `prompts` with different ones break the assumption."""
THETA = 4.0
NOWHERE = -100.0
"""A shortfall below all others, for a search: a hundred times the guarantee is gained."""
OPPOSED, LEAN = {"opposed, a hard neighbour": 0.001, "opposed, a learnt neighbour": 0.999}, 1e-5
"""Success of the second of two prompts, a step on which lowers the first (`opposed`)."""
SMALL = 1e-3
"""A step that is short enough for its first order."""


def shortfalls(problems, names, sign):
    """Return the greatest shortfall of each update over problems and its bound 0, with how many satisfy the assumption."""
    found = [gaps for problem, theta in problems if (gaps := falling_short(problem, theta, names, sign))]
    facts = {fact: largest([gaps[fact] for gaps in found]) for fact in FACTS}
    facts["share where M exists"] = len(found) / len(problems)
    return {GAINS[name]: (largest([gaps[name] for gaps in found]), 0.0, facts) for name in names}


@check(
    *stated(*(GAINS[name] for name in UPDATES)),
    cases=lambda quick: [
        {"answers": k, "update": name, "pairs": 200 if quick else 2000, "searches": 0 if quick else 2}
        for k in ((2,) if quick else (2, 3))
        for name in UPDATES
    ],
    broken={"sign": -1.0, "searches": 0},
    setting="{answers} answers",
)
def pairs(answers, update, pairs, searches, rng, sign=1.0):
    """Of random pairs and of those that a search finds; where the assumption fails there is nothing to violate."""

    def pair(x):
        features = x[: 2 * answers**2].reshape(2, answers, answers)
        return Prompts(features, np.eye(answers)[[0, 0]], np.zeros(answers)), x[2 * answers**2 :]

    def sides(x):
        problem, theta = pair(x)
        return falling_short(problem, theta, [update]).get(update, NOWHERE), 0.0

    box = [(-1.0, 1.0)] * (2 * answers**2) + [(-THETA, THETA)] * answers
    points = list(rng.uniform(*np.array(box).T, size=(pairs, len(box))))
    for _ in range(searches):
        points.append(gt.worst_case(sides, box, rng=rng, starts=128, climbs=1, compare="difference").parameters)
    return shortfalls([pair(x) for x in points], [update], sign)


@check(
    *stated(*(GAINS[name] for name in UPDATES)),
    cases=lambda quick: [
        {"kind": name, "correlation": dial, "states": 16 if quick else 64}
        for name in ALIKE
        for dial in ((0.3,) if quick else (0.05, 0.3, 0.7))
    ],
    broken={"sign": -1.0},
    setting=lambda kind, correlation, **_: label(kind, correlation),
)
def alike(kind, correlation, states, rng, sign=1.0):
    """Of states along a path of prompts with one right answer."""
    problem = Prompts.of(made(correlation, ALIKE[kind]))
    theta, reached = problem.theta[None], []
    for _ in range(states):
        reached.append((problem, theta[0]))
        theta = problem.step(theta, problem.at(theta), rng.integers(2, size=1), Step(1.0, 0.0))
    return shortfalls(reached, UPDATES, sign)


@check(*stated(*GAINS.values()), cases=[{"kind": name} for name in OPPOSED], broken={"sign": -1.0}, setting="{kind}")
def opposing(kind, sign=1.0):
    """Of pairs that satisfy the assumption, made so that a constant which is too small shows."""
    problem = opposed(OPPOSED[kind], LEAN)
    return shortfalls([(problem, problem.theta)], GAINS, sign)


@check(
    *stated("N8/conflict", "N8/conflict, gain", "N8/conflict, sum"),
    cases=lambda quick: [
        {"kind": name, "correlation": dial, "prompts": 8}
        | ({"runs": 16, "horizon": 256} if quick else {"runs": 128, "horizon": 1024})
        for name in ("easy", "easy and hard")
        for dial in ((0.3,) if quick else (0.05, 0.3, 0.7))
    ],
    broken={"wrong": True},
    setting=lambda kind, correlation, **_: label(kind, correlation),
)
def conflict(kind, correlation, prompts, runs, horizon, rng, wrong=False):
    """The conclusions where right answers differ; in the controls they do not, steps descend, or prompts stop learning."""
    problem = Prompts.of(made(correlation, mixture(kind, prompts)))
    right = problem.right[np.zeros(prompts, dtype=int)] if wrong else problem.right
    sums, _ = course(problem, rng.integers(prompts, size=(horizon, runs)), "plain", stops=wrong)
    # sum of squared gradients <= 2 n (1 - p_i(0))
    quotients = sums[0] / (2.0 * prompts * (1.0 - problem.at(problem.theta[None]).success[0]))
    return {
        "N8/conflict": (greatest_change(Prompts(problem.features, right, problem.theta), problem.right), 0.0),
        "N8/conflict, gain": (shortfall(problem, problem.theta, Step(1.0, 0.0), 0.5, -1.0 if wrong else 1.0), 0.0),
        "N8/conflict, sum": worst_prompt(quotients.mean(axis=0), quotients),
    }


def greatest_change(problem, right):
    """Return the greatest change of J_i by a small step on j, over pairs with different right answers, per step and gradients."""
    state = problem.at(problem.theta[None])
    norms = np.sqrt(state.squares[0])
    moved = problem.theta + SMALL * state.gradients[0]
    changes = (problem.at(moved).success - state.success) / (SMALL * np.outer(norms, norms))
    return changes[right @ right.T == 0.0].max()
