"""P1, P2, P8, U9: the group size of a whole run, for each number of responses spent, over draws of each world.

Each arm trains on every draw at every learning rate of a grid, and is judged at its best rate, one for all draws. The planned
comparison is groups of 64 less groups of 8 at the largest budget; all others stand beside it in the table. The controls are runs
of the largest group size that have hardly begun, and runs at a reckless learning rate. For the law, the control is linear in the
responses.

The grids were chosen from short runs on one draw, which showed where rates are best, before there were other data. A first run of
24 draws left the planned comparison undecided where prompts are few. At the level of the report so did 96 new draws. `ANEW` has
240 draws that were not used before.
"""

from functools import cache
from itertools import combinations

import numpy as np
from scipy.special import stdtrit

from grpo_theory.evidence import Evidence
from grpo_theory.evidence.reading import evidence
from grpo_theory.harness import check, rows, run
from simulations.best_rate import lead
from simulations.jackknife import weighted_error
from simulations.runs import frontier_statements
from simulations.runs.arms import MEASURES, Arm, measured, train, world_problems
from simulations.runs.frontier_statements import CEILING_MARGIN, KEPT, LAW_MARGIN, LOST, USUAL
from simulations.runs.growth import SIZES, best_sizes, fit, saturating
from simulations.runs.worlds import DRAWS, LEARNED, LONG
from simulations.seeds import child_seed, seed_of
from simulations.statements import stated

P1, POWERLESS = stated("P1"), frontier_statements.POWERLESS
FEW, LARGE, FACTOR = 4, 64, 4
MANY, FEWER, ADAM = range(2, 10), range(-1, 7), range(-5, 3)
RATES = {"few prompts": FEWER, "wrong rewards": range(8), LONG: range(-2, 6), LEARNED: range(-3, 5)}
RATES |= {"tabular": range(4, 12), "easy": FEWER, "hard": range(3, 11)}
"""The learning rates are these powers of 3, `ADAM` with that optimiser; in other worlds they are `MANY`."""
LONG_SIZES = (2, 4, 8, 16, 32, 64, 128, 256, 512)
GROUP_SIZES, COARSE, PAIR = LONG_SIZES[:-1], (4, 8, 16, 64, 256), (2,)
"""Worlds that take long have fewer sizes."""
RUNS = 4
"""On a draw, at a rate: with eight rates they fill the lanes of a vector."""
ARMS = (
    *((Arm("few prompts", name), 18, GROUP_SIZES) for name in ("rloo", "grpo")),
    (Arm("few prompts", "dropped"), 15, GROUP_SIZES),
    (Arm("few prompts", "grpo", "Adam"), 16, GROUP_SIZES),
    (Arm("few prompts", "grpo", "SGD", decaying=True), 16, GROUP_SIZES),
    *((Arm("few prompts", "grpo", responses=number), 16, GROUP_SIZES) for number in (64, 1024)),
    *((Arm("shared", name), 16, GROUP_SIZES) for name in ("rloo", "grpo")),
    *((Arm(name), 16, GROUP_SIZES) for name in ("tabular", "easy", "hard")),
    (Arm("wrong rewards"), 16, GROUP_SIZES),
    (Arm("wrong rewards", "rloo"), 16, COARSE),
    *((Arm(world, name), 16, COARSE) for world in (LONG, LEARNED) for name in ("grpo", "rloo")),
    *((Arm(world, responses=32), 13, PAIR) for world in ("few prompts", "shared", "wrong rewards")),
)
"""With each, log2 of the most responses, and its group sizes. Groups of 2 have an eighth of the responses of groups of 16."""
ANEW_DRAWS, NAMED_ANEW, QUICK_DRAWS = range(120, 360), ", new draws", 6
ANEW = tuple((Arm("few prompts" + NAMED_ANEW, *how), 16, (USUAL, LARGE)) for how in (("rloo",), ("grpo",), ("grpo", "Adam")))
LEAST, LEAST_OF_PAIRS, LEAST_UPDATES = 11, 7, 8
WORST, BEST, HARMED = (MEASURES.index(name) for name in ("worst of 8", "best of 8", "harmed"))
LESS = (1.0, -1.0)


