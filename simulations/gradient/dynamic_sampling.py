"""DAPO's dynamic sampling: what it climbs, and what it costs.

Uniform groups are dropped or redrawn. The effect on the mean update and the cost in rollouts are simulated and compared with
exact laws. The controls keep groups that are all wrong, divide by B, or redraw the prompt.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array, Flags, Integers
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import evidence
from grpo_theory.harness.study import Cell, Settings
from grpo_theory.theory import mixed_share
from simulations.gradient.groups import advantages_of
from simulations.statements import stated

DYNAMIC_SAMPLING, REDRAWN, NOISE = stated("dynamic sampling", "dynamic sampling/redrawn", "dynamic sampling/noise")
ROLLOUTS, DROPPED, SAME_PROMPT = stated("dynamic sampling/rollouts", "dynamic sampling/dropped", "dynamic sampling/same prompt")
POWERLESS = {
    **{
        (SAME_PROMPT.id, f"sequence-shared (G = {size})"): "the two schemes differ by 1% to 2% there, and the margin is 5%"
        for size in (2, 4)
    },
    **{
        (one.id, "two-arms (G = 4)"): "few groups are all wrong there: keeping them changes 2%, and the margin is 5%"
        for one in (REDRAWN, NOISE, ROLLOUTS)
    },
}

PROBLEMS = {"two-arms": 1, "mixed": 2, "sequence-shared": 6, "lm-few-shot": 32}
"""Each with how many chunks it takes until its rows are decided; signals of single groups are weakest on the language model."""
ALONE = ("two-arms",)
"""Where there is one prompt, to redraw it and to redraw the group are the same."""
GROUP_SIZES = (2, 4)
BATCH_SIZE = 4
CHUNK_GROUPS = 1 << 17
STUBBORN, MOST_TRIES = 8, 1024
"""One in this many groups is redrawn at its own prompt, which takes long where nearly all groups are uniform."""
ESTIMATOR = "rloo"
QUANTITIES = {"redrawn": REDRAWN, "squares": NOISE, "rollouts": ROLLOUTS, "dropped": DROPPED, "same prompt": SAME_PROMPT}


class Groups(NamedTuple):
    """Groups as they were drawn: which are kept, and what each adds to the update along the plain mean update, relative to it."""

    prompts: Integers
    mixed: Flags
    not_all_right: Flags
    along: Array


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem and group size."""
    common = {"batch_size": BATCH_SIZE, "chunk_groups": CHUNK_GROUPS >> (2 if quick else 0)}
    return [
        Cell({"problem": name, "group_size": size} | common, 1 if quick else chunks)
        for name, chunks in PROBLEMS.items()
        for size in GROUP_SIZES
    ]


@cache
def _along(name: str, group_size: int) -> Array:
    """Return <W, g>/||g||^2 of each response, shape (M, K), with g the plain mean update."""
    problem = gt.gallery.problem(name)
    mean = gt.gradient_mean(problem, problem.theta, ESTIMATOR, batch_size=1, group_size=group_size)
    point, direction = problem.at(problem.theta), problem.policy.logits(mean / (mean @ mean))
    return np.asarray((point.covectors * direction[:, None]).sum(axis=-1))


@cache
def _point(name: str) -> gt.Point:
    problem = gt.gallery.problem(name)
    return problem.at(problem.theta)


@cache
def _ends(name: str) -> Array:
    """Return the outcomes' distribution functions one after another, each a whole number higher, for one search."""
    laws = np.cumsum(_point(name).outcome_probabilities, axis=1)[:, :-1]
    return np.asarray((laws + np.arange(len(laws))[:, None]).ravel())


