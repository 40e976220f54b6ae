"""U7, U8, U10, U18: the mean gap during training and its bounds.

The mean suboptimality gap of training runs is compared with the bounds, with the exact recursion, and with the rates. The
controls are a bound whose floor has mu/L for L/mu, a learner that descends, and steps half too long. Others are a gap that falls
as the square of log n over n, and the largest curvature at the maximiser for the least one.
"""

from functools import cache
from itertools import product
from math import ceil

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence import Evidence
from grpo_theory.evidence.reading import evidence, summary
from grpo_theory.exact import largest_error, longest_estimate, region, steepest_ray
from grpo_theory.harness import check, rows, run
from grpo_theory.theory import constant_step_bound, gap_recursion, harmonic_step_bound, linearise, recursion_bound
from simulations.kernels import kernel_at
from simulations.maximum import curvatures, maximum
from simulations.seeds import seed_of
from simulations.statements import stated
from simulations.training.grid import doubling

PROBLEMS, ESTIMATORS = ("kl-tabular", "kl-linear", "conflict"), ("rloo", "oracle", "reinforce")
STATED = {"constant": ("U7", "U7/sharp"), "harmonic": ("U8", "U8/sharp")}
"""The bound and the sharp prediction of each schedule."""
SCHEDULES = tuple(STATED)
STEPS = 4096
RUNS, QUICK_RUNS, CHUNK_RUNS = {"kl-tabular": 2048, "kl-linear": 6144, "conflict": 4096}, 256, 2048
"""By the limits of a run, with twice as many on kl-tabular, none of its verdicts is within two half-widths of its margin."""
TURNED, TURNED_RUNS, LONGER_RUNS = kernel_at("turned_mean", 1.0, "rloo, turned round"), 64, 1024
"""The learner of U8's control descends: a sign that is wrong."""
LONGER = 1.5
"""The learner of the sharp predictions' control takes steps that are half too long."""
LATE = {"constant": 2, "harmonic": 16}
"""The rates are read from this fraction of the steps on."""
CONSTANTS = {"L": "L", "mu": "mu", "M": "M", "steepest ray": "ray", "first step": "step"}
"""The constants over the ball, by what the facts of a claim call them."""
BETWEEN = 64
"""Numbers of steps, spaced by ratio, at which the laws are computed beside the checkpoints."""
RADIUS, START = 1.0, 0.9


def cases(quick):
    """Training runs from the edge of a ball around the maximiser, projected onto it."""
    problems, estimators = (PROBLEMS[::2], ESTIMATORS[:1]) if quick else (PROBLEMS, ESTIMATORS)
    sizes = {"steps": STEPS, "batch_size": 1, "group_size": 4}
    return [
        {"problem": problem, "estimator": estimator, "schedule": kind, "runs": QUICK_RUNS if quick else RUNS[problem]} | sizes
        for problem, kind, estimator in product(problems, SCHEDULES, estimators)
    ]


@cache
def surroundings(name):
    """Return the constants over the ball, enlarged by a first step of at most 1/(2L)."""
    problem, best, _ = maximum(name)
    reach = longest_estimate(problem, best, radius=RADIUS) / (2.0 * curvatures(name)[0].max())
    return region(problem, best, radius=RADIUS, reach=reach)


@cache
def largest_noise(name, estimator, **sizes):
    """Return the largest error over the ball."""
    problem, best, _ = maximum(name)
    return largest_error(problem, best, estimator, radius=RADIUS, **sizes)


def plan(name, kind, factor=1.0):
    """Return a constant step 1/(50 L), or beta/(i + i_0) with beta = 1/mu and a first step of at most 1/(2L), times a factor."""
    ball = surroundings(name)
    if kind == "constant":
        return gt.Constant(factor * 0.02 / ball.smoothness)
    return gt.Harmonic(factor / ball.pl, ceil(2.0 * ball.smoothness / ball.pl))


