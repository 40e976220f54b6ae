"""SmolLM2, its last block or adapters in all blocks trained: what the planner recommends for a step from a log of the start.

The shipped records of `gt.data.trained_model` judge by efficiencies of one update, which are exact. A log has 8 responses to each
of the 40 questions, drawn from the model at the start, with sketches of 128 numbers. In the control groups are four times as
large. Beside it the planner is asked with permuted rewards, which tell nothing of gradients.
"""

from functools import cache

import numpy as np

from grpo_theory.data import trained_model
from grpo_theory.evidence import Share
from grpo_theory.evidence.reading import summary
from grpo_theory.harness import check, rows, run
from simulations.plan.run_worlds import LOGGED, PERMUTED, PLANNED, ask, draw_log, problem_at_start, sampler
from simulations.runs.frontier_statements import LOST
from simulations.runs.recorded_scores import PLACES, Scores, efficiency
from simulations.statements import stated

STEP = stated("plan/step/trained model")

TRAINED = ("last block", "adapters")
ESTIMATORS, RESPONSES = ("dr_grpo", "grpo"), 128
SIZES, LARGER = (2, 4, 8, 16, 32, 64), 4
"""The group sizes that are told apart, and the factor of the broken planner."""
LOGS, QUICK_LOGS = 256, 4
MISLED = 0.1
"""One log of ten may mislead: more often, and gradients would not be worth their logging."""


def cases(quick):
    """Each part that learns, for each estimator."""
    for name in ESTIMATORS:
        for trained in TRAINED:
            data = trained_model(trained).provenance["sha256"]
            yield {"trained": trained, "estimator": name, "logs": QUICK_LOGS if quick else LOGS, "data": data}


def places(quick):
    """Each place of each course."""
    return [one | {"place": place} for one in cases(quick) for place in PLACES]


@run()
def told(trained, estimator, logs, data, rng):
    """Return the sizes that are recommended from logs of the start, by arm."""
    case = problem_at_start(trained)
    responses, prompts = sampler(case, case.theta), np.arange(case.policy.n_prompts)
    found = [ask(draw_log(responses, prompts, LOGGED, rng), estimator, RESPONSES, SIZES, rng) for _ in range(logs)]
    return {arm: [one[arm] for one in found] for arm in (PLANNED, PERMUTED)}


@cache
def lost_step(trained, estimator, place):
    """Return the share of the highest exact efficiency that each size lacks, at the start or on the way."""
    course, number = PLACES[place]
    one = trained_model(trained).courses[course.format(estimator)]
    scores = Scores(one.success[number], one.gram[number], one.powers[number])
    values = np.array([efficiency(scores, estimator, RESPONSES // size, size) for size in SIZES])
    return 1.0 - values / values.max()


@check(STEP, of=told, cases=places, broken={"larger": LARGER}, setting="{trained}, {estimator}, {place}")
def misled(found, trained, estimator, place, larger=1):
    """How many logs mislead a step."""
    sizes = np.minimum(larger * found[PLANNED], SIZES[-1])
    lost = lost_step(trained, estimator, place)[np.searchsorted(SIZES, sizes)]
    return Share(float((lost > LOST).mean()), MISLED, replications=len(lost))


@rows(of=told, cases=cases)
def losses(found, trained, estimator):
    """What recommended and fixed sizes lose of the efficiency, and how often each was recommended."""
    always = {f"always {size}": np.array([size]) for size in SIZES}
    for arm, sizes in found.items():
        for size in SIZES:
            yield {"quantity": "recommended", "arm": arm, "size": size} | summary((sizes == size).astype(float))
    for place in PLACES:
        each = lost_step(trained, estimator, place)
        for arm, sizes in {**found, **always}.items():
            lost_there = each[np.searchsorted(SIZES, sizes)]
            at = {"place": place, "arm": arm, "against": "best"}
            yield at | {"quantity": "efficiency lost"} | summary(lost_there)
            if arm in found:
                yield at | {"quantity": "misled"} | summary((lost_there > LOST).astype(float))