def plan(quick):
    """List arms with log2 of the most responses, group sizes and draws; quick has two arms, three sizes and few draws."""
    if quick:
        return [(arm, 14, (FEW, USUAL, LARGE), QUICK_DRAWS) for arm, *_ in ARMS[:2]]
    return [(*one, DRAWS) for one in ARMS] + [(*one, len(ANEW_DRAWS)) for one in ANEW]


def cases(quick, plan=plan):
    """Each arm."""
    return [arm._asdict() | {"draws": draws, "most": 2**most} for arm, most, _, draws in plan(quick)]


def deal(world, draws, plan=plan, **_):
    """Return the arms of a world, which train on the same draws, with their group sizes, budgets and rates."""
    listed = []
    for arm, most, sizes, of in (*plan(True), *plan(False)):
        if (arm.world, of) == (world, draws):
            least = LEAST_OF_PAIRS if sizes == PAIR else LEAST
            budgets = [2**power for power in range(least, most + 1) if 2**power >= LEAST_UPDATES * arm.responses]
            kind = world.removesuffix(NAMED_ANEW)
            rates = [3.0**power for power in (ADAM if arm.optimiser == "Adam" else RATES.get(kind, MANY))]
            own = {"group_sizes": [size for size in sizes if size <= arm.responses], "budgets": budgets}
            listed.append(arm._asdict() | {"world": kind, "rates": rates[2:7:2] if draws == QUICK_DRAWS else rates} | own)
    numbers = ANEW_DRAWS if world.endswith(NAMED_ANEW) else range(draws)
    return {"arms": listed, "draws": list(numbers), "runs": RUNS}, sum(len(arm["group_sizes"]) for arm in listed)


