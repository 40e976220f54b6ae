"""P1: does advice from a pilot at the start survive whole runs?  Success at the end that its group size loses.

Five kinds of problem are judged, each over draws. A draw is a problem with its own pilot: 64 prompts with 8 responses each, drawn
from the first policy. A group size has one learning rate for all draws of a kind, and so has the planner. The best size in
hindsight is the best of all sizes and rates of the grid, by the mean over draws. Limits count draws, pilots, runs and the choice.

In the control groups are four times as large as recommended, or of the trained size next to that. Where the planner is compared
with one size, they are four times as large as that one. Against 8 they are eight times as large, as groups of 32 were not
trained. Beside them the planner is asked with permuted rewards, which tell nothing of a pilot's gradients. What it then loses
shows what a pilot is worth.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from grpo_theory.estimation import find
from grpo_theory.evidence import Evidence
from grpo_theory.evidence.reading import summary
from grpo_theory.harness.study import Cell, Settings
from grpo_theory.simulate.training import StepGrid
from simulations.best_rate import lead
from simulations.plan import run_worlds
from simulations.plan.run_worlds import CHAIN_OF_TWELVE, CONTROL, LINEAR, PERMUTED, PLANNED, WIDTHS, problem
from simulations.seeds import child_seed, seed_of
from simulations.statements import stated

LOST = 0.02
"""Points of success at the end that are worth less than the pilot and the reading of its plan."""
BEST = "best"
STATEMENTS = {against: stated(f"plan/run/{against}") for against in (BEST, "always 4", "always 8", "always 16")}
NO_GAIN = stated("plan/run/gain over always 4")

NOT_TOLD = "groups four times as large lose 1 to 5 points here; these draws do not tell that from 2 at a level of 1e-4"
POWERLESS = {
    ("plan/run/always 4", "5 problems, *, 64 updates"): NOT_TOLD,
    ("plan/run/always 4", "5 problems, grpo, 16 updates"): NOT_TOLD,
}

ESTIMATORS = ("rloo", "grpo")
RESPONSES, PILOT = 256, 64
ALLOWED, SIZES = (2, 4, 8, 16, 64), (4, 8, 16, 64)
"""What may be recommended, and what is trained: in an earlier run groups of 2 were best in no kind, and never recommended."""
UPDATES = (16, 64)
"""Of a short and a long run, 4,096 and 16,384 responses."""
WIDEST = "network of 32"
POWERS = {**dict.fromkeys(WIDTHS, range(1, 5)), WIDEST: range(2, 6), LINEAR: range(2, 6), CHAIN_OF_TWELVE: range(-1, 3)}
"""The learning rates are these powers of 3: the best of all sizes in an earlier run over twice as many, and their neighbours."""
NAMES = tuple(POWERS)
DRAWS, CHAINS, QUICK_DRAWS = 48, 24, 4
"""Draws of each kind, and of chains of tokens, which take several times as long."""
RUNS = dict.fromkeys(NAMES, 4) | {WIDEST: 2}
"""Of each draw at each rate; the widest networks had the smallest errors in an earlier run, and take the longest of networks."""
ARMS = (PLANNED, PERMUTED)
TOO_LARGE = 4
"""The broken planner's factor: the smallest power of 2 that costs more than the margin in most of these runs."""
BROKEN = {BEST: CONTROL, "always 4": "always 16", "always 8": "always 64", "always 16": "always 64"}
"""What is broken of each comparison; groups of 32 were not trained."""


