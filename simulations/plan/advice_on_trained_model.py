"""SmolLM2, its last block or adapters in all blocks trained: what the planner recommends from a log of the start, and its loss.

The shipped records of `gt.data.trained_model` judge. They have efficiencies of one update, which are exact, and success at the
end of runs with Adam at equal responses. A log has 8 responses to each of the 40 questions, drawn from the model at the start.
For a step it has sketches of 128 numbers. For a run it has rewards alone, which do not depend on what is going to learn. Each
size is at its best of the rates tried. All sizes have three seeds, or ten, which decide nothing at the level of the whole report:
their limits are 95% limits. A negative loss is a lead over the best other size.

In the control groups are four times as large, and eight times for a run. Beside it the planner is asked for a step with permuted
rewards, which tell nothing of gradients.
"""

from functools import cache

import numpy as np

from grpo_theory.data import trained_model
from grpo_theory.evidence import Share
from grpo_theory.evidence.reading import summary
from grpo_theory.harness import check, rows, run
from grpo_theory.plan.run_advice import SIZES, advise_run
from grpo_theory.validation import Array
from simulations.best_rate import lead, with_limits
from simulations.plan.run_regret import Part, summary_of
from simulations.plan.run_worlds import LOGGED, PERMUTED, PLANNED, ask, draw_log, problem_at_start, sampler
from simulations.runs.frontier_statements import LOST
from simulations.runs.recorded_runs import arms_of
from simulations.runs.recorded_scores import PLACES, Scores, efficiency
from simulations.seeds import child_seed, seed_of
from simulations.statements import stated

STEP, RUN = stated("plan/step/trained model", "plan/run/trained model")
FEW = "three or ten seeds say nothing at the level of the whole report, not even of sizes that lose 20 points"
POWERLESS = {(RUN.id, "*"): FEW}

TRAINED = ("last block", "adapters")
ESTIMATORS, RESPONSES = ("dr_grpo", "grpo"), 128
MARGIN, TOO_LARGE, LARGER = 0.02, 8, 4
"""As where worlds and networks judge (`planned_run`): two points of success, and the factors of a broken planner."""
LENGTHS = (12, 96)
"""Updates: an eighth of a run, and all of it, 38 and 307 responses for each question."""
LOGS, RUN_LOGS = 256, 3
"""For a step, and for a run, where each log takes the planner ten seconds."""
MISLED = 0.1
"""One log of ten may mislead: more often, and gradients would not be worth their logging."""


def cases(quick):
    """For each estimator a step of each part that learns, and each length of a run."""
    logs, run_logs, lengths = (4, 1, LENGTHS[:1]) if quick else (LOGS, RUN_LOGS, LENGTHS)
    data = {trained: trained_model(trained).provenance["sha256"] for trained in TRAINED}
    for name in ESTIMATORS:
        for trained, sha in data.items():
            yield {"asked": "step", "trained": trained, "estimator": name, "updates": 1, "logs": logs, "data": sha}
        for updates in lengths:
            yield {"asked": "run", "estimator": name, "updates": updates, "logs": run_logs, "data": data[TRAINED[0]]}


def steps(quick):
    """Each step at each place of its course."""
    return [one | {"place": place} for one in cases(quick) if one["asked"] == "step" for place in PLACES]


def runs(quick):
    """Each length of a run, of each part that learns."""
    return [one | {"learns": trained} for one in cases(quick) if one["asked"] == "run" for trained in TRAINED]


@run()
def told(asked, estimator, updates, logs, data, rng, trained=TRAINED[0]):
    """Return the sizes that are recommended from logs of the start: of a step by arm, of a run from rewards alone."""
    case = problem_at_start(trained)
    responses, prompts = sampler(case, case.theta), np.arange(case.policy.n_prompts)
    if asked == "run":
        drawn = [np.random.default_rng(child_seed(seed_of(rng), log) if logs > 1 else seed_of(rng)) for log in range(logs)]
        counts = [draw_log(responses, prompts, LOGGED, own).counts for own in drawn]
        return {PLANNED: [advise_run(one, updates * RESPONSES, estimator=estimator).group_size for one in counts]}
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


