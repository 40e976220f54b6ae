"""N9 to N12: SmolLM2 as its last block and head, or adapters in all blocks, learn: curvature, states, gradients, exact.

The shipped records of `gt.data.trained_model` are read. They have scores of 40 questions along two ascents on exact gradients,
with and without division by the questions' standard deviations. They also have scores along runs with Adam that sample their
answers. Where the last block learns, the states below it are frozen; adapters (LoRA) on the matrices of all blocks move all
states.

In the controls variances are those of other questions, states or gradients are all the same, or questions share nothing: their
cosines stay 0. For what learning the features adds, the control is the linear policy with the features of the start, at another
step size.
"""

from itertools import product

import numpy as np

import grpo_theory as gt
from grpo_theory.data import trained_model
from grpo_theory.harness import check, rows
from simulations.normalisation.heads import NEAR, cosines, near_orthogonal, state
from simulations.normalisation.phases import FALL, MORE, ORTHOGONAL, PRINTED_NEAR
from simulations.statements import stated

WITHIN, ACROSS, STATES = stated("N9/within", "N9/trained model", "N10/trained model")
GRADIENTS, DRIFT = stated("N11/printed", "N11/trained model")
FEATURES, PREMISE = stated("N11/trained model, features", "N12/I, trained model")

TRAINED, ASCENTS = ("last block", "adapters"), ("plain", "divided")
SAMPLED = ("dr_grpo, G = 4", "grpo, G = 4", "dr_grpo, G = 64", "grpo, G = 64")
POWERLESS = {
    ("N9/trained model", "adapters, divided"): "37 of 40 questions are learned within 80 updates, so that any question's "
    "variance falls with it",
    ("N9/within", "last block, divided, weighted, trace, end"): "another question's curvature goes with the own variance "
    "nearly as the printed correlation has it",
}
STRIDE, SLOWER = 0.1, 0.5
"""The first update's root mean square change of a question's logits, as the records were made; and the control's factor."""
MANY, BELOW, PRINTED = 0.1, 0.15, 0.34
"""As printed of representations, and of the correlation of variance and curvature."""
STRONG = 0.5
"""A correlation of a half: a quarter of the one's changes would tell of the other's."""
ENDS = {"start": 0, "end": -1}


GRAMS = {"balanced": "gram", "own": "own_gram"}
"""By coordinates, the records of the inner products of questions' gradients."""
CURVATURES = ("Fisher, trace", "weighted, trace")
COURSE, COORDINATES = "{trained}, {course}", "{trained}, {course}, {coordinates} coordinates"
AT_TIME = COORDINATES + ", {time}"
"""What cases are called."""


def each(courses, **parts):
    """Return what lists these courses of each set of records, with each value of further keys; quick reads one ascent of each."""

    def listed(quick):
        for trained, name, *values in product(TRAINED, courses[:1] if quick else courses, *parts.values()):
            case = {"trained": trained, "course": name, "data": trained_model(trained).provenance["sha256"]}
            yield case | dict(zip(parts, values, strict=True))

    return listed


def recorded(trained, course, what):
    """Return a record along a course, from the start on."""
    courses = trained_model(trained).courses
    return np.concatenate([getattr(courses[ASCENTS[0]], what)[:1], getattr(courses[course], what)[courses[course].updates > 0]])


def cosines_of(products, alike=None):
    """Return the cosines of all pairs, (M (M - 1)/2,), given inner products (M, M); or as if all had one cosine."""
    found = cosines(products, np.ones((len(products), 1)))
    return found if alike is None else np.full_like(found, alike)


def shares(trained, course, coordinates, alike=None):
    """Return the share of near-orthogonal pairs of gradients at each look."""
    return [near_orthogonal(cosines_of(gram, alike)) for gram in recorded(trained, course, GRAMS[coordinates])]


@check(DRIFT, cases=each((*ASCENTS, *SAMPLED), coordinates=GRAMS), broken={"alike": 0.0}, setting=COORDINATES)
def drift(trained, course, coordinates, alike=None):
    """By how much the share of near-orthogonal gradients falls; of questions that share nothing it does not."""
    looks = shares(trained, course, coordinates, alike)
    return looks[-1] - looks[0], -FALL


