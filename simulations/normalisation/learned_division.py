"""N12: does division gain where features are learned, and does the gain end where orthogonality is lost?  Sampled runs.

Networks of two layers learn by plain ascent in groups of 8. Each arm is taken at the best of the constant steps tried, for each
length of a run. Inputs, right answers and the start are drawn. Limits count draws, the runs on them and the choice of the step.
In the control advantages have the wrong sign in the divided arm's place. For orthogonality the control has prompts that share no
parameter, so that all their cosines are 0.

One point of success is noticeable, as in the race of dividing or not. The margin, the lengths of the runs and which draws there
are were chosen before results were seen. An earlier version of this study saw five networks. A first run of this version had half
as many draws. Its limits were too wide to tell a gain of a point from none.
"""

import warnings

import numpy as np

from grpo_theory.evidence.reading import evidence
from grpo_theory.exact import StabilityWarning
from grpo_theory.harness import check, run
from grpo_theory.simulate.training import StepGrid, finite_objectives
from simulations.best_rate import lead
from simulations.normalisation.heads import near_orthogonal, state
from simulations.normalisation.networks import TITLE, network_problem, pair_cosines
from simulations.normalisation.phases import NOTICEABLE, ORTHOGONAL
from simulations.normalisation.race import ARMS
from simulations.seeds import child_seed, seed_of
from simulations.statements import stated

PAYS, HARMLESS = stated("N12/pays, learned features", "N12/harmless, learned features")
LOST_SAMPLED = stated("N12/III, sampled, learned features")

GRID = tuple(2.0**power for power in range(8))
"""Steps: in pilots the best of either arm were inside it at each length."""
BUDGETS, QUICK_BUDGETS = (10, 20, 40, 80), (10, 20)
NETWORKS = ((4, "easy"), (4, "hard"), (16, "easy"), (16, "hard"))
"""Width and mixture."""
BATCH_SIZE, GROUP_SIZE = 20, 8
DRAWS, QUICK_DRAWS, RUNS = 96, 24, 4
"""Draws of inputs and starts, and runs on each. Of the runs on a draw, the first has its gradients examined."""


def cases(quick):
    """One case for each network; quick has one."""
    budgets, draws = (QUICK_BUDGETS, QUICK_DRAWS) if quick else (BUDGETS, DRAWS)
    common = {"budgets": list(budgets), "draws": draws, "runs": RUNS, "arms": list(ARMS), "steps": list(GRID)}
    return [{"width": width, "mixture": mixture} | common for width, mixture in NETWORKS[: 1 if quick else None]]


def lengths(quick):
    """One case for each network and length of a run."""
    return [case | {"updates": budget} for case in cases(quick) for budget in case["budgets"]]


@run()
def trained(width, mixture, budgets, draws, runs, arms, steps, rng):
    """Train all arms on all draws; return success and the share of |cos| < 0.1, each (S, draws, budgets).

    The broken arm has the middle of the grid.
    """
    found = {}
    for arm in arms:
        tried = [steps[len(steps) // 2]] if arm == "broken" else steps
        problems = (network_problem(width, draw, mixture=mixture) for draw in range(draws))
        each = [of_draw(one, arm, tried, budgets, runs, child_seed(seed_of(rng), draw)) for draw, one in enumerate(problems)]
        found[arm] = dict(zip(("success", "orthogonality"), np.stack(each, axis=2), strict=True))
    return found


def of_draw(problem, arm, steps, budgets, runs, seed):
    """Return success of the runs on a draw, and the share of near-orthogonal pairs in the first of them, (2, S, budgets)."""
    # A grid of steps ends with some that are too large; the filter stays, because filters are common to all threads.
    warnings.filterwarnings("ignore", category=StabilityWarning, module=__name__.replace(".", r"\."))
    grid = StepGrid.of(problem, ARMS[arm], steps, np.ones(budgets[-1]), (BATCH_SIZE, GROUP_SIZE))
    looks = grid.looks(lambda theta: measured(problem, theta, runs), runs, seed, budgets)
    return np.stack([looks[..., 0].mean(axis=1), looks[:, 0, :, 1]])


def measured(problem, theta, each):
    """Return the success of policies (R, d), and of each so many one share of near-orthogonal pairs, shape (R, 2).

    A run that left the numbers has no success, and keeps its prompts orthogonal.
    """
    measures = np.stack([np.nan_to_num(finite_objectives(problem, theta)), np.ones(len(theta))], axis=1)
    for place in np.flatnonzero(np.isfinite(theta).all(axis=1) & (np.arange(len(theta)) % each == 0)):
        now = state(problem.policy.logits(theta[place]), problem.bandit.mean_reward)
        measures[place, 1] = near_orthogonal(
            pair_cosines(problem.policy.tangent(theta[place]).adjoint_by_prompt(now.logit_gradients))
        )
    return measures


@check(PAYS, HARMLESS, of=trained, cases=lengths, broken={"arm": "broken"}, setting=TITLE + ", {updates} updates")
def gain(found, budgets, steps, updates, arm="divided"):
    """Who is ahead at the end of runs of each length."""
    sides = {one: arms["success"][:, :, budgets.index(updates)] for one, arms in found.items()}
    ahead = lead([sides["plain"], sides[arm]], (1.0, -1.0))
    facts = {f"success, {one}": lead([sides[one]])["estimate"] for one in ("plain", "divided")}
    facts |= {f"step, {one}": steps[sides[one].mean(axis=1).argmax()] for one in ("plain", "divided")}
    return {PAYS.id: (evidence(ahead, -NOTICEABLE), facts), HARMLESS.id: (evidence(ahead, NOTICEABLE), facts)}


@check(LOST_SAMPLED, of=trained, cases=cases, broken={"apart": True}, setting=TITLE)
def lost(found, apart=False):
    """Whether orthogonality is lost at the end of the longest runs; that of prompts that share no parameter is not."""
    success, shares = (found["plain"][what][:, :, -1] for what in ("success", "orthogonality"))
    return evidence(lead([success], judged=[np.ones_like(shares) if apart else shares]), ORTHOGONAL)