def draw(name: str, prompts: Integers, group_size: int, rng: np.random.Generator) -> Groups:
    """Draw a group for each prompt (n,)."""
    point, ends = _point(name), _ends(name)
    places = np.searchsorted(ends, prompts[:, None] + rng.random((len(prompts), group_size)), side="right")
    outcomes = places - prompts[:, None] * (ends.size // len(point.rewards))
    rewards = point.rewards[prompts[:, None], outcomes]
    along = _along(name, group_size)[prompts[:, None], point.outcome_responses[outcomes]]
    added = (advantages_of(ESTIMATOR, rewards) * along).mean(axis=1)
    return Groups(prompts, np.ptp(rewards, axis=1) > 0.0, rewards.min(axis=1) < 1.0, added)


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, Any]:
    """Run each scheme; return sums of what its groups add, of their squares, and numbers of groups and batches."""
    name, size = settings["problem"], settings["group_size"]
    weights = gt.gallery.problem(name).bandit.prompt_weights
    groups = draw(name, rng.choice(np.arange(weights.size), settings["chunk_groups"], p=weights), size, rng)
    return {
        "redrawn": _sums(groups.along[groups.mixed]),
        "redrawn, broken": _sums(groups.along[groups.not_all_right]),
        "squares": _sums(groups.along[groups.mixed] ** 2),
        "squares, broken": _sums(groups.along[groups.not_all_right] ** 2),
        "rollouts": _waits(groups.mixed),
        "rollouts, broken": _waits(groups.not_all_right),
        "dropped": _sums(_batches(groups, settings["batch_size"], lambda kept: np.maximum(kept, 1))),
        "dropped, broken": _sums(_batches(groups, settings["batch_size"], lambda kept: settings["batch_size"] + 0 * kept)),
        "same prompt": _sums(_until_mixed(name, groups.prompts[: len(groups.prompts) // STUBBORN], size, rng)),
        "same prompt, broken": _sums(groups.along[groups.mixed]),
    }


def _sums(values: Array) -> list[float]:
    return [float(values.size), float(values.sum()), float((values**2).sum())]


def _waits(kept: Flags) -> list[float]:
    """Return the sums of how many groups are drawn for each that is kept."""
    return _sums(np.diff(np.flatnonzero(kept), prepend=-1).astype(np.float64))


def _batches(groups: Groups, batch_size: int, divisor: Callable[[Integers], Any]) -> Array:
    """Return what batches add whose uniform groups are dropped, divided by a function of the number that is left."""
    kept = groups.mixed.reshape(-1, batch_size)
    added = np.where(kept, groups.along.reshape(-1, batch_size), 0.0).sum(axis=1)
    return np.asarray(added / divisor(kept.sum(axis=1)))


def _until_mixed(name: str, prompts: Integers, group_size: int, rng: np.random.Generator) -> Array:
    """Return what groups add that are drawn again at the same prompt (n,) until they are mixed, twice as many at a time."""
    along, waiting, tries = np.empty(len(prompts)), np.arange(len(prompts)), 1
    while waiting.size:
        groups = draw(name, np.repeat(prompts[waiting], tries), group_size, rng)
        mixed = groups.mixed.reshape(-1, tries)
        done, first = mixed.any(axis=1), mixed.argmax(axis=1)
        along[waiting[done]] = groups.along.reshape(-1, tries)[done, first[done]]
        waiting, tries = waiting[~done], min(2 * tries, MOST_TRIES)
    return along


def predict(settings: Settings) -> dict[str, float]:
    """Return what derivations, section 23, says of each mean, from exact laws."""
    problem, size, batch_size = gt.gallery.problem(settings["problem"]), settings["group_size"], settings["batch_size"]
    law = gt.gradient_law(problem, problem.theta, ESTIMATOR, batch_size=1, group_size=size)
    success = problem.at(problem.theta).moments.value
    mixed = mixed_share(success, size)
    share, g = float(law.prompt_weights @ mixed), law.mean / (law.mean @ law.mean)
    by_prompt = (problem.policy.logits(g) * law.mean_covectors).sum(axis=1)
    second = float(law.variance_along(g[None])[0]) + 1.0
    return {
        "redrawn": 1.0 / share,
        "squares": second / share,
        "rollouts": 1.0 / share,
        "dropped": (1.0 - (1.0 - share) ** batch_size) / share,
        "same prompt": float(law.prompt_weights @ (by_prompt / mixed)),
        "gain": (1.0 / share - 1.0) * float(law.mean @ law.mean) / law.trace,
    }


def rows(settings: Settings, results: list[Any]) -> Iterator[dict[str, Any]]:
    """One row for each quantity, and one for that of its broken scheme; `gain` is exact, and shown only."""
    predicted = predict(settings)
    common = {name: settings[name] for name in ("problem", "group_size", "batch_size")} | {"gain": predicted["gain"]}
    for name in results[0]:
        mean = mean_of_sums(np.sum([chunk[name] for chunk in results], axis=0))
        yield common | {"quantity": name, "prediction": predicted[name.partition(",")[0]]} | mean


def mean_of_sums(sums: Array) -> dict[str, float]:
    """Return a mean as the columns of a row, from how many there are, their sum and that of their squares."""
    n, total, squares = sums
    error = np.sqrt(max(squares / n - (total / n) ** 2, 0.0) / (n - 1.0))
    return {"estimate": float(total / n), "standard_error": float(error), "replications": int(n)}


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Means against exact predictions."""
    for (problem, size), part in table.groupby(["problem", "group_size"], sort=False):
        at = part.set_index("quantity")
        facts = {"error saved at equal rollouts": float(at["gain"].iloc[0])}
        for name, statement in QUANTITIES.items():
            if name != "same prompt" or problem not in ALONE:
                own, broken = (evidence(at.loc[quantity]) for quantity in (name, f"{name}, broken"))
                yield statement.claim(f"{problem} (G = {size})", own, broken, facts)
