"""How far a twin looks ahead of SmolLM2's last block: success along exact ascent, predicted from logs of the start.

The shipped records of `gt.data.trained_model` have one course without division that a twin can follow: steps along exact
gradients in balanced coordinates. A twin cannot follow runs with Adam, because sketches do not keep the coordinates in which Adam
scales. A log has 64 responses to each of the 40 questions, with sketches of 128 numbers. In the control sketches are twice as
long.
"""

from functools import partial

import numpy as np

import grpo_theory as gt
from grpo_theory.data import trained_model
from grpo_theory.evidence.reading import mean_of, summary
from grpo_theory.harness import check, rows, run
from simulations.plan.run_worlds import draw_log, problem_at_start, sampler
from simulations.statements import stated

REACH = stated("twin/trained model")
SLOW = "sketches twice as long are four times the learning rate, which makes up for features that do not learn"
POWERLESS = {(REACH.id, "80 updates"): SLOW}

STRIDE = 0.1
"""The recorded ascent's first update: the root mean square change of a question's logits, as the records were made."""
FULL, MISS = 64, 0.03
"""Logged responses to a question, and points of success that nobody would act on, as in `twin_reach`."""
LOOKS = (10, 20, 40, 80)
"""Updates after which the records know success; before the second, success has changed by less than the margin."""
LOGS, QUICK_LOGS = 128, 4
ARMS = {"twin": 1.0, "control": 2.0}
"""By what the sketches of each are multiplied; by less the control would do better than the twin, which is too slow."""


def cases(quick, looks=LOOKS[1:]):
    """The looks that are judged."""
    shared = {"logs": QUICK_LOGS if quick else LOGS, "data": trained_model().provenance["sha256"]}
    return [{"ahead": ahead, **shared} for ahead in looks]


def step_scale():
    """Return the step of the recorded ascent, along the gradient of mean success: its first update has a stated length."""
    case = problem_at_start()
    moved = case.policy.logit_map.logits(gt.moments(case, case.theta).gradient)
    return STRIDE / float(np.sqrt((moved**2).sum(axis=1).mean()))


def ascend(problem, step):
    """Return success at the looks of steps along the exact gradient of mean success."""
    theta, values = problem.theta.copy(), []
    for update in range(1, LOOKS[-1] + 1):
        theta = theta + step * gt.moments(problem, theta).gradient
        if update in LOOKS:
            values.append(float(gt.objective(problem, theta)))
    return values


def recorded():
    """Return the recorded success by number of updates."""
    course = trained_model().courses["plain"]
    return dict(zip(course.updates.tolist(), course.success.mean(axis=1).tolist(), strict=True))


@run()
def predicted(logs, data, rng):
    """Return the success at the looks, (logs, looks), that each arm predicts from each log."""
    case, step = problem_at_start(), step_scale()
    drawn, prompts = sampler(case, case.theta), np.arange(case.policy.n_prompts)
    taken = [draw_log(drawn, prompts, FULL, rng) for _ in range(logs)]
    return {
        arm: [ascend(gt.twin(log.with_scores(factor * log.known_scores)), step) for log in taken] for arm, factor in ARMS.items()
    }


@check(REACH, of=predicted, cases=cases, broken={"arm": "control"}, setting="{ahead} updates")
def reach(found, ahead, arm="twin"):
    """The mean miss where success has changed by more than the margin."""
    real = recorded()
    return mean_of(np.abs(found[arm][:, LOOKS.index(ahead)] - real[ahead])), MISS, {"change": real[ahead] - real[0]}


@rows(of=predicted, cases=partial(cases, looks=LOOKS))
def success(found, ahead):
    """Success by arm, how far the twin's misses it, and where it would be if the features stayed."""
    real, twin = recorded()[ahead], found["twin"][:, LOOKS.index(ahead)]
    yield {"quantity": "success", "arm": "real", "estimate": real}
    frozen = ascend(problem_at_start(), step_scale())[LOOKS.index(ahead)]
    yield {"quantity": "success", "arm": "features of the start", "estimate": frozen}
    yield {"quantity": "success", "arm": "twin"} | summary(twin)
    yield {"quantity": "miss", "arm": "twin"} | summary(np.abs(twin - real))