def cells(quick):
    """One cell for each problem and estimator; one chunk for each group size, and one for the pilots."""
    found = []
    for name in NAMES:
        draws = QUICK_DRAWS if quick else CHAINS if name == CHAIN_OF_TWELVE else DRAWS
        cases = ({"problem": name, "estimator": one, "draws": draws, "sizes": list(ALLOWED)} for one in ESTIMATORS)
        found += [Cell(case, len(SIZES) + 1, shared=True) for case in cases]
    return found


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Any:
    """Return success of a group size by draw, rate and number of updates, shape (draws, rates, C); the last chunk asks."""
    name, seed, draws = settings["problem"], seed_of(rng), range(settings["draws"])
    if chunk == len(SIZES):
        return recommended(settings, np.random.default_rng(child_seed(seed, len(draws))))
    batch, rates = (RESPONSES // SIZES[chunk], SIZES[chunk]), 3.0 ** np.array(POWERS[name])
    tried = settings["estimator"], batch, rates, RUNS[name]
    found = [reached(problem(name, draw), *tried, child_seed(seed, draw)) for draw in draws]
    return np.array(found).round(6).tolist()


def recommended(settings, rng):
    """Return the group size that each arm's planner recommends in each draw: the nearest of those trained, in octaves."""
    found = []
    for draw in range(settings["draws"]):
        case = problem(settings["problem"], draw)
        prompts = rng.choice(case.policy.n_prompts, PILOT, p=case.bandit.prompt_weights)
        log = run_worlds.draw_log(run_worlds.sampler(case, case.theta), prompts, run_worlds.LOGGED, rng)
        found.append(run_worlds.ask(log, settings["estimator"], RESPONSES, settings["sizes"], rng))
    return {arm: [one[arm] for one in found] for arm in ARMS}


def reached(problem, estimator, batch, rates, runs, seed):
    """Return mean success of a draw's runs at each rate after the numbers of updates, (rates, C); a batch is (prompts, group).

    A run that left the finite numbers has nothing left.
    """
    grid = StepGrid.of(problem, find(estimator), rates, np.ones(UPDATES[-1]), batch)
    return np.nan_to_num(grid.objectives(runs, seed, UPDATES), nan=0.0).mean(axis=1)


def lost(values, places, against=None):
    """Return the success that a choice of a size loses to the size at a place, or to the best of all in hindsight.

    Parameters
    ----------
    values : ndarray, shape (rates, S, draws)
        Success by learning rate, group size and draw.
    places : ndarray of int, shape (draws,)
        The place of the chosen size in each draw. All draws have one learning rate.
    against : int, optional
    """
    other = values if against is None else values[:, against]
    return lead([other, values[:, places, np.arange(values.shape[-1])]], (1.0, -1.0))


def mean_over_kinds(rows, prediction):
    """Return the evidence of the mean of rows, one for each kind of problem, with degrees of freedom by Satterthwaite (1946).

    Kinds are independent. If none varies the degrees of freedom are those of all kinds.
    """
    variances, free = np.array(rows["standard_error"]) ** 2 / len(rows) ** 2, np.array(rows["replications"]) - 1.0
    squares = float((variances**2 / free).sum())
    whole = variances.sum() ** 2 / squares if squares else free.sum()
    runs = max(2, int(np.nan_to_num(whole)) + 1)  # what is not finite is refused as evidence
    estimate, error = float(np.array(rows["estimate"]).mean()), float(np.sqrt(variances.sum()))
    return Evidence(estimate=estimate, standard_error=error, replications=runs, prediction=prediction)


def rows(settings, results):
    """Success at the end by group size, and what the recommended one and the usual ones lose to the best, and to each other."""
    *trained, asked = results
    samples = np.transpose(trained, (3, 2, 0, 1))  # (C, rates, sizes, draws)
    chosen = {arm: np.searchsorted(SIZES, asked[arm]) for arm in ARMS}
    chosen[CONTROL] = np.minimum(np.searchsorted(SIZES, TOO_LARGE * np.array(asked[PLANNED])), len(SIZES) - 1)
    share = np.bincount(chosen[PLANNED], minlength=len(SIZES)) / settings["draws"]
    chosen |= {f"always {size}": np.full(settings["draws"], s) for s, size in enumerate(SIZES)}
    kept = {name: settings[name] for name in ("problem", "estimator")} | {"prediction": np.nan}
    for updates, values in zip(UPDATES, samples, strict=True):
        at = kept | {"updates": updates, "quantity": "success"}
        best = SIZES[int(values.mean(axis=-1).max(axis=0).argmax())]
        yield at | {"arm": BEST, "size": best} | lead([values])
        for s, size in enumerate(SIZES):
            yield at | {"arm": f"always {size}", "size": size, "share": share[s]} | lead([values[:, s]])
        for other in (BEST, *(f"always {size}" for size in SIZES)):
            against = None if other == BEST else int(chosen[other][0])
            for arm, places in chosen.items():
                facts = {"quantity": "lost", "arm": arm, "against": other, "prediction": LOST}
                yield at | facts | lost(values, places, against)
    yield kept | {"quantity": "log2 recommended", "arm": PLANNED} | summary(np.log2(np.array(asked[PLANNED], dtype=float)))


def claims(table):
    """Judge what the recommended size loses, and what it gains over groups of 4, on average over draws of all kinds."""
    cells = table[table["quantity"] == "lost"].groupby(["estimator", "updates", "arm", "against"])
    at = {key: mean_over_kinds(one, LOST) for key, one in cells}
    for estimator in ESTIMATORS:
        for updates in UPDATES:
            setting = f"{len(NAMES)} problems, {estimator}, {updates} updates"
            for against, statement in STATEMENTS.items():
                own, control = (at[estimator, updates, arm, against] for arm in (PLANNED, BROKEN[against]))
                yield statement.claim(setting, own, control)
            gains = (at[estimator, updates, PLANNED, f"always {size}"] for size in (SIZES[0], SIZES[-1]))
            own, control = (replace(one, estimate=-one.estimate) for one in gains)
            yield NO_GAIN.claim(setting, own, control)
