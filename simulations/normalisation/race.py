"""Divide by the standard deviation or not: success over a training, each arm at its own best step.

Plain and standardised advantages are compared, under plain ascent and under Adam. In the control the policy descends.

These choices were made before the results of any run were seen:

- Only settings in which both answers are possible are judged.
- Groups of 2 and 3 are not judged. With two reward values all their mixed groups have one deviation. So dividing is a factor,
  which a tuned step undoes. With groups of 4, dividing changes the weights of prompts by at most 7%, beside a factor.
- Orthogonal prompts and exact gradients are not judged. Nothing limits the step there, and either arm learns a prompt at once.
- One point of success, averaged over the run, is noticeable: a few hundred questions can just show it.
- Each arm is taken at the best of the steps that were tried. The limits of its lead count the choice.

Made-up prompts and the heads of SmolLM2 are fixed problems, and their limits count runs. Random features are a kind of problem.
Each dimension has 48 or 96 draws of it, numbered from 0, and one step for all draws. Their leads are means over draws.

These choices were made when results were known. Earlier versions of this study saw one draw of random features for each
dimension. They searched for steps from 1 to 16384 with SGD and from 1/16 to 16 with Adam, and judged groups of 4 as well. The
grids have the best of those steps inside. Four hard prompts that are nearly alike had theirs at the end, so that SGD's grid for
made-up prompts goes on from there. A first run of this version had half as many draws and half as many runs on raw heads. Its
limits were too wide to tell a gain of a point from none. A second run lacked the largest step on raw heads, where in two settings
the best step was at the end. The grids of random features had eight steps before, of which four were best nowhere.

The steps of the paper are a contest of their own, which is counted apart: it compares two lengths of the updates as well.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product

import numpy as np

import grpo_theory as gt
from grpo_theory.estimation import find
from grpo_theory.evidence.reading import evidence
from grpo_theory.harness import check, rows, run
from grpo_theory.simulate.training import StepGrid
from simulations.best_rate import lead
from simulations.kernels import kernel_at
from simulations.normalisation.heads import hidden_states
from simulations.normalisation.prompts import MIXTURES, mixture, prompts
from simulations.seeds import child_seed, seed_of
from simulations.statements import stated

DIVISION, PAYS, HARMLESS = stated("division", "division/pays", "division/harmless")
PAYS_AT_PRINTED_STEPS = stated("division/printed steps")

OPTIMISERS: dict[str, gt.Optimiser] = {"SGD": gt.SGD(), "Adam": gt.Adam()}
PRINTED_STEPS = "printed steps"
PRINTED = {"plain": 1.0, "divided": 0.5}
"""The paper's steps 1/X^2 and 1/(2 X^2), of one prompt each; X = 1 here."""
EVERY = 4
"""After how many updates success is measured."""
ARMS = {"plain": find("dr_grpo"), "divided": find("grpo"), "broken": kernel_at("turned_mean", 1.0, "descends")}
N_PROMPTS = 4
"""Of the made-up problems."""
RANDOM_PROMPTS, ANSWERS = 64, 4
LOGIT_DEVIATION = 2.0
"""Of the random problems at the start: success rates run from below 1% to above 80%."""
RIDGE = 0.01
"""Of whitening, as a share of the total power: small enough that questions differ, large enough that they still share features.

The mean |cosine| of two questions' features is 0.90 to 0.97 raw and 0.15 to 0.33 whitened; without a ridge it would be 0.
"""
RAW, WHITENED = "raw", "whitened"
GROUP_SIZES, SOME_SIZES = (8, 16, 32, 64), (8, 32)
"""Some where all four would take too long."""
CORRELATIONS = (0.2, 0.7)
"""Of the made-up prompts: slightly and strongly correlated."""
DIMENSIONS = (16, 32, 64)
"""Of the random problems of 64 prompts: the fewer, the more the prompts share."""
PAPER_CORRELATIONS, PAPER_SIZES = (0.0, *CORRELATIONS), (2, 8, 64)
"""Where the steps of the paper are tried."""
BATCH, UPDATES = 32, 64
"""Prompts of an update, drawn anew for each; of the made-up problems as many as there are."""
HEADS = (
    ("lm-few-shot", 32, (RAW, WHITENED), {"Adam": GROUP_SIZES, "SGD": (32,)}),
    ("lm-zero-shot", 32, (RAW, WHITENED), {"Adam": SOME_SIZES, "SGD": (32,)}),
    ("lm-instruct", 32, (RAW, WHITENED), {"Adam": SOME_SIZES, "SGD": (32,)}),
    ("lm-few-shot", 128, (RAW,), {"Adam": (32,)}),
)
"""Heads of SmolLM2, numbers of questions, features, group sizes by contest."""
DESIGNS: Mapping[tuple[str, str], tuple[int, Sequence[float]]] = {
    ("made up", "SGD"): (384, range(1, 17)),
    ("made up", "Adam"): (384, range(-2, 6)),
    ("random", "SGD"): (4, range(6, 10)),
    ("random", "Adam"): (4, range(1, 5)),
    ("head", "SGD"): (64, range(4, 10)),
    (WHITENED, "Adam"): (96, (-0.5, 0.5, 1.5, 2.5)),
    (RAW, "Adam"): (80, (-0.5, 0.5, 1.5, 2.5)),
}
"""By problem and optimiser: runs at each step, of random features on each draw; and the powers of two that are the steps.

SGD's are in units of 1/(mean squared length of the features), Adam's in logits that a step can move.
"""
PRINTED_RUNS, QUICK_RUNS = 128, 64
CLOSE, DRAWS, QUICK_DRAWS = (16, 32), (48, 96), 16
"""Of random features: with these group sizes and more dimensions than 16 leads are small, and there are 96."""
POINT = 0.01
"""Less is what two runs with other seeds differ by."""


