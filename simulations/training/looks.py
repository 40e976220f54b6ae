"""Looks at training runs: where mean updates off policy point, at updates drawn from each run, and who is ahead at the end."""

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.evidence.reading import BoundedMean, evidence, summary
from grpo_theory.simulate.training import finite_objectives
from simulations.best_rate import LEAD_FACTS, halves, lead
from simulations.seeds import child_seed, seed_of
from simulations.sequence.off_policy import cosines
from simulations.sequence.parts import composed
from simulations.training.worlds import drawn, step_grid

ARMS = {
    "clip": composed("rloo", "token", "by sign"),
    "none": composed("rloo", "none"),
    "trajectory": composed("rloo", "trajectory", "upper only"),
}
"""Leave-one-out advantages, undivided, tokens added up; clips at 0.8 and 1.2."""
LOOKED = ARMS | {"ratio": composed("rloo", "token")}
"""Whose mean updates are looked at along the runs of each arm: that of the token ratio without clip, too."""
LOOKS = 4
"""How many updates of a run are examined, drawn from all but the first of each rollout, whose ratios are 1."""
LITTLE = 0.02
"""Updates of which at most this share of tokens is clipped are counted apart, too."""
BINS = (0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 1.0)
"""Edges of shares of clipped tokens."""
AWAY = 0.05
"""One update in twenty that points away, as far as the others point along, undoes a tenth of the way; fewer pass for noise."""
POINT = 0.01
"""One point of success at the end is less than two runs with other seeds differ by."""
POINTED = {
    "T6/trained": ("clip", "clip", "all"),
    "T7/trained": ("trajectory", "trajectory", "all"),
    "T8/trained": ("none", "none", "all"),
    "T6/unclipped, trained": ("clip", "ratio", "all"),
    "T6/trained, little clipped": ("clip", "clip", "little clipped"),
}
"""Along whose runs whose mean update is looked at, and where."""
NEARER = "T8/nearer, trained"


def of_arm(settings, make, number, pairs, rng, chunk):
    """Train the arm of a chunk on problems and draws that all arms share, and look at updates on the way."""
    running, looking = (child_seed(seed_of(rng), part) for part in range(2))
    problems, arm = list(drawn(make, running, number)), settings["arms"][chunk]
    success, looks = followed(settings, ARMS[arm], problems, pairs, np.random.default_rng(looking))
    starts = [float(gt.objective(problem, problem.theta)) for problem, _ in problems for _ in range(settings["runs"])]
    return {"success": success[None], "looks": [{"arm": arm} | look for look in looks], "starts": [starts]}


def followed(settings, estimator, problems, pairs, rng):
    """Train runs on each problem at each step; return success (steps, units), and rows of what looks at the runs say.

    Each run is a unit. The best of the first `tried` steps is chosen. Only runs at steps that some half of the units finds best
    are looked at, all after the same numbers of updates. Runs on a problem are looked at side by side.
    """
    tried, runs, success, looked = settings["tried"], settings["runs"], [], []
    for problem, seed in problems:
        paths = np.moveaxis(step_grid(settings, problem, estimator, keeps=True).iterates(runs, seed), 1, 0)
        success += [finite_objectives(problem, path[:, -1]) for path in paths]
        looked.append(np.stack([path[:tried, places_of_looks(settings, rng)] for path in paths]))
    reached = np.stack(success, axis=-1)
    chosen, units = reached[:tried], len(success)
    wanted = np.unique([*(chosen @ halves(units).T).argmax(axis=0), chosen.mean(axis=1).argmax()])
    found: dict[str, Any] = {}
    for (problem, _), thetas, first in zip(problems, looked, range(0, units, runs), strict=True):
        now, old = np.moveaxis(thetas[:, wanted], 2, 0).reshape(2, runs * len(wanted) * LOOKS, -1)
        for name, values in look(pairs(problem, now, old)).items():
            at = found.setdefault(name, np.full((len(chosen), LOOKS, units), np.nan))
            at[wanted, :, first : first + runs] = values.reshape(runs, len(wanted), LOOKS).transpose(1, 2, 0)
    return reached, summarised(chosen, found)


def places_of_looks(settings, rng):
    """Return some updates of a run that are not the first of their rollouts, and those that begin these, shape (2, LOOKS)."""
    inner = settings["inner_steps"]
    first = inner * rng.integers(0, settings["rollouts"], size=LOOKS)
    return np.stack([first + rng.integers(1, inner, size=LOOKS), first])