@cache
def first_ray(name, kind):
    """Return the steepest ray within the first step of the ball, the longest that is taken."""
    problem, best, _ = maximum(name)
    reach = float(plan(name, kind).steps(1)[0]) * longest_estimate(problem, best, radius=RADIUS)
    return steepest_ray(problem, best, radius=RADIUS + reach)


def moments(steps):
    """Return the checkpoints, and numbers of steps between them so close that a curve through all is smooth."""
    between = np.geomspace(1.0, doubling(steps)[-1], BETWEEN).round().astype(int)
    return sorted({*doubling(steps), *between.tolist()})


def start_of(name):
    """Return the start: along the direction of least curvature, where progress is slowest."""
    return maximum(name)[1] + START * RADIUS * curvatures(name)[1][:, 0]


def predict(name, estimator, kind, steps, **sizes):
    """Return the constants over the ball; on a fine grid of steps the exact recursion's gap, the bounds and the broken bound."""
    problem, best, highest = maximum(name)
    ball, schedule, n = surroundings(name), plan(name, kind), np.array(moments(steps))
    noise = largest_noise(name, estimator, **sizes)
    start, taken = start_of(name), schedule.steps(steps)
    start_gap = highest - float(gt.objective(problem, start))
    linear = linearise(problem, best, estimator, **sizes)
    deviation = (start - best) @ linear.directions
    if kind == "constant":
        offset = 0
        turned = (ball.pl / ball.smoothness) ** 2 * noise  # whose floor is that of M with mu/L for L/mu
        bound, wrong = (constant_step_bound(ball, level, schedule.step, start_gap, n) for level in (noise, turned))
    else:
        offset = schedule.offset
        bound = wrong = harmonic_step_bound(ball, noise, schedule.step_scale, n, offset=offset)
    constants = {"L": ball.smoothness, "mu": ball.pl, "M": noise, "ray": first_ray(name, kind), "step": float(taken[0])}
    gap = gap_recursion(linear, taken, np.outer(deviation, deviation))[n - 1]
    gaps = {"estimate": gap, "iterated": recursion_bound(ball, noise, taken, start_gap)[n - 1], "bound": bound, "wrong": wrong}
    return constants | {"least": linear.curvatures.min(), "most": linear.curvatures.max(), "offset": offset}, gaps