def ends_of(data, estimator, updates):
    """Return success after some updates by group size, (rates, seeds), of the seeds that all sizes have."""
    runs = [run for run in data.runs if (run.arm.estimator, run.arm.reuse) == (estimator, 1)]
    shared = set.intersection(*({run.seed for run in runs if run.arm.group_size == size} for size in SIZES))
    found, look = arms_of(run for run in runs if run.seed in shared), data.updates.tolist().index(updates)
    return {size: found[estimator, size][..., look] for size in SIZES}


def lost(ends, told, against=None):
    """Return what sizes (L,), one from each log, lose on average to a size, or to the best of the others than each if None."""
    sides: list[Array] = []
    contrast, by_log = [], np.zeros(len(told))
    for size in np.unique(told):
        others = [values for other, values in ends.items() if (other != size if against is None else other == against)]
        pair = (np.concatenate(others), ends[int(size)])
        sides += pair
        contrast += [np.mean(told == size), -np.mean(told == size)]
        by_log[told == size] = lead(pair, (1.0, -1.0))["estimate"]
    row = lead(sides, contrast)
    if not row["standard_error"]:  # one size against itself
        return row
    between = Part(float(by_log.var(ddof=1)) / len(told), len(told) - 1.0) if len(told) > 1 else Part(0.0)
    runs = Part(row["standard_error"] ** 2, row["replications"] - 1.0)
    return row | with_limits(summary_of(row["estimate"], (runs, between)))


@check(STEP, of=told, cases=steps, broken={"larger": LARGER}, setting="{trained}, {estimator}, {place}")
def misled(found, trained, estimator, place, larger=1):
    """How many logs mislead a step."""
    sizes = np.minimum(larger * found[PLANNED], SIZES[-1])
    lost = lost_step(trained, estimator, place)[np.searchsorted(SIZES, sizes)]
    return Share(float((lost > LOST).mean()), MISLED, replications=len(lost))


@check(RUN, of=told, cases=runs, broken={"larger": TOO_LARGE}, setting="{learns}, {estimator}, {updates} updates")
def shortfall(found, learns, estimator, updates, larger=1):
    """The success that a run's size loses."""
    row = lost(ends_of(trained_model(learns), estimator, updates), np.minimum(larger * found[PLANNED], SIZES[-1]))
    return (row["estimate"], row["standard_error"], row["replications"]), MARGIN


@rows(of=told, cases=cases)
def losses(found, asked, estimator, updates, trained=None):
    """What recommended and fixed sizes lose, of efficiency or of success, and how often each was recommended."""
    always = {f"always {size}": np.array([size]) for size in SIZES}
    for learns in TRAINED if trained is None else (trained,):
        for arm, sizes in found.items():
            for size in SIZES:
                at = {"trained": learns, "quantity": "recommended", "arm": arm, "size": size}
                yield at | summary((sizes == size).astype(float))
        for place in PLACES if asked == "step" else ():
            each = lost_step(learns, estimator, place)
            for arm, sizes in {**found, **always}.items():
                lost_there = each[np.searchsorted(SIZES, sizes)]
                at = {"trained": learns, "place": place, "arm": arm, "against": "best"}
                yield at | {"quantity": "efficiency lost"} | summary(lost_there)
                if arm in found:
                    yield at | {"quantity": "misled"} | summary((lost_there > LOST).astype(float))
        if asked == "run":
            ends, at = ends_of(trained_model(learns), estimator, updates), {"trained": learns, "quantity": "lost"}
            for size, values in ends.items():
                yield at | {"quantity": "success", "arm": f"always {size}"} | lead((values,))
            for arm, sizes in {PLANNED: found[PLANNED], **always}.items():
                yield at | {"arm": arm, "against": "best"} | lost(ends, sizes)
            for size in SIZES:
                yield at | {"arm": PLANNED, "against": f"always {size}"} | lost(ends, found[PLANNED], size)