def look(pairs):
    """Return the cosines of the estimators' mean updates with the gradient at pairs of policies, each of shape (N,).

    The update with the clip is examined once more, as "broken", with advantages that have lost their sign. The share "clipped",
    by that clip, and "log ratio" say how far the policy has moved since the rollout.
    """
    gradients, gains = pairs.gradients(), {name: pairs.gains(estimator) for name, estimator in LOOKED.items()}
    found = {name: cosines(pairs.mean_updates(own), gradients) for name, own in gains.items()}
    found["broken"] = cosines(pairs.mean_updates(gains["clip"], sign_is_lost=True), gradients)
    return found | {"clipped": pairs.clipped(gains["clip"]), "log ratio": pairs.log_ratios()}


def summarised(success, found):
    """Return rows of means over units, each the mean of its own looks, by what looks found, (steps, LOOKS, units).

    For each estimator: the share of updates that point away, and the cosine; for some, by how much the clip's is larger. Success
    (steps, units) chooses the step. Means over all looks are at the step that halves of the units choose, on the other halves.
    Means over some are at the step that all units choose.
    """
    best, clipped = success.mean(axis=1).argmax(), found["clipped"]
    measures = {(name, ""): found[name] for name in ("clipped", "log ratio")}
    for name in (*LOOKED, "broken"):
        measures["away", name] = (found[name] < 0.0).astype(float)
        measures["cosine", name] = found[name]
    for name in ("none", "broken"):
        measures["less", name] = found["clip"] - found[name]
    table = []
    for (quantity, estimator), values in measures.items():
        about = {"part": "all", "quantity": quantity, "estimator": estimator}
        table.append(about | lead([success], judged=[values.mean(axis=1)]))
    parts: list[Any] = [({"part": "little clipped"}, clipped[best] <= LITTLE)]
    for low, high in pairwise(BINS):
        inside = (clipped[best] <= high) & (clipped[best] > (low or -1.0))
        parts.append(({"part": "bin", "above": low, "up to": high}, inside))
    for among, inside in parts:
        seen = inside.any(axis=0)
        if seen.sum() < 2:
            continue
        for name in (*LOOKED, "broken"):
            own = (measures["away", name][best] * inside).sum(axis=0)[seen] / inside.sum(axis=0)[seen]
            looks = {"quantity": "away", "estimator": name, "looks": int(inside.sum())}
            table.append(among | looks | summary(own))
    return table


def where_updates_point(found, looked, ending=""):
    """Return the sides of where updates point along an arm's own runs, or where those of another estimator do."""
    looks = pd.DataFrame(list(found["looks"])).query("part != 'bin'")
    rows, sides = looks.set_index(["arm", "part", "quantity", "estimator"]).sort_index(), {}
    for name, at in POINTED.items():
        arm, own, among = at
        if (arm, among, "away", own) in rows.index and not (ending and among != "all"):
            row, estimates = rows.loc[arm, among, "away", looked or own], rows.loc[arm, "all"]["estimate"]
            facts = {f"mean cosine, {one}": float(estimates["cosine", one]) for one in LOOKED}
            facts |= {one: float(estimates[one, ""]) for one in ("clipped", "log ratio")}
            share = BoundedMean(float(row["estimate"]), AWAY, replications=int(row["replications"]))
            sides[name + ending] = share, facts if own == arm else {}
    return sides | {NEARER + ending: evidence(rows.loc["clip", "all", "less", looked or "none"].to_dict(), 0.0)}


def ahead(found, tried, arm, other, doublings=0):
    """Return by how much one arm is ahead of another at the end, each at its best step, or at that doubled; runs may stay."""
    success = dict(zip(ARMS, found["success"], strict=True)) | {"start": found["starts"][:1]}
    sides = [success[one][:tried] for one in (arm, other) if one]
    judged = [success[one][doublings:][:tried] if one != "start" else found["starts"][:1] for one in (arm, other) if one]
    return lead(sides, (1.0, -1.0)[: len(sides)], judged if doublings else None)


def ends(found, steps, tried, who, rival):
    """Return the sides of who is ahead of whom by at most a point; a rival may stand in the place of all."""
    sides, best = {}, dict(zip(ARMS, found["success"][:, :tried].mean(axis=2).argmax(axis=1), strict=True))
    for name, (arm, other, doublings) in who.items():
        own = ahead(found, tried, arm, rival or other, doublings)
        facts = {f"success, {one}": ahead(found, tried, one, "", doublings)["estimate"] for one in (arm, other)}
        facts |= {f"step, {one}": steps[best[one] + doublings] for one in (arm, other)}
        sides[name] = evidence(own, POINT), facts | {fact: float(own[column]) for column, fact in LEAD_FACTS.items()}
    return sides
