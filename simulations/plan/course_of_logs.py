"""How often `grpo-theory read` tells a fall that is none, how often its turning points hold, and its limits of rare success.

Courses have 60 steps of 64 responses.  They rise and then stay level, are level, or fall from step 40 on.  Where difficulty
drifts, each step's success rate has a deviation of standard deviation 0.06 and correlation 0.7 with the step before.  That is as
large as the noise of 64 responses.  Success is rare in logs of 64 prompts with 4 responses.

In the controls a fall is told by eye: the last ten steps have 5 points less than the best ten.  A turning point has no limits but
itself, and limits of rare success are Student's.
"""

import numpy as np

from grpo_theory.checks.estimates import clustered_share, fit_course, mean_estimate
from grpo_theory.evidence import Share
from grpo_theory.evidence.reading import summary
from grpo_theory.harness import check, rows, run
from simulations.statements import stated

FALSE, TURNING, RARE = stated("read/false fall", "read/turning point", "read/rare success")
TOLD_WRONGLY, TURNING_MISSES, RARE_MISSES = 0.02, 0.1, 0.06
"""One wrong alarm in fifty logs; a turning point is for finding a checkpoint; 95% limits within a point."""
STEPS, RESPONSES, TURN, WINDOW = 60, 64, 40, 10
MATTERS = 0.05
"""Falls of fewer points are not told, as in `Reading.fallen`."""
DRIFT, ALIKE = 0.06, 0.7
COURSES = {
    "rises, then level": lambda step: 0.3 + 0.4 * np.minimum(step, 30) / 30,
    "level": lambda step: np.full(step.size, 0.5),
    "falls": lambda step: np.where(step <= TURN, 0.3 + 0.4 * step / TURN, np.maximum(0.7 - 0.03 * (step - TURN), 0.1)),
}
PROMPTS, SIZE, OFTEN, RATES = 64, 4, 0.2, (0.002, 0.1)
"""A fifth of the prompts has the higher success rate."""
LOGS, QUICK_LOGS, CHUNK = 2000, 200, 1000
EACH = (0.0, CHUNK), (DRIFT, LOGS)
"""Drifts, and logs of each: without drift an earlier run found less than a fifth of the errors that are allowed."""


def courses(quick, falls=None):
    """Each course, with and without drift: those that fall, those that do not, or all."""
    kinds = [one for one in COURSES if falls is None or (one == "falls") == falls]
    return [{"course": one, "drift": drift, "logs": QUICK_LOGS if quick else logs} for one in kinds for drift, logs in EACH]


def level_courses(quick):
    """Courses without a fall."""
    return courses(quick, falls=False)


def falling_courses(quick):
    """Courses that fall."""
    return courses(quick, falls=True)


def rare(quick):
    """Logs of rare success."""
    return [{"prompts": PROMPTS, "logs": 10 * QUICK_LOGS if quick else LOGS}]


@run(logs=CHUNK)
def told(course, drift, logs, rng):
    """Return which logs are told to fall, by the course and by eye, where the course's fall begins, and its limits."""
    from scipy.signal import lfilter  # slow to import

    step = np.arange(1.0, STEPS + 1)
    found = []
    for _ in range(logs):
        noise = rng.normal(size=STEPS) * np.append(1.0, np.full(STEPS - 1, (1.0 - ALIKE**2) ** 0.5))
        rates = np.clip(COURSES[course](step) + drift * lfilter([1.0], [1.0, -ALIKE], noise), 0.01, 0.99)
        means = rng.binomial(RESPONSES, rates) / RESPONSES
        line = fit_course(step, means, np.full(STEPS, float(RESPONSES)))
        fall = line.fall(MATTERS) if line else None
        seen = np.convolve(means, np.full(WINDOW, 1.0 / WINDOW), mode="valid")
        found.append([fall is not None, seen.max() - seen[-1] >= MATTERS, *(fall.since if fall else [np.nan] * 3)])
    return np.array(found)


@run(logs=CHUNK)
def rarely(prompts, logs, rng):
    """Return which limits of the mean success rate hold it: those of shares, and Student's."""
    truth = OFTEN * RATES[1] + (1.0 - OFTEN) * RATES[0]
    seen = rng.binomial(SIZE, np.where(rng.random((logs, prompts)) < OFTEN, RATES[1], RATES[0])) / SIZE
    limits = [(clustered_share(one, np.arange(prompts))[1:], mean_estimate(one)[1:]) for one in seen]
    return np.array([[low <= truth <= high for low, high in both] for both in limits])


def misses(held, most):
    """Return the evidence that limits, or what is told, is wrong at most so often, from which held (N,)."""
    return Share(float(1.0 - held.mean()), most, replications=held.size)


@check(FALSE, of=told, cases=level_courses, broken={"column": 1}, setting="{course}, drift {drift}")
def false_falls(found, column=0):
    """How often a course that does not fall is told to."""
    return misses(1.0 - found[:, column], TOLD_WRONGLY)


@check(TURNING, of=told, cases=falling_courses, broken={"width": 0.0}, setting="{course}, drift {drift}")
def turning_points(found, width=1.0):
    """How often the limits of the step at which a fall begins miss it, of the falls that are told."""
    since, low, high = found[found[:, 0] == 1.0, 2:].T
    held = (since - width * (since - low) <= TURN) & (since + width * (high - since) >= TURN)
    return misses(held, TURNING_MISSES)


@check(RARE, of=rarely, cases=rare, broken={"column": 1}, setting="{prompts} prompts of 4")
def rare_success(found, column=0):
    """How often limits of a rare success rate miss it."""
    return misses(found[:, column], RARE_MISSES)


@rows(of=told, cases=courses)
def falls_told(found):
    """How often a fall is told."""
    yield {"quantity": "told to fall"} | summary(found[:, 0])
    yield {"quantity": "told to fall by eye"} | summary(found[:, 1])