@run(dealt=deal, shared=True)
def trained(arms, draws, runs, rng, chunk):
    """Train one arm at one group size on all draws; return the means of the runs' measures, (draws, rates, budgets, 6)."""
    own, size = [(arm, size) for arm in arms for size in arm["group_sizes"]][chunk]
    arm, updates = Arm(**{name: own[name] for name in Arm._fields}), [budget // own["responses"] for budget in own["budgets"]]
    found = [train(arm, draw, size, own["rates"], updates, runs, child_seed(seed_of(rng), draw)).mean(axis=1) for draw in draws]
    return [{"arm": arm[1:], "size": size, "budgets": own["budgets"], "values": found}]


class Runs:
    """What an arm's runs reach on each draw, on average over the runs: values (budgets, measures, rates, sizes, draws)."""

    def __init__(self, sizes, budgets, values):
        self.sizes, self.budgets, self.values = sizes, budgets, values

    def at(self, size, budget=-1, measure=0):
        """Return a measure of a group size at a place among the budgets, (rates, draws)."""
        return self.values[budget, measure, :, self.sizes.index(size)]

    def best_size(self, budget):
        """Return the group size of the most success at a place among the budgets."""
        return int(self.sizes[self.values[budget, 0].mean(axis=-1).max(axis=0).argmax()])


def runs_of(found, arm):
    """Return the runs of an arm, or None if there are none."""
    own = {one["size"]: one for one in found if tuple(one["arm"]) == arm[1:]}
    if not own:
        return None
    values = np.array([one["values"] for one in own.values()]).transpose(3, 4, 2, 0, 1)
    return Runs(list(own), next(iter(own.values()))["budgets"], values)


@cache
def start_of(world):
    """Return the measures where training starts: those of success are the same in all draws."""
    world = world.removesuffix(NAMED_ANEW)
    return measured(world, world_problems(world)[0].theta)


def arm_of(case):
    """Return the arm of a case."""
    return Arm(**{name: case[name] for name in Arm._fields})


def label(**case):
    """Return what tells an arm from others, in words."""
    words = [case["world"], case["estimator"]]
    words += [case["optimiser"]] * (case["optimiser"] != "SGD") + ["decaying"] * case["decaying"]
    return ", ".join([*words, f"N = {case['responses']}"])


def ahead(sides, weights=LESS, judged=None, **facts):
    """Return a lead as evidence against 0, and facts."""
    row = lead(sides, weights, judged)
    return evidence(row, 0.0), facts | {"draws of the other sign": row["other_sign"]}


@check(
    *stated("P1/64 over 8", "U9/whole runs", "P1/grows", "P1/interference", "P8/law"),
    of=trained,
    cases=cases,
    broken={"wrong": True},
    setting=label,
)
def leads(found, wrong=False, **case):
    """Leads between an arm's group sizes. Broken: of runs that have hardly begun, or at a reckless rate; and a linear law.

    The size that is best at the smallest budget is chosen by all draws. If it was lucky there, it is lucky at the largest budget
    too, which counts against growth. The planned comparison of 64 with 8 chooses nothing but rates.
    """
    arm = arm_of(case)
    return between_sizes(arm, runs_of(found, arm), start_of(arm.world), wrong)


def between_sizes(arm, runs, start, wrong=False):
    """Return the sides of what is said of an arm's group sizes; more is said where they are more than two."""
    sides, several, at = {}, len(runs.sizes) > 2, 0 if wrong else -1
    if {USUAL, LARGE} <= set(runs.sizes):
        facts = {f"64 less {FEW}": lead([runs.at(LARGE), runs.at(FEW)], LESS)["estimate"]} if several else {}
        sides["P1/64 over 8"] = ahead([runs.at(USUAL, at), runs.at(LARGE, at)], **facts)
    if not several:
        return sides
    first, last, gain, facts = runs.best_size(0), runs.sizes[-1], runs.values[-1, 0] - start[0], {}
    for row in best_of(runs):
        if row["quantity"] == "best size" and row["budget"] in (runs.budgets[0], runs.budgets[-1]):
            facts[f"best G at {row['budget']:,.0f}"] = 2.0 ** row["estimate"]
        elif row["quantity"] == "criterion":
            facts[f"criterion, {row['curve']}"] = row["estimate"]
    kept = runs.at(last, 0) if wrong else runs.at(first)
    sides["U9/whole runs"] = ahead([gain, kept - start[0]], (1.0 - LOST, -1.0), **facts)
    if first < last:
        later = [runs.at(first, 0), runs.at(last, 0)] if wrong else [runs.at(first) - start[0], gain[:, larger(runs)]]
        sides["P1/grows"] = ahead(later, **facts)
    if arm.world != "tabular" and arm.optimiser == "SGD":
        (large, few), harmed = ([runs.at(size, -1, measure) for size in (LARGE, FEW)] for measure in (0, HARMED))
        reckless = slice(-1, None) if wrong else slice(None)
        sides["P1/interference"] = ahead([large[reckless], few], LESS, [harmed[0][reckless], harmed[1]])
    if sum(budget <= runs.budgets[-1] / 4 for budget in runs.budgets) > 3:
        sides["P8/law"] = law(runs, float(start[0]), linear=wrong)
    return sides


def larger(runs):
    """Return the places of the group sizes that are `FACTOR` times the best one of the smallest budget or more."""
    return [s for s, size in enumerate(runs.sizes) if size >= FACTOR * runs.best_size(0)] or [len(runs.sizes) - 1]


def law(runs, start, linear):
    """How far the law of success, fitted up to a quarter of the responses, is off at the end; the control is linear in C."""
    budgets = np.array(runs.budgets, dtype=float)
    known = budgets <= budgets[-1] / 4
    x, end = np.log2(budgets[known]), np.log2(budgets[-1])
    course = runs.values[:, 0, :, runs.sizes.index(runs.best_size(-1))]  # (budgets, rates, draws)
    draws = course.shape[-1]

    def miss(course):
        y = course[known]
        line = y[-1] + (y[-1] - y[-2]) * (budgets[-1] - budgets[known][-1]) / np.diff(budgets[known][-2:])[0]
        return course[-1] / (line if linear else float(saturating(x, y, start)(np.array(end)))) - 1.0

    error = weighted_error(lambda shares: miss((course @ shares).max(axis=-1)), draws)
    return Evidence(float(abs(miss(course.mean(axis=-1).max(axis=-1)))), LAW_MARGIN, error, replications=draws)


def of_arms(**wanted):
    """Return the cases of a kind of arm."""
    return lambda quick, plan=plan: [one for one in cases(quick, plan) if wanted.items() <= one.items()]


@check(stated("P1/batch"), of=trained, cases=of_arms(responses=64), broken={"wrong": True}, setting="{world}, {estimator}")
def batch(found, wrong=False, **case):
    """What is lost by the worst number of responses per update; broken: by runs that have hardly begun."""
    arm, start = arm_of(case), start_of(case["world"])[0]
    same = {one["arm"][-1]: runs_of(found, arm._replace(responses=one["arm"][-1])) for one in found}
    same = {number: own for number, own in same.items() if own and number >= arm.responses}
    if len(same) < 3:
        return None
    runs = same[arm.responses]
    ends = {number: own.values[own.budgets.index(runs.budgets[-1]), 0] - start for number, own in same.items()}
    least = min(ends.values(), key=lambda end: end.mean(axis=-1).max())
    other = runs.at(runs.sizes[-1], 0) - start if wrong else least
    facts = {f"success, N = {number}": lead([end + start])["estimate"] for number, end in ends.items()}
    return ahead([np.concatenate(list(ends.values()), axis=1), other], (1.0 - LOST, -1.0), **facts)


@check(
    stated("P2"),
    of=trained,
    cases=of_arms(responses=32),
    broken={"wrong": True},
    setting=lambda world, estimator, most, responses, **_: f"{world}, {estimator}, {most // responses} updates",
)
def pairs(found, wrong=False, **case):
    """Groups of 2 beside groups of 16 in as many updates of as many prompts; broken: a sixteenth of them."""
    arm = arm_of(case)
    runs, usual = runs_of(found, arm), runs_of(found, arm._replace(responses=256))
    b = runs.budgets[-1]
    end = usual.budgets.index(8 * b)
    whole, less, equal = (lead([side])["estimate"] for side in (usual.at(16, end), runs.at(2), usual.at(2, end)))
    facts = {"share": less / whole, "share at equal responses": equal / whole}
    other = runs.at(2, runs.budgets.index(b // 16)) if wrong else runs.at(2)
    return ahead([usual.at(16, end), other], (KEPT, -1.0), **facts)


@check(stated("P8/ceiling"), of=trained, cases=of_arms(estimator="rloo"), broken={"wrong": True}, setting="{world}")
def ceiling(found, wrong=False, **case):
    """How far ceilings are apart with division and without; broken: with it runs have hardly begun."""
    arm = arm_of(case)
    runs, rival = runs_of(found, arm), runs_of(found, arm._replace(estimator="grpo"))
    if rival is None or NAMED_ANEW in arm.world:
        return None
    plain, divided = runs.values[-1, 0], rival.values[-1, 0]
    ceilings = {name: lead([side])["estimate"] for name, side in (("rloo", plain), ("grpo", divided))}
    row = lead([rival.at(rival.sizes[-1], 0) if wrong else divided, plain], LESS)
    shares = {"estimate": abs(row["estimate"]) / ceilings["rloo"], "standard_error": row["standard_error"] / ceilings["rloo"]}
    facts = {f"ceiling of {name}": value for name, value in ceilings.items()} | {"draws of the other sign": row["other_sign"]}
    return evidence(row | shares, CEILING_MARGIN), facts


def kind(found, case):
    """Return what training adds to the best less what it adds to the worst of 8, at the best size, and by larger groups."""
    arm = arm_of(case)
    runs, start = runs_of(found, arm), start_of(arm.world)
    end, first = runs.values[-1], runs.best_size(0)
    gain, own, more = end[0] - start[0], runs.at(first) - start[0], larger(runs)
    facts = {}
    for name, measure in (("worst", WORST), ("best", BEST)):
        judged = [end[measure][:, more], runs.at(first, -1, measure)]
        facts[f"larger groups add to the {name} of 8"] = lead([gain[:, more], own], LESS, judged)["estimate"]
    middle = end[BEST] - end[WORST] - (start[BEST] - start[WORST])
    return lead([gain], judged=[middle]), facts


@check(stated("P1/sharpening"), of=trained, cases=of_arms(world="easy"), broken={"uniform": True}, setting="{world}")
def sharpens(found, uniform=False, **case):
    """Broken: hard prompts under a uniform policy, which is known to cover."""
    if uniform:
        problem = world_problems("hard")[0]
        added = measured("hard", np.zeros_like(problem.theta)) - start_of("hard")
        return Evidence(float(added[BEST] - added[WORST]), 0.0)
    row, facts = kind(found, case)
    return evidence(row, 0.0), facts


@check(stated("P1/coverage"), of=trained, cases=of_arms(world="hard"), broken={"world": "easy"}, setting="{world}")
def covers(found, world, **case):
    """Broken: easy prompts, which are known to sharpen."""
    row, facts = kind(found, case | {"world": world})
    return evidence(row | {"estimate": -row["estimate"]}, 0.0), facts


@rows(of=trained, cases=cases)
def by_size(found, **case):
    """Success and leads over `USUAL` by group size and budget, the best sizes and curves through them, for figures."""
    runs = runs_of(found, arm_of(case))
    for c, budget in enumerate(runs.budgets):
        success = runs.values[c, 0]  # (rates, sizes, draws)
        kept = _may_be_best(success)
        for s, size in enumerate(runs.sizes):
            at = {"group_size": size, "budget": budget}
            yield at | {"quantity": "success", "in_set": kept[s]} | lead([success[:, s]])
            if USUAL in runs.sizes and size != USUAL:
                yield at | {"quantity": f"lead over {USUAL}"} | lead([success[:, s], runs.at(USUAL, c)], LESS)
    yield from best_of(runs) if len(runs.sizes) > 2 else []


def _may_be_best(success):
    """Return which sizes (k,) no other leads for certain, of success (rates, sizes, draws); Bonferroni's inequality, 95%."""
    sizes = success.shape[1]
    kept = np.ones(sizes, dtype=bool)
    for s, t in combinations(range(sizes), 2):
        row = lead([success[:, s], success[:, t]], (1.0, -1.0))
        critical = stdtrit(row["replications"] - 1, 1.0 - 0.05 / (sizes - 1))
        if abs(row["estimate"]) > critical * row["standard_error"]:
            kept[t if row["estimate"] > 0.0 else s] = False
    return kept


def best_of(runs):
    """Return log2 of the best group size at each budget, with its error; and curves through it, with Akaike's criterion."""
    draws = runs.values.shape[-1]
    rng = np.random.default_rng(draws)
    found = np.array([best_sizes(runs.values[c, 0], np.array(runs.sizes), rng) for c in range(len(runs.budgets))])
    x, y = np.log2(runs.budgets), found[:, 0]
    errors = np.maximum(found[:, 1:].std(axis=1, ddof=1), 0.1)  # a parabola through a grid of octaves is no more exact
    table = [
        {"quantity": "best size", "budget": budget, "estimate": one, "standard_error": error, "replications": draws}
        for budget, one, error in zip(runs.budgets, y, errors, strict=True)
    ]
    for name, curve in SIZES.items() if len(x) > 5 else []:
        parameters, criterion = fit(curve, x, y, errors)
        table.append({"quantity": "criterion", "curve": name, "estimate": criterion})
        smooth = np.arange(x[0], x[-1] + 0.25, 0.25)
        for place, value in zip(smooth, curve.at(smooth, parameters), strict=True):
            table.append({"quantity": "curve", "curve": name, "budget": round(2.0**place), "estimate": value})
    return table
