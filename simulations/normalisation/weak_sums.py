"""N8: sums along paths of prompts that share features.

Sums of squared gradients are compared with the bounds of Theorems 3.3 and 3.4. The paths are of prompts that interact weakly, and
the worst prompt is taken. In the control prompts stop learning at success 1/2.
"""

from itertools import product

import numpy as np

from grpo_theory.harness import check, run
from simulations.normalisation.ascent import Prompts
from simulations.normalisation.interaction import FACTS, constants, course, interaction, worst_prompt
from simulations.normalisation.prompts import label, prompts
from simulations.statements import stated

ALONE = {"one prompt, two answers": 2, "one prompt, four answers": 4}
"""n = 1, where Theorem 3.4 is Theorem 3.2: nothing interacts, and R1 = R2 = 1."""
SAME = "two prompts with the same features"
"""They share all that they learn, whichever is drawn: M = R1 = R2 = 1 along the one path that there is."""
ALIKE, CORRELATIONS = "one right answer, alike", (0.05, 0.3, 0.7)
UNLIKE = "one right answer, unlike"
"""For the plain update: divided, S is 45 or more at the start, and runs of these lengths would not learn."""
START = 0.5
GROWTH, ATTEMPTS = 1.1, 40
"""A constant that iterates exceed is replaced by one that is a tenth larger, until they exceed it no more: at most 45-fold."""


def settled(problem, drawn, update):
    """Return the runs and the theorem's constant with the M, R1 and R2 of their own iterates, which depend on the step.

    The least of a sequence that starts at what the start asks for, each a tenth larger than the one before.

    Raises
    ------
    RuntimeError
        If the assumption fails somewhere along the iterates, or they keep to no constant that is tried.
    """
    constant = constants(interaction(problem, problem.at(problem.theta[None])))[update]
    for _ in range(ATTEMPTS):
        sums, worst = course(problem, drawn, update, constant)
        if constants(worst)[update] <= constant:
            return sums, worst, constant
        constant *= GROWTH
    raise RuntimeError(f"no constant up to {constant:g} bounds the interaction along the iterates: {worst}")


def quotients(sums, horizon, scale):
    """Return left over right sides of each bound for each prompt, and what each run adds, with scale = n S (1 - p_i(0)) X^2.

    The second is the run's influence on the quotient, so that its spread over runs gives the standard error.
    """
    bound = 16.0 / 3.0 * scale
    squares, norms, deviations, weighted = sums
    deviations = bound * deviations / horizon
    right = deviations.mean(axis=0)
    printed = squares.mean(axis=0) / right
    corrected = norms.mean(axis=0) ** 2 / horizon / right
    return {
        "N8/plain sum": ((squares / (2.0 * scale)).mean(axis=0), squares / (2.0 * scale)),
        "N8/divided sum": (printed, (squares - printed * deviations) / right),
        "N8/divided sum, weighted": ((weighted / bound).mean(axis=0), weighted / bound),
        "N8/divided sum, corrected": (corrected, corrected * (2.0 * norms / norms.mean(axis=0) - deviations / right)),
    }


def cases(quick):
    """Each problem and horizon; all satisfy the assumptions along their paths."""
    nan = float("nan")
    found = [{"kind": name, "rates": [START], "answers": k, "correlation": nan, "runs": 1} for name, k in ALONE.items()]
    found.append({"kind": SAME, "rates": [START, START], "answers": 4, "correlation": nan, "runs": 1})
    for name, rates, dials in ((ALIKE, [0.3, 0.3], CORRELATIONS), (UNLIKE, [0.5, 0.02], CORRELATIONS[1:2])):
        common = {"kind": name, "rates": rates, "answers": 4, "runs": 16 if quick else 32}
        found += [common | {"correlation": dial} for dial in (CORRELATIONS[1:2] if quick else dials)]
    return [one | {"horizon": horizon} for horizon, one in product((1024,) if quick else (1024, 4096), found)]


@run()
def along_paths(kind, rates, answers, correlation, horizon, runs, rng):
    """Return what runs add up, the right ones and those that stop, M, R1, R2 and S, and the scale of the bounds."""
    problem = Prompts.of(prompts(np.nan_to_num(correlation), rates[:1] if kind == SAME else rates, answers))
    if kind == SAME:
        problem = Prompts(np.repeat(problem.features, 2, axis=0), np.repeat(problem.right, 2, axis=0), problem.theta)
    n, found = len(rates), {}
    drawn = rng.integers(n, size=(horizon, runs))
    start = problem.at(problem.theta[None]).success[0]
    for update in ("plain",) if kind == UNLIKE else ("plain", "divided"):
        sums, worst, constant = settled(problem, drawn, update)
        stopped, _ = course(problem, drawn, update, constant, stops=True)
        scale = n * constant * (1.0 - start) * problem.norms.max() ** 2
        found[update] = {"own": sums, "stopped": stopped, "constants": [*worst, constant], "scale": scale}
    return found


@check(
    *stated("N8/plain sum", "N8/divided sum", "N8/divided sum, corrected", "N8/divided sum, weighted"),
    of=along_paths,
    cases=cases,
    broken={"paths": "stopped"},
    setting=lambda kind, correlation, horizon, **_: f"{label(kind, correlation)}, T = {horizon}",
)
def bounded(found, horizon, paths="own"):
    """Each bound by the prompt that is worst."""
    sides: dict = {}
    for update, one in found.items():
        facts = dict(zip((*FACTS, "S"), one["constants"], strict=True))
        bounds = quotients(one[paths], horizon, one["scale"])
        sides |= {name: (worst_prompt(*bound), facts) for name, bound in bounds.items() if name.startswith(f"N8/{update}")}
    return sides