def cases(quick):
    """One case for each problem, contest and group size; a quick run has one problem of each family."""
    return [*made_up(quick), *random(quick), *heads(quick)]


def made_up(quick):
    """The made-up prompts, at the steps of the paper too."""
    correlations, mixtures = ((0.7,), ("easy and hard",)) if quick else (PAPER_CORRELATIONS, MIXTURES)
    printed, sizes = ((8,), (8,)) if quick else (PAPER_SIZES, GROUP_SIZES)
    for correlation, name in product(correlations, mixtures):
        problem = {"family": "made up", "correlation": correlation, "mixture": name, "batch_size": N_PROMPTS, "updates": UPDATES}
        yield from (problem | {"runs": PRINTED_RUNS, "contest": PRINTED_STEPS, "group_size": size} for size in printed)
        if correlation in CORRELATIONS:
            yield from (problem | design("made up", *one, quick) for one in product(OPTIMISERS, sizes))


def random(quick):
    """Draws of random features."""
    common = {"family": "random", "batch_size": BATCH, "updates": UPDATES}
    for dimension in (32,) if quick else DIMENSIONS:
        for contest, size in [("Adam", 32)] if quick else product(OPTIMISERS, GROUP_SIZES):
            draws = QUICK_DRAWS if quick else DRAWS[dimension > 16 and size in CLOSE]
            yield common | {"dimension": dimension, "draws": draws} | design("random", contest, size)


def heads(quick):
    """Heads of SmolLM2."""
    updates = UPDATES // 2 if quick else UPDATES
    for head, questions, kinds, contests in [("lm-few-shot", 32, (WHITENED,), {"Adam": (32,)})] if quick else HEADS:
        problem = {"family": "head", "batch_size": BATCH, "updates": updates, "head": head, "questions": questions}
        for features, (contest, sizes) in product(kinds, contests.items()):
            kind = "head" if contest == "SGD" else features
            yield from (problem | {"features": features} | design(kind, contest, size, quick) for size in sizes)


def design(problem, contest, size, quick=False):
    """Return the contest, with its runs and steps."""
    runs, powers = DESIGNS[problem, contest]
    return {"contest": contest, "group_size": size, "runs": QUICK_RUNS if quick else runs, "powers": list(powers)}


