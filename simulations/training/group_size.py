"""U9: the group size that trains the best policy, at fixed budgets.

Losses against the noise-free run at checkpoints of training are simulated and computed by the law. They show whether the best
group size changes with the budget and the schedule. They also judge the printed size and the law, and whether noise costs at all.

The controls have the largest or the worst group size, or a law that does not know that later steps damp noise. Others have runs
that are not done, or a noise-free run that is stopped early.
"""

import dataclasses
from itertools import permutations

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence import Evidence
from grpo_theory.evidence.reading import difference, distance, evidence, largest
from grpo_theory.harness import check, rows, run
from grpo_theory.theory import leave_one_out_parts
from simulations.seeds import seed_of
from simulations.statements import stated
from simulations.training.cases import CASE_AT, CASES, case_law, case_of, case_problem, case_settings, case_steps
from simulations.training.controlled import guide, losses, objectives_by_group_size
from simulations.training.grid import HALF_DOUBLING, on_grid

GROUP_SIZES = (2, 4, 8, 16, 32, 64, 128)
CHECKPOINTS = (1, 2, 4, 8, 16, 32)
*_, HALF_WAY, END = CHECKPOINTS
BUDGET, LARGEST = 1024, 4096
LARGER = {("linear", "Constant(8)"): (LARGEST,), ("kl-linear", "Constant(2)"): (2048, LARGEST)}
RUNS, CHUNK_RUNS, QUICK_RUNS = 256, 256, 64
CLOSE = dict.fromkeys((("linear", "Constant(8)"), ("linear", "Harmonic(120, 14)"), ("mixed", "Harmonic(60, 4)")), 1280)
CLOSE |= {("mixed", "Constant(8)"): 512, ("kl-tabular", "Constant(2)"): 64}
"""Where the usual number did not decide most rows, which say how many would; and where a quarter decides all."""
LAW_MARGIN = 0.2
"""A loss that is a fifth off is a budget that is a fifth off. It is a quarter of the way to the next one, which is twice as
large."""
REACH = 0.1
"""The second order's share of the loss up to which the first is trusted: half the margin, for the third may add as much again."""
SECOND_REACH = 0.4
"""That up to which the first two are: the third is then expected to be a sixth."""
EXPANDED = ("linear", "kl-linear", "kl-tabular")
"""Where a quick run finds the second order, with constant steps only: few parameters."""
LAW_BATCH = 64
"""Rivals of the printed group size have this many prompts in a batch or more."""
LAWS = stated("U9/policy-law", "U9/policy-law, beyond", "U9/second order")
PAIR, PLACE, SIZE = {"at": ("before", "after")}, "{problem}, {schedule}", ", G = {group_size}"
WHERE = PLACE + ", N = {budget}"


def cases(quick):
    """Every case at the budget of the paper's Figure 5, two of them at the larger budgets of its Table 2."""
    return [
        {"problem": place[0], "schedule": place[1], "budget": budget, "quick": quick}
        for place in list(CASE_AT)[: len(CASES)]
        for budget in (BUDGET, *(() if quick else LARGER.get(place, ())))
    ]


def pairs(quick):
    """Every schedule of a problem with every other, and the pairs of budgets."""
    usual = [one for one in cases(quick) if one["budget"] == BUDGET]
    both = [(one, other) for one, other in permutations(usual, 2) if one["problem"] == other["problem"]]
    return [one | {"other": other["schedule"], "later": BUDGET} for one, other in both] + budgets(quick)


def highest(scores):
    """Return the label of the highest score; raise if one is not a number."""
    return scores[scores == largest(scores)].index[0]


def budgets(quick):
    """The smallest budget with the largest."""
    usual = [one for one in cases(quick) if (one["problem"], one["schedule"]) in LARGER and one["budget"] == BUDGET and not quick]
    return [one | {"other": one["schedule"], "later": LARGEST} for one in usual]


def sized(listed):
    """Return the same cases with each group size."""
    return lambda quick: [one | {"group_size": size} for one in listed(quick) for size in GROUP_SIZES]


def from_to(problem, schedule, other, later, **_):
    """Return what a pair is called."""
    return f"{problem}, from {schedule} to {other}" if later == BUDGET else f"{problem}, {schedule}, from N = {BUDGET} to {later}"


