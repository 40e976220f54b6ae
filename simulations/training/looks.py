"""Looks at training runs: where the mean updates off policy point, at updates drawn from each run."""

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array, Flags
from grpo_theory.harness.study import Rows, Settings
from grpo_theory.harness.summary import summary
from grpo_theory.simulate.training import finite_objectives
from simulations.best_rate import halves, lead
from simulations.sequence.off_policy import Pairs, cosines
from simulations.training.drift_arms import LOOKED
from simulations.training.minibatch_trainer import Drawn, step_grid

LOOKS = 4
"""How many updates of a run are examined, drawn from all but the first of each rollout, whose ratios are 1."""
LITTLE = 0.02
"""Updates of which at most this share of tokens is clipped are counted apart, too."""
BINS = (0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 1.0)
"""Edges of shares of clipped tokens."""
MakePairs = Callable[[gt.Problem, Array, Array], Pairs]


def followed(
    settings: Settings, estimator: gt.Estimator, drawn: Drawn, pairs: MakePairs, rng: np.random.Generator
) -> tuple[Array, Rows]:
    """Train runs on each problem at each step; return success (steps, units), and rows of what looks at the runs say.

    Each run is a unit. The best of the first `tried` steps is chosen. Only runs at steps that some half of the units finds best
    are looked at, all after the same numbers of updates.
    """
    tried, units, success, looked = settings["tried"], [], [], []
    for problem, seed in drawn:
        paths = step_grid(settings, problem, estimator, keeps=True).iterates(settings["runs"], seed)
        for path in np.moveaxis(paths, 1, 0):
            units.append(problem)
            success.append(finite_objectives(problem, path[:, -1]))
            looked.append(path[:tried, places_of_looks(settings, rng)])
    reached = np.stack(success, axis=-1)
    chosen = reached[:tried]
    wanted = np.unique([*(chosen @ halves(len(units)).T).argmax(axis=0), chosen.mean(axis=1).argmax()])
    found: dict[str, Array] = {}
    for unit, (problem, thetas) in enumerate(zip(units, looked, strict=True)):
        now, old = np.moveaxis(thetas[wanted], 1, 0).reshape(2, len(wanted) * LOOKS, -1)
        for name, values in look(pairs(problem, now, old)).items():
            at = found.setdefault(name, np.full((len(chosen), LOOKS, len(units)), np.nan))
            at[wanted, :, unit] = values.reshape(len(wanted), LOOKS)
    return reached, summarised(chosen, found)


def places_of_looks(settings: Settings, rng: np.random.Generator) -> Array:
    """Return some updates of a run that are not the first of their rollouts, and those that begin these, shape (2, LOOKS)."""
    inner = settings["inner_steps"]
    first = inner * rng.integers(0, settings["rollouts"], size=LOOKS)
    return np.stack([first + rng.integers(1, inner, size=LOOKS), first])


def look(pairs: Pairs) -> dict[str, Array]:
    """Return the cosines of the estimators' mean updates with the gradient at pairs of policies, each of shape (N,).

    The update with the clip is examined once more, as "broken", with advantages that have lost their sign. The share "clipped",
    by that clip, and "log ratio" say how far the policy has moved since the rollout.
    """
    gradients, clip = pairs.gradients(), LOOKED["clip"]
    found = {name: cosines(pairs.mean_updates(estimator), gradients) for name, estimator in LOOKED.items()}
    found["broken"] = cosines(pairs.mean_updates(clip, sign_is_lost=True), gradients)
    return found | {"clipped": pairs.clipped(clip), "log ratio": pairs.log_ratios()}


def summarised(success: Array, found: Mapping[str, Array]) -> Rows:
    """Return rows of means over units, each the mean of its own looks, by what looks found, (steps, LOOKS, units).

    For each estimator: the share of updates that point away, and the cosine; for some, by how much the clip's is larger. Success
    (steps, units) chooses the step. Means over all looks are at the step that halves of the units choose, on the other halves.
    Means over some are at the step that all units choose.
    """
    best, clip = success.mean(axis=1).argmax(), found["clip"]
    measures: dict[tuple[str, str], Array] = {(name, ""): found[name] for name in ("clipped", "log ratio")}
    for name in (*LOOKED, "broken"):
        measures["away", name] = (found[name] < 0.0).astype(float)
        measures["cosine", name] = found[name]
    for name in ("none", "broken"):
        measures["less", name] = clip - found[name]
    table: Rows = []
    for (quantity, estimator), values in measures.items():
        about = {"quantity": quantity, "estimator": estimator}
        table.append({"part": "all"} | about | lead([success], judged=[values.mean(axis=1)]))
    for among, inside in _parts(found["clipped"][best]):
        seen = inside.any(axis=0)
        if seen.sum() < 2:
            continue
        for name in (*LOOKED, "broken"):
            own = (measures["away", name][best] * inside).sum(axis=0)[seen] / inside.sum(axis=0)[seen]
            looks = {"quantity": "away", "estimator": name, "looks": int(inside.sum())}
            table.append(among | looks | summary(own))
    return table


def _parts(clipped: Array) -> Iterator[tuple[dict[str, Any], Flags]]:
    """Yield the looks at which little is clipped, and those in each bin of the share that is clipped."""
    yield {"part": "little clipped"}, clipped <= LITTLE
    for low, high in pairwise(BINS):
        yield {"part": "bin", "above": low, "up to": high}, (clipped <= high) & (clipped > (low or -1.0))
