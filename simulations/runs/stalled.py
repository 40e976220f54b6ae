"""P5: whether runs that have all but stopped with groups of 16 go on with groups of 512.

In each draw of a world all arms go on from the same policies and spend equally many responses. Each has the best learning rate of
those tried. In the control updates point the other way.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.harness import check, run
from grpo_theory.simulate.ascents import make_training
from grpo_theory.simulate.training import finite_objectives
from simulations.best_rate import ahead, lead
from simulations.kernels import kernel_at
from simulations.runs.worlds import WORLDS
from simulations.seeds import child_seed, seed_of
from simulations.statements import stated

WAYS = {
    "groups of 16": (16, 256),
    "groups of 512": (512, 8192),
    "groups of 16, large batch": (16, 8192),
    "turned round": (512, 8192),
}
"""How runs go on: the group size, and the responses of an update; the last, the control, goes down the gradient."""
CONTROL, TURNED = "turned round", kernel_at("turned_mean", 1.0)
BEFORE, AFTER = 1 << 17, 1 << 18
RATES = {"few prompts": (9.0, range(-2, 8), 3), "shared": (27.0, range(0, 8), 4)}
"""The learning rate before, the powers of 3 that are tried after, and the runs on each draw.

Pilots on other seeds found the rate before best for groups of 16. Runs at all rates fill a vector. With many prompts the grid
began at 9 at first. Groups of 512 had their best rate there, so that it was moved down.
"""
DRAWS, QUICK_DRAWS, CHUNKS = 32, 4, 8
"""Draws are numbers 0 to 31, split into chunks. A first run had 24 draws."""
RIVALS = {"P5": "groups of 16", "P5/as many responses per update": "groups of 16, large batch"}


def deal(world, draws):
    """Return the rates and sizes of a world, whose draws are split into chunks; quick has few, and short runs."""
    (rate, powers, runs), (share, chunks) = RATES[world], (1, CHUNKS) if draws == DRAWS else (8, 1)
    sizes = {"before": BEFORE // share, "after": AFTER // share, "chunks": chunks}
    about = {"world": world, "draws": draws, "rate": rate, "rates": [3.0**power for power in powers], "runs": runs}
    return about | sizes, chunks


@run(dealt=deal, shared=True)
def gone_on(world, rate, rates, runs, draws, before, after, chunks, rng, chunk):
    """Train with groups of 16 on some draws, and go on each way at each rate; return success before, and after by way (D, L)."""
    found = dict[str, list](before=[], **{name: [] for name in WAYS})
    for draw in np.array_split(np.arange(draws), chunks)[chunk].tolist():
        problem, seed = WORLDS[world].problem(draw), child_seed(seed_of(rng), draw)
        starts, first = np.tile(problem.theta, (runs, 1)), WAYS["groups of 16"]
        reached = trained(problem, starts, "grpo", first, [rate], before, child_seed(seed, 0))[0]
        found["before"].append(success(problem, reached).mean())
        for name, way in WAYS.items():
            estimator = TURNED if name == CONTROL else "grpo"
            theta = trained(problem, reached, estimator, way, rates, after, child_seed(seed, 1))
            found[name].append(success(problem, theta).mean(axis=1))
    return found


def success(problem, theta):
    """Return the mean success rate of policies (..., d); 0 for a run that diverged."""
    return np.nan_to_num(finite_objectives(problem, theta))


def trained(problem, starts, estimator, way, rates, responses, seed):
    """Return where an estimator takes runs from their starts (R, d) at constant rates (L,) side by side, shape (L, R, d)."""
    size, number = way
    training = make_training(problem, gt.estimation.find(estimator), np.ones(responses // number), (number // size, size))
    n = len(starts)
    runs = training.start(seed, 0, np.tile(starts, (len(rates), 1)), np.repeat(rates, n), n)
    runs.advance(responses // number)
    return runs.theta.reshape(len(rates), *starts.shape)


@check(
    *stated(*RIVALS),
    of=gone_on,
    cases=lambda quick: (
        [{"world": "few prompts", "draws": QUICK_DRAWS}] if quick else [{"world": one, "draws": DRAWS} for one in RATES]
    ),
    broken={"way": CONTROL},
    setting="{world}",
)
def less(found, way="groups of 512"):
    """Groups of 16, in small batches and in as large ones, less groups of 512, from the same policies; broken: it goes down."""
    # At its best rate the control would take the smallest one, and stay where it is.
    after = {name: found[name].T[-1 if name == CONTROL else 0 :] for name in WAYS}
    facts = {f"success, {name}": lead([own])["estimate"] for name, own in after.items()}
    facts["success before"] = found["before"].mean()
    return {name: ahead(after[rival], after[way], **facts) for name, rival in RIVALS.items()}