@run()
def raced(rng, **settings):
    """Train each arm at each of its steps, on draws that all arms share; return their successes (S, units), and the steps."""
    seed = seed_of(rng)
    found = {arm: reached(settings, arm, seed) for arm in ARMS}
    return {"steps": {arm: rates_of(settings, arm) for arm in ARMS}, "success": found}


def rates_of(settings, arm):
    """Return the steps that an arm is trained at: those of its contest, and of the broken arm one in the middle."""
    if settings["contest"] == PRINTED_STEPS:
        return np.array([PRINTED["divided" if arm == "broken" else arm]])
    unit = 1.0 / logit_reach(problem_of(settings)) if settings["contest"] == "Adam" else 1.0
    powers = settings["powers"]
    return unit * 2.0 ** np.array([powers[len(powers) // 2]] if arm == "broken" else powers)


def reached(settings, arm, seed):
    """Return the success of an arm at each of its steps, shape (S, units): the units are draws of the problem, or runs."""
    steps, runs = rates_of(settings, arm), settings["runs"]
    if settings["family"] != "random":
        return success(settings, arm, steps, runs, seed)
    draws = (success(settings, arm, steps, runs, child_seed(seed, draw), draw) for draw in range(settings["draws"]))
    return np.stack([each.mean(axis=1) for each in draws], axis=1)


def success(settings, arm, steps, runs, seed, draw=0):
    """Return the success of each run at each step (S,), averaged over its updates and the prompts, shape (S, R).

    With the printed steps an update is that of one prompt, and as many of them as a batch has elsewhere count as one.
    """
    problem, contest, batch_size = problem_of(settings, draw), settings["contest"], settings["batch_size"]
    each = batch_size if contest == PRINTED_STEPS else 1
    updates, sizes = settings["updates"] * each, (batch_size // each, settings["group_size"])
    grid = StepGrid.of(problem, ARMS[arm], steps, np.ones(updates), sizes, OPTIMISERS.get(contest, gt.SGD()))
    return grid.objectives(runs, seed, range(EVERY * each, updates + 1, EVERY * each)).mean(axis=-1)


def title(family, **case):
    """Return what the problem of a case is called in tables."""
    if family == "random":
        return f"random, d = {case['dimension']}"
    if family == "made up":
        return f"correlation {case['correlation']:g}, {case['mixture']}"
    return f"{case['head']}, {case['features']}, {case['questions']} questions"


def plain_less(found, arm):
    """Return by how much the plain arm is ahead of another, each at its best step, as a row."""
    return lead([found["success"][one] for one in ("plain", arm)], (1.0, -1.0))


def problem_of(settings, draw=0):
    """Return the problem of a cell, in the coordinates in which it is trained; random features have draws."""
    if settings["family"] == "made up":
        return prompts(settings["correlation"], mixture(settings["mixture"], N_PROMPTS))
    if settings["family"] == "random":
        return random_features(settings["dimension"], draw)
    problem = head_on(settings["head"], settings["questions"], settings["features"])
    # Steepest ascent is the same in all orthonormal coordinates of the span, and cheaper in few of them.  Adam's is not.
    return in_span(problem) if settings["contest"] == "SGD" and settings["features"] == RAW else problem


def random_features(dimension, draw):
    """Return a draw of 64 prompts of 4 answers, one right, whose features and start are normal."""
    rng = np.random.default_rng([dimension, draw])
    features = rng.standard_normal((RANDOM_PROMPTS, ANSWERS, dimension)) / np.sqrt(dimension)
    right = np.eye(ANSWERS)[rng.integers(ANSWERS, size=RANDOM_PROMPTS)]
    theta = LOGIT_DEVIATION * rng.standard_normal(dimension)
    return gt.Problem(gt.Bandit(right), gt.LinearSoftmax(features), theta=theta, name=f"random, d = {dimension}")


@cache
def head_on(name, questions, features):
    """Return a head of SmolLM2 on questions spread evenly over the 500, with features of mean squared length 1.

    Parameters
    ----------
    name : str
        Of the gallery's problem.
    questions : int
    features : {"raw", "whitened"}
        Raw features are the hidden states h in the model's own 576 coordinates. Whitened features are their principal
        coordinates, each divided by the root of its power (mean square) plus a ridge.
    """
    whole = gt.gallery.problem(name)
    chosen = np.linspace(0, whole.policy.n_prompts - 1, questions).astype(int)
    hidden = hidden_states(whole)[chosen]
    theta = whole.theta.reshape(whole.policy.n_responses, -1)
    if features == RAW:
        scale = np.sqrt((hidden**2).sum(axis=1).mean())
        return on_states(whole.bandit.mean_reward[chosen], hidden / scale, scale * theta, f"{name}, raw")
    white = whitened(hidden)
    theta = np.linalg.lstsq(white, hidden @ theta.T, rcond=None)[0].T
    return written_out(on_states(whole.bandit.mean_reward[chosen], white, theta, f"{name}, whitened"))


def whitened(hidden):
    """Return the whitened features (M, M) of hidden states (M, H), with a mean squared length of 1."""
    scores, roots, _ = np.linalg.svd(hidden, full_matrices=False)
    powers = roots**2 / len(hidden)
    white = scores * roots / np.sqrt(powers + RIDGE * powers.sum())
    return white / np.sqrt((white**2).sum(axis=1).mean())


def in_span(problem):
    """Return a head's problem in orthonormal coordinates of the span of its hidden states: the same policies."""
    hidden = hidden_states(problem)
    basis = np.linalg.qr(hidden.T)[0]
    theta = problem.theta.reshape(problem.policy.n_responses, -1) @ basis
    return written_out(on_states(problem.bandit.mean_reward, hidden @ basis, theta, problem.name))


def written_out(problem):
    """Return the same problem with its features in full, which trains sooner where they are few."""
    jacobian = problem.policy.jacobian()
    features = jacobian.reshape(problem.policy.n_prompts, problem.policy.n_responses, -1)
    return gt.Problem(problem.bandit, gt.LinearSoftmax(features), theta=problem.theta, name=problem.name)


def on_states(success, hidden, theta, name):
    """Return the problem of a head on these hidden states."""
    return gt.Problem(gt.Bandit(success), gt.SoftmaxHead(hidden, theta.shape[0]), theta=theta.ravel(), name=name)


def logit_reach(problem):
    """Return by how much a logit moves, on average, if each coordinate of theta moves by 1 in its direction."""
    rows = hidden_states(problem) if isinstance(problem.policy, gt.SoftmaxHead) else problem.policy.jacobian()
    return float(np.abs(rows).sum(axis=-1).mean())


def label(contest, group_size, **case):
    """Return what a case is called."""
    return f"{title(**case)}, {contest}, G = {group_size}"


@check(PAYS, HARMLESS, PAYS_AT_PRINTED_STEPS, of=raced, cases=cases, broken={"arm": "broken"}, setting=label)
def gain(found, contest, arm="divided"):
    """How far plain is ahead, against a point either way; the control puts the broken arm in the divided one's place."""
    ahead = plain_less(found, arm)
    facts = {f"success, {one}": lead([side])["estimate"] for one, side in found["success"].items()}
    facts |= {f"step, {one}": found["steps"][one][side.mean(axis=1).argmax()] for one, side in found["success"].items()}
    bounds = {PAYS_AT_PRINTED_STEPS: -POINT} if contest == PRINTED_STEPS else {PAYS: -POINT, HARMLESS: POINT}
    return {one.id: (evidence(ahead, bound), facts) for one, bound in bounds.items()}


@rows(of=raced, cases=cases)
def leads(found, **case):
    """By how much the plain arm is ahead of the divided one, with limits."""
    yield {"problem": title(**case), "quantity": "plain less", "arm": "divided"} | plain_less(found, "divided")