@run(runs=CHUNK_RUNS)
def trained(problem, estimator, schedule, steps, runs, rng, chunk, **sizes):
    """Train; return the gaps at the checkpoints, and d(theta, Theta*)^2 at a late step and at the end.

    The first chunk predicts the gaps too, and trains the learner whose steps are too long and, with steps that fall, the one that
    descends. Fewer steps are the first of more, to the bit.
    """
    at, best, highest = maximum(problem)

    def train(number, learner=estimator, factor=1.0, replications=runs):
        layout = sizes | {"steps": number, "replications": replications, "checkpoints": doubling(number), "workers": 1}
        where = at, start_of(problem), learner, plan(problem, schedule, factor)
        return gt.simulate_training(*where, **layout, rng=seed_of(rng), ball=gt.Ball(best, RADIUS))

    training = train(steps)
    ends = [(end.theta - best) @ curvatures(problem)[1] for end in (train(steps // LATE[schedule]), training)]
    found = {"gap": highest - training.objectives, "distance": np.stack([np.sum(end**2, axis=1) for end in ends], axis=1)}
    if chunk == 0:
        found["constants"], found["laws"] = predict(problem, estimator, schedule, steps, **sizes)
        found["longer"] = highest - train(steps, factor=LONGER, replications=min(runs, LONGER_RUNS)).objectives
        if schedule == "harmonic":
            found["turned"] = highest - train(steps, TURNED, replications=TURNED_RUNS).objectives
    return found


@rows(of=trained, cases=cases)
def curves(found, steps):
    """One row for each checkpoint; the laws on a fine grid."""
    for n, sample in zip(doubling(steps), found["gap"].T, strict=True):
        yield {"quantity": "gap", "n": n} | summary(sample)
    laws = found["laws"]
    for place, n in enumerate(moments(steps)):
        yield {"quantity": "law", "n": n} | {name: laws[name][place] for name in ("estimate", "iterated", "bound")}


@check(
    *stated("U7", "U7/sharp", "U8", "U8/sharp"),
    of=trained,
    cases=cases,
    broken={"wrong": True},
    setting="{problem} ({estimator})",
)
def bounds(found, schedule, steps, wrong=False):
    """The bound at the checkpoint where it comes nearest to failing, and the sharp prediction at the end.

    The broken bound of a constant step has mu/L for L/mu in its floor; with beta/n the learner's sign is wrong. The latter bound
    is at least 15 times the gap, so no check of it could tell that its M is too small by less. For that there is `tight_bound`.
    The broken steps of the sharp prediction are too long.
    """
    falls, own = schedule == "harmonic", found["gap"][:, -1].mean()
    facts = {name: found["constants"][column][0] for name, column in CONSTANTS.items()}
    if falls:
        facts["gap of the control / gap"] = found["turned"][:, -1].mean() / own
    bound = found["laws"]["wrong" if wrong else "bound"][np.isin(moments(steps), doubling(steps))]
    sample = found["turned" if wrong and falls else "gap"]
    ratios = [evidence(summary(ratio), 1.0) for ratio in (sample / bound).T]
    nearest = max(ratios, key=lambda one: abs(one.estimate + 5.0 * one.standard_error))
    # Runs that have all been projected onto one point have no spread; their gap is exact.
    runs = nearest.replications if nearest.standard_error > 0.0 else 0
    nearest = Evidence(nearest.estimate, 1.0, nearest.standard_error, replications=runs, comparisons=len(ratios))
    ends = evidence(summary(found["longer" if wrong else "gap"][:, -1]), found["laws"]["estimate"][-1])
    beside = {"gap of the control / gap": found["longer"][:, -1].mean() / own}
    return dict(zip(STATED[schedule], ((nearest, facts), (ends, beside)), strict=True))


def falling(quick):
    """The runs whose steps fall."""
    return [one for one in cases(quick) if one["schedule"] == "harmonic"]


@check(*stated("U10", "U10/distance"), of=trained, cases=falling, broken={"power": 2}, setting="{problem} ({estimator})")
def rates(found, schedule, steps, power=0):
    """Slopes on a log scale, by least squares and the delta method; broken: a gap that falls as log(n)^2/n."""
    n, sides = np.array(doubling(steps)), {}
    late = n >= steps // LATE[schedule]
    times = n[late] + found["constants"]["offset"][0]
    read = {"U10": (times, found["gap"][:, late]), "U10/distance": (times[[0, -1]], found["distance"])}
    for name, (at, sample) in read.items():
        values, centred = sample * np.log(at) ** power, np.log(at) - np.log(at).mean()
        weights, means = centred / (centred @ centred), values.mean(axis=0)
        influence = weights / means
        error = np.sqrt(influence @ np.cov(values.T) @ influence / len(values))
        sides[name] = (weights @ np.log(means), error, len(values)), -1.0
    return sides


def first_of_each(quick):
    """The first case of each problem."""
    return list({one["problem"]: one for one in reversed(cases(quick))}.values())[::-1]


@check(*stated("U18", "U18/order"), of=trained, cases=first_of_each, broken={"wrong": True}, setting="{problem}")
def constants(found, wrong=False):
    """U18 on the constants over the ball; broken: L for mu, and the largest curvature against the least."""
    at = {name: values[0] for name, values in found["constants"].items()}
    facts = {"L": at["L"], "mu": at["mu"], "least curvature": at["least"]}
    order = (at["most"], at["least"]) if wrong else (at["mu"], at["L"])
    return {"U18": (at["L" if wrong else "mu"], at["least"], facts), "U18/order": (*order, facts)}
