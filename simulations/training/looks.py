"""Looks at training runs: where the mean updates off policy point, at updates drawn from each run."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.harness.summary import summary
from simulations.sequence.off_policy import Pairs, cosines

LOOKS = 4
"""How many updates of a run are examined, drawn from all but the first of each rollout, whose ratios are 1."""
LITTLE = 0.02
"""Updates of which at most this share of tokens is clipped are counted apart, too."""
BINS = (0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 1.0)
"""Edges of shares of clipped tokens."""


def look(
    problem: gt.Problem, iterates: Array, inner: int, estimators: Mapping[str, gt.Estimator], rng: np.random.Generator
) -> pd.DataFrame:
    """Return the cosines of the estimators' mean updates with the gradient at some updates of each run, a row for each update.

    The first estimator is examined once more, as "broken", with advantages that have lost their sign. The columns "clipped", by
    its clip, and "log ratio" say how far the policy has moved since the rollout, and "run" whose update it is.
    """
    runs, rollouts = len(iterates), (iterates.shape[1] - 1) // inner
    first = inner * rng.integers(0, rollouts, size=(runs, LOOKS))
    after = rng.integers(1, inner, size=(runs, LOOKS))
    run = np.arange(runs)[:, None]
    pairs = Pairs(problem, *(iterates[run, at].reshape(runs * LOOKS, -1) for at in (first + after, first)))
    gradients, clip = pairs.gradients(), next(iter(estimators.values()))
    columns = {name: cosines(pairs.mean_updates(estimator), gradients) for name, estimator in estimators.items()}
    columns["broken"] = cosines(pairs.mean_updates(clip, sign_is_lost=True), gradients)
    columns |= {"clipped": pairs.clipped(clip), "log ratio": pairs.log_ratios()}
    return pd.DataFrame(columns | {"run": np.repeat(np.arange(runs), LOOKS)})


def summarised(looks: Sequence[pd.DataFrame], estimators: Sequence[str]) -> list[dict[str, Any]]:
    """Return what the looks at runs on several problems say: means over runs, each the mean of its own looks.

    For each estimator: the share of updates that point away, the cosine, and by how much the first estimator's is larger.
    """
    table = pd.concat(looks, keys=range(len(looks)), names=["problem", ""]).reset_index("problem")
    return [row for among, part in _parts(table) for row in _rows(among, part, estimators)]


def _parts(table: pd.DataFrame) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Yield all looks, those at which little is clipped, and those in each bin of the share that is clipped."""
    yield {"part": "all"}, table
    yield {"part": "little clipped"}, table[table["clipped"] <= LITTLE]
    for low, high in pairwise(BINS):
        inside = (table["clipped"] > low) & (table["clipped"] <= high) if low else table["clipped"] <= high
        yield {"part": "bin", "above": low, "up to": high}, table[inside]


def _rows(among: dict[str, Any], table: pd.DataFrame, estimators: Sequence[str]) -> Iterator[dict[str, Any]]:
    by_run = table.groupby(["problem", "run"])
    if len(by_run) < 2:
        return
    among = among | {"looks": len(table)}
    for column in ("clipped", "log ratio"):
        yield among | {"quantity": column} | summary(by_run[column].mean().to_numpy())
    for name in (*estimators, "broken"):
        away = (table[name] < 0.0).groupby([table["problem"], table["run"]]).mean()
        closer = (table[estimators[0]] - table[name]).groupby([table["problem"], table["run"]]).mean()
        yield among | {"quantity": "away", "estimator": name} | summary(away.to_numpy())
        yield among | {"quantity": "cosine", "estimator": name} | summary(by_run[name].mean().to_numpy())
        yield among | {"quantity": "less", "estimator": name} | summary(closer.to_numpy())