def asked(problem, schedule, budget, quick, other="", later=0, at="", **_):
    """Return the settings of the runs of a case, or of the later one of a pair, and the number of chunks."""
    schedule, budget = (other, later) if at == "after" else (schedule, budget)
    usual = CLOSE.get((problem, schedule), RUNS)
    runs = QUICK_RUNS if quick else usual if budget == BUDGET else usual // 2
    chunk = min(runs, CHUNK_RUNS * BUDGET // budget)
    sizes = {"budget": budget, "group_sizes": list(GROUP_SIZES), "checkpoints": list(CHECKPOINTS), "runs": chunk}
    expanded = not quick or (problem in EXPANDED and schedule.startswith("Constant"))
    return case_settings(problem, schedule) | sizes | {"expanded": expanded}, runs // chunk


@run(dealt=asked)
def trained(rng, chunk, **settings):
    """Train with every group size; return objectives and controls, and the loss to second order with the first chunk."""
    case, checkpoints = case_of(settings), settings["checkpoints"]
    guides, steps = [guide(case_law(case, n)) for n in checkpoints], case_steps(case, checkpoints[-1])
    found = objectives_by_group_size(case_problem(case), guides, steps, settings, seed_of(rng))
    if chunk == 0 and settings["expanded"]:
        plans = np.repeat(np.array(settings["group_sizes"], dtype=np.float64)[:, None], len(steps), axis=1)
        found["second_order"] = case_law(case, len(steps)).second_order(settings["budget"], plans)
    return found


def law_without_damping(case, steps):
    """Return a law that is known to be wrong: every step's noise is weighed as if it stayed what it was to the end.

    What later steps do to it, the transport of the second derivative in docs/derivations.md, section 14, is left out.
    """
    law, problem = case_law(case, steps), case_problem(case)
    curvature = gt.hessian(problem, law.path[-1])
    weights = [
        [-0.5 * size**2 * np.vdot(curvature, part) for part in leave_one_out_parts(problem, theta)]
        for size, theta in zip(case_steps(case, steps), law.path, strict=False)
    ]
    return dataclasses.replace(law, constants=np.array(weights))


def measured(found, problem, schedule, budget):
    """Return the losses against the noise-free run, simulated and to first order, by checkpoint and group size."""
    laws = {n: case_law(CASE_AT[problem, schedule], n) for n in CHECKPOINTS}
    table = losses(found, GROUP_SIZES, {n: law.objective for n, law in laws.items()})
    table["prediction"] = [laws[n].loss(budget, size) for n, size in table.index]
    table.loc[END, "second_order"] = found.get("second_order", np.nan)
    return table


@rows(of=trained, cases=cases)
def curves(found, problem, schedule, budget):
    """One row for each checkpoint and group size."""
    yield from measured(found, problem, schedule, budget).reset_index().to_dict("records")


@check(*stated("U9/printed", "U9/noise-costs"), of=trained, cases=cases, broken={"wrong": True}, setting=WHERE)
def printed(found, problem, schedule, budget, wrong=False):
    """The printed group size of the start against the best by the law, and whether noise costs at all.

    Only checkpoints at which noise costs with every group size count. Of these, the sizes are compared where the law expects most
    of replacing the printed one. Rivals have a batch that is large enough for the law. Broken: the worst group size, and a
    noise-free run that is stopped early.
    """
    at, start = measured(found, problem, schedule, budget), case_problem(CASE_AT[problem, schedule])
    expected = at["prediction"].unstack()
    costs = expected[(expected > 0.0).all(axis=1)]
    size = on_grid(gt.group_size_law(start, start.theta).paper_optimum, costs.columns)
    rivals = costs.loc[:, budget // costs.columns >= LAW_BATCH].drop(columns=size)
    n = highest(costs[size] / rivals.min(axis=1))
    rival, worst = int(rivals.loc[n].idxmin()), int(expected.loc[n].idxmax())
    facts = {"printed G": size, "other G": rival, "worst G (control)": worst, "n": n}
    facts["loss ratio expected"] = expected.loc[n, size] / expected.loc[n, rival]
    half_way = at.loc[HALF_WAY].loc[expected.loc[HALF_WAY].abs().idxmin()]
    stopped = half_way["noise_free"] - at.loc[CHECKPOINTS[0], "noise_free"].iloc[0]
    lost = evidence({**half_way, "estimate": (stopped if wrong else 0.0) - half_way["estimate"]}, 0.0)
    return {
        "U9/printed": (difference(at.loc[n, worst if wrong else size], at.loc[n, rival]), facts),
        "U9/noise-costs": (lost, {"objective lost by stopping after one step (control)": stopped}),
    }


@check(*LAWS, of=trained, cases=sized(cases), broken={"undamped": True}, setting=WHERE + SIZE)
def laws(found, problem, schedule, budget, group_size, undamped=False):
    """Simulated over predicted loss; broken: by a law that does not know that later steps damp noise.

    The law's own second order says to which rows its first, or both of them, should apply.
    """
    row = measured(found, problem, schedule, budget).loc[END, group_size]
    first, second = row["prediction"], row["second_order"]
    wrong, share = law_without_damping(CASE_AT[problem, schedule], END).loss(budget, group_size), second / abs(first)
    facts, orders = {"second order / first": share, "wrong law / law": wrong / first}, {}
    if np.isfinite(share):
        orders["U9/policy-law" if abs(share) <= REACH else "U9/policy-law, beyond"] = first
    if abs(share) <= SECOND_REACH:
        orders["U9/second order"] = first + second
    return {name: (distance(row, wrong if undamped else loss, LAW_MARGIN), facts) for name, loss in orders.items()}


@check(*stated("U9/schedules", "U9/budgets"), of=trained, cases=pairs, each=PAIR, broken={"largest": True}, setting=from_to)
def carried(found, problem, schedule, other, later, largest=False):
    """What the group size that lost least in one setting loses in another one, beyond half a doubling's worth of a rival.

    The rival is that from which it is the farthest, in its errors. Broken: the largest is chosen, as one does who compares group
    sizes at equal numbers of prompts, not at equal budgets.
    """
    before = measured(found["before"], problem, schedule, BUDGET).loc[END]
    after = measured(found["after"], problem, other, later).loc[END]
    best, best_there, most = int(highest(-before["estimate"])), int(highest(-after["estimate"])), int(before.index.max())
    chosen = most if largest else best
    own, rivals = after.loc[chosen], after.drop(chosen)
    # A negative loss is a gain, of which the chosen size must keep the same share.
    factors = np.where(rivals["estimate"] >= 0.0, HALF_DOUBLING, 1.0 / HALF_DOUBLING)
    excesses = own["estimate"] - factors * rivals["estimate"]
    errors = np.hypot(own["standard_error"], factors * rivals["standard_error"])
    at, runs = highest(excesses / errors), int(after["replications"].min())
    facts = {"G chosen": float(best), "best G there": float(best_there), "G of the control": float(most)}
    lost = Evidence(float(excesses[at]), 0.0, float(errors[at]), replications=runs, comparisons=len(rivals))
    return {"U9/schedules" if later == BUDGET else "U9/budgets": (lost, facts)}


@check(stated("U9/one curve"), of=trained, cases=sized(budgets), each=PAIR, broken={"undone": True}, setting=PLACE + SIZE)
def one_curve(found, problem, schedule, group_size, undone=False):
    """N times the loss at the largest over that at the smallest budget, less 1.

    Broken: the runs of the largest budget are not done. By the law their loss is then the farthest from that of the end.
    """
    tables = (measured(found[at], problem, schedule, budget) for at, budget in (("before", BUDGET), ("after", LARGEST)))
    small, course = (table.xs(group_size, level="group_size") for table in tables)
    least, factor, end = small.loc[END], LARGEST / BUDGET, course.loc[END]
    early = course.loc[highest((course["prediction"].drop(END) - end["prediction"]).abs())]
    most = early if undone else end
    ratio = factor * most["estimate"] / least["estimate"]
    error = factor * np.hypot(most["standard_error"], ratio / factor * least["standard_error"]) / abs(least["estimate"])
    facts = {"n of the control": early.name, "control, by the law": factor * early["prediction"] / least["prediction"]}
    runs = int(min(most["replications"], least["replications"]))
    return Evidence(abs(float(ratio) - 1.0), LAW_MARGIN, float(error), replications=runs), facts
