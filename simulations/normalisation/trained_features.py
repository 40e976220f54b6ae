"""N9 to N12: SmolLM2 as its last block and head, or adapters in all blocks, learn: curvature, states, gradients, exact.

The shipped records of `gt.data.trained_model` are read. They have scores of 40 questions along two ascents on exact gradients,
with and without division by the questions' standard deviations. They also have scores along runs with Adam that sample their
answers. Where the last block learns, the states below it are frozen; adapters (LoRA) on the matrices of all blocks move all
states.

In the controls variances are those of other questions, states or gradients are all the same, or questions share nothing: their
cosines stay 0. For what learning the features adds, the control is the linear policy with the features of the start, at another
step size.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.data import TrainedCourse, TrainedModel, trained_model
from grpo_theory.evidence import Comparison
from grpo_theory.harness.study import Cell, Settings
from simulations.normalisation.heads import NEAR, near_orthogonal, state
from simulations.normalisation.measured_statements import ORTHOGONAL_GRADIENTS, WITHIN
from simulations.normalisation.phases import ORTHOGONAL
from simulations.statements import stated

ACROSS, STATES, DRIFT = stated("N9/trained model", "N10/trained model", "N11/trained model")
FEATURES, PREMISE = stated("N11/trained model, features", "N12/I, trained model")

TRAINED = ("last block", "adapters")
ASCENTS = ("plain", "divided")
SAMPLED = ("dr_grpo, G = 4", "grpo, G = 4", "dr_grpo, G = 64", "grpo, G = 64")
POWERLESS = {
    (
        ACROSS.id,
        "adapters, divided",
    ): "37 of 40 questions are learned within 80 updates, so that any question's variance falls with it",
    (
        WITHIN.id,
        "last block, divided, weighted, trace, end",
    ): "another question's curvature goes with the own variance nearly as the printed correlation has it",
}
STRIDE, SLOWER = 0.1, 0.5
"""The first update's root mean square change of a question's logits, as the records were made; and the control's factor."""
FALL, MORE = 0.1, 0.05
"""A tenth of the pairs is a quarter of the printed drift; half of that must be due to the features, as in `learned_phases`."""
MANY, BELOW, PRINTED = 0.1, 0.15, 0.34
"""As printed of representations, and of the correlation of variance and curvature."""
STRONG = 0.5
"""A correlation of a half: a quarter of the one's changes would tell of the other's."""
PRINTED_NEAR = (0.977, 0.803, 0.524)


def cells(quick: bool) -> list[Cell]:
    """One cell for each course of each set of records; quick reads one ascent of each alone."""
    names = ASCENTS[:1] if quick else (*ASCENTS, *SAMPLED)
    shas = {trained: trained_model(trained).provenance["sha256"] for trained in TRAINED}
    return [Cell({"trained": trained, "course": name, "data": sha}) for trained, sha in shas.items() for name in names]


def cosines_of(gram: Array) -> Array:
    """Return the cosines of all pairs, (M (M - 1)/2,), given inner products (M, M)."""
    lengths = np.sqrt(np.diag(gram))
    return np.asarray((gram / np.outer(lengths, lengths))[np.triu_indices(len(gram), 1)])


def whole(data: TrainedModel, course: TrainedCourse) -> Iterator[tuple[int, Array, dict[str, Array], Array, Array]]:
    """Yield updates, success, inner products by coordinates, mean squared scores and states' cosines, from the start on."""
    start = data.courses[ASCENTS[0]]
    for one, places in ((start, [0]), (course, np.flatnonzero(course.updates > 0))):
        for place in places:
            grams = {"balanced": one.gram[place], "own": one.own_gram[place]}
            yield int(one.updates[place]), one.success[place], grams, one.powers[place], one.states[place]


def linear_course(data: TrainedModel, updates: list[int], divided: bool, stride: float) -> Iterator[tuple[float, Array]]:
    """Yield mean success and cosines of the linear policy with the features of the start, which ascends exact gradients."""
    count, answers = data.probabilities.shape
    kernel = data.kernel.reshape(count * answers, -1)
    right = np.eye(answers)[gt.data.arithmetic().answers[data.questions[:count]]]
    logits, step = np.log(data.probabilities), 0.0
    for update in range(updates[-1] + 1):
        now = state(logits, right)
        if update in updates:
            covectors = now.covectors
            gram = np.einsum("ma,manb,nb->mn", covectors, data.kernel, covectors)
            yield float(now.value.mean()), cosines_of(gram)
        push = now.covectors / now.deviation[:, None] if divided else now.covectors
        moved = (kernel @ push.ravel()).reshape(count, answers) / count
        step = step or stride / float(np.sqrt((moved**2).sum(axis=1).mean()))
        logits = logits + step * moved


def fisher_traces(success: Array, powers: Array) -> dict[str, Array]:
    """Return the trace of each question's Fisher matrix, E ||W||^2, and that weighted by A^2, given success (M,)."""
    wrong, right = powers.T
    plain = (1.0 - success) * wrong + success * right
    weighted = (1.0 - success) * success**2 * wrong + success * (1.0 - success) ** 2 * right
    return {"Fisher, trace": plain, "weighted, trace": weighted}