@check(GRADIENTS, cases=each(ASCENTS, coordinates=GRAMS, time=PRINTED_NEAR), broken={"alike": 1.0}, setting=AT_TIME)
def gradients(trained, course, coordinates, time, alike=None):
    """The printed shares at three times."""
    looks = shares(trained, course, coordinates, alike)
    return looks[{"start": 0, "middle": len(looks) // 2, "end": -1}[time]], PRINTED_NEAR[time]


@check(PREMISE, cases=each(ASCENTS[:1], coordinates=GRAMS), broken={"alike": 1.0}, setting="{trained}, {coordinates} coordinates")
def premise(trained, course, coordinates, alike=None):
    """The phases' premise at the start."""
    return -shares(trained, course, coordinates, alike)[0], -ORTHOGONAL


@check(STATES, cases=each(ASCENTS, time=ENDS), broken={"alike": 1.0}, setting=COURSE + ", {time}")
def states(trained, course, time, alike=None):
    """The share of states that are not orthogonal."""
    return 1.0 - near_orthogonal(cosines_of(recorded(trained, course, "states")[ENDS[time]], alike), BELOW), MANY


def variances_and_curvatures(trained, course, what):
    """Return the rewards' variances along a course, and the traces of Fisher matrices, E ||W||^2 or E A^2 ||W||^2, (T, M)."""
    right = recorded(trained, course, "success")
    wrong, powers = 1.0 - right, recorded(trained, course, "powers")
    squares = (right**2, wrong**2) if what == "weighted, trace" else (1.0, 1.0)
    return right * wrong, wrong * squares[0] * powers[..., 0] + right * squares[1] * powers[..., 1]


@check(WITHIN, cases=each(ASCENTS, what=CURVATURES, time=ENDS), broken={"other": 1}, setting=COURSE + ", {what}, {time}")
def over_questions(trained, course, what, time, other=0):
    """The correlation of variances with curvatures, or with another question's."""
    variances, curvatures = (values[ENDS[time]] for values in variances_and_curvatures(trained, course, what))
    return np.corrcoef(np.roll(variances, other), curvatures)[0, 1], PRINTED


@check(ACROSS, cases=each(ASCENTS), broken={"other": 1}, setting=COURSE)
def over_updates(trained, course, other=0):
    """The mean over questions of the correlation along the course, or with another question's curvature."""
    variances, traces = variances_and_curvatures(trained, course, CURVATURES[0])
    pairs = zip(variances.T, np.roll(traces, other, axis=1).T, strict=True)
    return -np.mean([np.corrcoef(*pair)[0, 1] for pair in pairs]), -STRONG


def linear_course(data, updates, divided, stride):
    """Yield mean success and cosines of the linear policy with the features of the start, which ascends exact gradients."""
    count, answers = data.probabilities.shape
    kernel = data.kernel.reshape(count * answers, -1)
    right = np.eye(answers)[gt.data.arithmetic().answers[data.questions[:count]]]
    logits, step = np.log(data.probabilities), 0.0
    for update in range(updates[-1] + 1):
        now = state(logits, right)
        if update in updates:
            yield now.value.mean(), cosines_of(np.einsum("ma,manb,nb->mn", now.logit_gradients, data.kernel, now.logit_gradients))
        push = now.logit_gradients / now.deviation[:, None] if divided else now.logit_gradients
        moved = (kernel @ push.ravel()).reshape(count, answers) / count
        step = step or stride / float(np.sqrt((moved**2).sum(axis=1).mean()))
        logits = logits + step * moved


def of_the_start(trained, course, stride=STRIDE):
    """Return the course of that policy: update, mean success and share of near-orthogonal gradients."""
    data = trained_model(trained)
    updates = data.courses[course].updates.tolist()
    looks = linear_course(data, updates, course == ASCENTS[1], stride)
    return [(update, success, near_orthogonal(between)) for update, (success, between) in zip(updates, looks, strict=True)]


@check(FEATURES, cases=each(ASCENTS), broken={"learns": False}, setting=COURSE)
def features(trained, course, learns=True):
    """How much lower than that of the linear policy the share ends where features are learned, or at another step size."""
    slower = of_the_start(trained, course, SLOWER * STRIDE)[-1][-1]
    end = shares(trained, course, "balanced")[-1] if learns else slower
    return end - of_the_start(trained, course)[-1][-1], -MORE


@rows(cases=each(ASCENTS))
def courses(trained, course):
    """The share of near-orthogonal gradients along ascents, of the model and of the linear policy."""
    updates, success = (recorded(trained, course, what) for what in ("updates", "success"))
    own = zip(updates, success.mean(axis=1), shares(trained, course, "balanced"), strict=True)
    for name, looks in ((course, own), (f"{course}, features of the start", of_the_start(trained, course))):
        for update, mean, share in looks:
            at = {"course": name, "update": update, "success": mean, "coordinates": "balanced"}
            yield at | {"quantity": f"share below {NEAR:g}", "estimate": share}
