"""U16: where training with standardised rewards converges.

There is a K3 penalty in the loss. Mean updates are compared with gradients of objectives, and the ends of runs with the maximiser
of the corrected one. In the control rewards are not divided.
"""

from functools import cache

import numpy as np
from scipy.optimize import minimize

import grpo_theory as gt
from grpo_theory.evidence.reading import distance, summary
from grpo_theory.harness import check, run
from simulations.seeds import seed_of
from simulations.sequence.divergences import gradient, token_logs
from simulations.sequence.parts import composed
from simulations.sequence.standardised import STANDARDISED, ascended
from simulations.statements import stated

U16, *PARTS = stated("U16", "U16/printed", "U16/corrected", "U16/simulated")
PROBLEMS = ("kl-tabular", "kl-linear")
GROUP_SIZES = (2, 4, 8, 64)
BATCH_SIZE, STEPS = 4, 2000
RUNS, QUICK_RUNS = 128, 64
POINTS, SPREAD = 5, 0.5
"""How many policies the mean update is compared at, and how far apart they are."""
MARGIN = 0.01
"""Relative: it distinguishes a success rate of 50% from one of 50.5%, less than evaluations of trained models can show. After
finitely many updates runs are not at the maximiser, by order 1/n, so the statement is a bound and not an equality."""
ESTIMATORS = {
    "standardised": composed(STANDARDISED, "none", kl="k3 in loss"),
    "undivided": composed("rloo", "none", kl="k3 in loss"),
}
"""The algorithm, and broken: the same without the division."""


def cases(quick):
    """Problems and group sizes; quick takes the smallest and the largest."""
    common = {"batch_size": BATCH_SIZE, "steps": STEPS, "runs": QUICK_RUNS if quick else RUNS}
    sizes = (GROUP_SIZES[0], GROUP_SIZES[-1]) if quick else GROUP_SIZES
    return [{"problem": name, "group_size": size} | common for name in PROBLEMS for size in sizes]


def objective(problem, group_size, printed_penalty):
    """Return E[h(V)] less kappa times a divergence as a function of the log probabilities (M, K).

    Parameters
    ----------
    problem : Problem
        With a penalty, whose strength is kappa and whose reference is pi_ref.
    group_size : int or None
        h is h_G, which groups of this size climb, or 2 arcsin sqrt, as printed.
    printed_penalty : bool
        Whether the divergence is KL(pi || pi_ref), as printed, or KL(pi_ref || pi), which the K3 term in the loss descends.
    """

    def value(logs):
        pi, reference = np.exp(logs), np.asarray(problem.kl.reference)
        success = (pi * problem.bandit.mean_reward).sum(axis=-1)
        climbed = 2.0 * np.arcsin(np.sqrt(success)) if group_size is None else ascended(success, group_size)
        divergence = ((pi if printed_penalty else -reference) * (logs - np.log(reference))).sum(axis=1)
        return problem.bandit.prompt_weights @ (climbed - problem.kl.strength * divergence)

    return value


def maximise(problem, climbed):
    """Return the parameters (d,) that maximise a function of the log probabilities, from 0."""

    def loss(theta):
        value = np.real(climbed(token_logs(problem, theta.astype(np.complex128))))
        return -float(value), -gradient(problem, climbed, theta)

    return np.asarray(minimize(loss, np.zeros(problem.policy.dimension), jac=True, method="BFGS", options={"gtol": 1e-9}).x)


@cache
def limit(name, group_size):
    """Return where the corrected objective is highest, and a step scale 2/lambda_min with an offset that keeps steps stable."""
    problem = gt.gallery.problem(name)
    climbed = objective(problem, group_size, printed_penalty=False)
    best = maximise(problem, climbed)
    steps = 1e-5 * np.eye(best.size)
    hessian = np.array([gradient(problem, climbed, best + step) - gradient(problem, climbed, best - step) for step in steps])
    curvatures = np.linalg.eigvalsh(-(hessian + hessian.T) / 4e-5)
    scale = 2.0 / curvatures[curvatures > 1e-6 * curvatures[-1]][0]
    return best, float(scale), int(20.0 * scale * curvatures[-1]) + 200


def success_at(problem, theta):
    """Return the mean success of a policy."""
    rewards = (problem.at(theta).probabilities * problem.bandit.mean_reward).sum(axis=-1)
    return float(problem.bandit.prompt_weights @ rewards)


def apart(problem, size):
    """Return the mean success at the maximisers of objectives of which one part is corrected and the other as printed.

    What groups of finite size change, with the printed penalty; and what the other divergence changes, with groups without end.
    """
    changed = {"with groups of this size alone": (size, True), "with the penalty that is descended alone": (None, False)}
    return {name: success_at(problem, maximise(problem, objective(problem, *parts))) for name, parts in changed.items()}


@run()
def compared(problem, group_size, batch_size, steps, runs, rng):
    """Compare mean updates with the objectives' gradients, and the ends of runs with the corrected objective's maximiser."""
    name, problem, seed = problem, gt.gallery.problem(problem), seed_of(rng)
    printed = maximise(problem, objective(problem, None, printed_penalty=True))
    corrected, scale, offset = limit(name, group_size)
    points = SPREAD * np.random.default_rng(seed).normal(size=(POINTS, problem.policy.dimension))
    slopes = [gradient(problem, objective(problem, group_size, printed_penalty=False), point) for point in points]
    one, success = {"batch_size": 1, "group_size": group_size}, success_at(problem, corrected)
    sizes = {"batch_size": batch_size, "group_size": group_size, "steps": steps, "replications": runs, "workers": 1}
    facts = {"success at the printed maximiser": success_at(problem, printed), "success at the corrected one": success}
    found = {"facts": facts | apart(problem, group_size)}
    for kernel, chosen in ESTIMATORS.items():
        gaps = [gt.gradient_mean(problem, at, chosen, **one) - slope for at, slope in zip(points, slopes, strict=True)]
        ends = gt.simulate_training(problem, problem.theta, chosen, gt.Harmonic(scale, offset), **sizes, rng=seed).theta
        at_printed, success = gt.gradient_mean(problem, printed, chosen, **one), [success_at(problem, theta) for theta in ends]
        found[kernel] = {"at printed": np.abs(at_printed).max(), "gap": np.abs(gaps).max(), "success": success}
    return found


@check(*PARTS, of=compared, cases=cases, broken={"kernel": "undivided"}, setting="{problem} (G = {group_size})")
def optimum(found, kernel="standardised"):
    """The update at the printed maximiser, its gap from the corrected gradient, and where runs end; broken: not divided."""
    own, facts = found[kernel], {name: values[0] for name, values in found["facts"].items()}
    ends = distance(summary(own["success"]), facts["success at the corrected one"], MARGIN)
    sides = {"U16/printed": (own["at printed"], 0.0), "U16/corrected": (own["gap"], 0.0), "U16/simulated": (ends,)}
    return {name: (*pair, facts) for name, pair in sides.items()}