def compare(settings: Settings) -> Iterator[Comparison | dict[str, Any]]:
    """Yield what is measured along a course, and what is stated of its start and end."""
    trained, name = settings["trained"], settings["course"]
    data, where = trained_model(trained), f"{trained}, {name}"
    looks = list(whole(data, data.courses[name]))
    shares: dict[str, list[float]] = {"balanced": [], "own": []}
    for update, success, grams, _, states in looks:
        at = {"trained": trained, "course": name, "update": update, "success": float(success.mean())}
        for coordinates, gram in grams.items():
            between = cosines_of(gram)
            shares[coordinates].append(near_orthogonal(between))
            yield at | {"coordinates": coordinates, "quantity": f"share below {NEAR:g}", "estimate": shares[coordinates][-1]}
            yield at | {"coordinates": coordinates, "quantity": "mean |cos|", "estimate": float(np.abs(between).mean())}
        yield at | {"quantity": "states' mean |cos|", "estimate": float(np.abs(cosines_of(states)).mean())}
    for coordinates, course in shares.items():
        yield DRIFT.compare(f"{where}, {coordinates} coordinates", course[-1] - course[0], -FALL, broken=0.0)
    if name in ASCENTS:
        yield from _of_gradients(where, shares)
        if name == ASCENTS[0]:
            yield from _of_start(trained, shares)
        yield from _of_states(where, looks[0][-1], looks[-1][-1])
        yield from _of_curvature(where, np.array([look[1] for look in looks]), np.array([look[3] for look in looks]))
        yield from _of_features(trained, name, shares["balanced"][-1])


def _of_gradients(where: str, shares: dict[str, list[float]]) -> Iterator[Comparison]:
    """Yield the printed shares at three times; the control's gradients are the same."""
    for coordinates, course in shares.items():
        times = zip(("start", "middle", "end"), (0, len(course) // 2, -1), PRINTED_NEAR, strict=True)
        for time, place, printed in times:
            yield ORTHOGONAL_GRADIENTS.compare(f"{where}, {coordinates} coordinates, {time}", course[place], printed, broken=0.0)


def _of_start(trained: str, shares: dict[str, list[float]]) -> Iterator[Comparison]:
    """Yield the phases' premise at the start; the control's gradients are the same."""
    for coordinates, course in shares.items():
        yield PREMISE.compare(f"{trained}, {coordinates} coordinates", -course[0], -ORTHOGONAL, broken=0.0)


def _of_states(where: str, start: Array, end: Array) -> Iterator[Comparison]:
    """Yield the shares of states that are not orthogonal; the control's states are all the same."""
    for time, states in (("start", start), ("end", end)):
        yield STATES.compare(f"{where}, {time}", 1.0 - near_orthogonal(cosines_of(states), BELOW), MANY, broken=1.0)


def _of_curvature(where: str, success: Array, powers: Array) -> Iterator[Comparison]:
    """Yield correlations of variances and curvatures, over questions at the start and end, and over the course."""
    variances = success * (1.0 - success)
    course = [fisher_traces(now, power) for now, power in zip(success, powers, strict=True)]
    for what in course[0]:
        for time, place in (("start", 0), ("end", -1)):
            own = [_correlation(each, course[place][what]) for each in (variances[place], np.roll(variances[place], 1))]
            yield WITHIN.compare(f"{where}, {what}, {time}", own[0], PRINTED, broken=own[1])
    along = np.array([now["Fisher, trace"] for now in course])
    found, broken = (
        float(np.mean([_correlation(*pair) for pair in zip(variances.T, each.T, strict=True)]))
        for each in (along, np.roll(along, 1, axis=1))
    )
    yield ACROSS.compare(where, -found, -STRONG, broken=-broken)


def _correlation(one: Array, other: Array) -> float:
    return float(np.corrcoef(one, other)[0, 1])


def _of_features(trained: str, name: str, end: float) -> Iterator[Comparison | dict[str, Any]]:
    """Yield the course of the linear policy with the features of the start, and how much lower the learned ones end."""
    data, divided = trained_model(trained), name == ASCENTS[1]
    updates, last = data.courses[name].updates.tolist(), []
    for stride in (STRIDE, SLOWER * STRIDE):
        shares = []
        for update, (success, between) in zip(updates, linear_course(data, updates, divided, stride), strict=True):
            shares.append(near_orthogonal(between))
            if stride == STRIDE:
                at = {"trained": trained, "course": f"{name}, features of the start", "update": update, "success": success}
                yield at | {"coordinates": "balanced", "quantity": f"share below {NEAR:g}", "estimate": shares[-1]}
        last.append(shares[-1])
    yield FEATURES.compare(f"{trained}, {name}", end - last[0], -MORE, broken=last[1] - last[0])
