"""Whole runs of long answers over draws of kinds of worlds: which group size is best, and what advice is worth.

Every arm trains on the same numbered draws at every rate of a grid, and is judged at its best rate, one for all draws. Verdicts
are on averages over the lengths, estimators and budgets of a kind of world, and over all kinds; rows have each arm by itself.

A first run on 48 other draws, with verdicts on single arms, decided none of them, for a point of success is little. It showed
which averages could be decided, and which rates are best. The margins, the kinds and the arms are those of that run. The law of
the best size is fitted on all kinds but the one on which it is judged.
"""

from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from grpo_theory.evidence.reading import evidence
from grpo_theory.harness import check, rows, run
from simulations.best_rate import lead, with_limits
from simulations.jackknife import weighted_error
from simulations.runs.growth import best_size, best_sizes
from simulations.runs.long_answers import DIMENSION, RESPONSES, Texts, step_size, trained_draw
from simulations.seeds import seed_of
from simulations.statements import stated

SIZES = (2, 4, 8, 16, 32, 64, 256)
UPDATES, LATE_UPDATES = (16, 32, 64, 128, 256), (16, 64, 256, 1024)
BUDGETS = tuple(RESPONSES * count for count in UPDATES)
RATES = {
    ("rloo", "SGD"): range(3, 9),
    ("grpo", "SGD"): range(2, 8),
    ("rloo", "Adam"): range(-3, 2),
    ("grpo", "Adam"): range(-3, 2),
}
"""The learning rates are these powers of 2."""
DRAWS, FEWER_DRAWS, QUICK_DRAWS, FIRST = 96, 48, 4, 200
"""How many draws there are, from which number on; of late runs, and of runs with a bonus or a penalty, there are fewer."""
POINT = 0.01
"""A point of success is what a learning rate costs that is off by a factor of one and a half."""
USUAL, MOST = 8, 256
COSTS = (0.25, 1.0, 4.0)
"""What a prompt costs over a response: with long answers its prefill is cheap, with long prompts and short answers it is not."""
ALL, LATE = "all kinds", "text, 64 tokens, 262,144 responses"
POWERLESS = {
    ("long/longer", "text"): "the study does not decide it: limits are wider than any difference that was seen",
    ("long/root", "text"): "the study does not decide it: limits of the growth are wider than the root's",
}


class Arm(NamedTuple):
    """What trains, where, but for its group size and learning rate: a kind of `Texts`, and what an update is made of."""

    kind: str
    tokens: int
    estimator: str
    aggregation: str = "sum"
    optimiser: str = "SGD"
    bonus: float = 0.0
    penalty: float = 0.0
    late: bool = False


KINDS = {
    "text": Texts("text"),
    "format": Texts("format"),
    "walk": Texts("walk"),
    "teaching": Texts("text", transfer=0.03),
    "many prompts": Texts("text", prompts=128),
}
"""In the fourth the right options of all prompts share a direction, as much as two features do by chance."""
LENGTHS = (1, 16, 64, 256)
ARMS = (
    *(Arm("text", tokens, name) for tokens, name in product(LENGTHS, ("rloo", "grpo"))),
    *(Arm("text", tokens, name, "sum", "Adam") for tokens, name in product((1, 256), ("rloo", "grpo"))),
    *(Arm("format", tokens, name) for tokens, name in ((16, "grpo"), (64, "rloo"), (64, "grpo"), (256, "grpo"))),
    *(Arm("teaching", tokens, name) for tokens, name in ((1, "grpo"), (64, "rloo"), (64, "grpo"), (256, "grpo"))),
    *(Arm("many prompts", 64, name) for name in ("rloo", "grpo")),
    Arm("walk", 64, "rloo"),
    Arm("walk", 64, "grpo", "own length"),
    Arm("walk", 64, "grpo", "token mean"),
)
"""A mean over all tokens of a batch is TRL's and verl's default; they divide by the same standard deviation."""
STRENGTHS = (3e-4, 1e-3, 3e-3, 1e-1)
"""Of an entropy bonus and of a KL penalty; the last one is the control."""
PLAIN = ((Arm("text", 64, "rloo"), 8), (Arm("text", 64, "grpo", "sum", "Adam"), 8), (Arm("text", 64, "grpo", "sum", "Adam"), 64))
"""What these terms are added to, and the group size."""
WITH_TERMS = tuple(
    (arm._replace(bonus=strength) if bonus else arm._replace(penalty=strength), size)
    for arm, size in PLAIN
    for bonus in (True, False)
    for strength in STRENGTHS
)
LATE_ARMS = tuple(Arm("text", 64, name, late=True) for name in ("rloo", "grpo"))
"""Of 262,144 responses, at half of the rates."""
PIECES = (*product((*ARMS, *LATE_ARMS), SIZES), *PLAIN[1:], *WITH_TERMS)


def draws_of(quick):
    """Return how many draws there are."""
    return QUICK_DRAWS if quick else DRAWS


def powers_of(estimator, optimiser, draws):
    """Return the learning rates' powers of 2; where draws are few, every other one."""
    return RATES[estimator, optimiser][:: 1 if draws == DRAWS else 2]


def deal(draws, **_):
    """Every case reads all arms: what is advised in a kind of world depends on all others."""
    return {"draws": draws}, len(PIECES)


@run(dealt=deal, shared=True)
def trained(draws, rng, chunk):
    """Return success, held-out success, entropy and the step's size, (4, rates, draws, budgets), of an arm at a group size."""
    arm, size = PIECES[chunk]
    rates = [2.0 ** (power - arm.late) for power in powers_of(arm.estimator, arm.optimiser, draws)]
    looks = LATE_UPDATES if arm.late else UPDATES
    draws = min(draws, FEWER_DRAWS) if arm.late or arm.bonus or arm.penalty else draws
    found = np.full((4, len(rates), draws, len(looks)), np.nan)
    world, seed = KINDS[arm.kind]._replace(tokens=arm.tokens), seed_of(rng)
    update = {name: getattr(arm, name) for name in ("estimator", "aggregation", "bonus", "penalty")}
    update["decay"] = 0.999 * (arm.optimiser == "Adam")
    for draw in range(draws):
        prompts, held_out, ended, kept = trained_draw(world, FIRST + draw, rates, size, looks, seed, **update)
        for m, seen in enumerate((prompts, held_out)):
            found[m, :, draw] = np.where(ended, seen.success(kept).mean(axis=-1), 0.0)
        found[2, :, draw] = prompts.entropy(kept)
        if size == USUAL and arm.estimator == "rloo" and not arm.late:
            found[3, :, draw] = [[step_size(prompts, theta) for theta in run] for run in kept]
    return [{"arm": list(arm), "size": size, "values": found.round(6)}]


def values_of(found, arm, measure=0):
    """Return a measure of an arm by group size, (sizes, rates, draws, budgets)."""
    return np.array([one["values"][measure] for one in found if tuple(one["arm"]) == tuple(arm)], dtype=float)


def sides_at(values, budget):
    """Return (rates, draws) of each size after so many responses, which may lie between two budgets."""
    where = float(np.interp(np.log2(budget), np.log2(BUDGETS), np.arange(len(BUDGETS))))
    low = min(int(where), len(BUDGETS) - 2)
    return list(values[..., low] + (where - low) * (values[..., low + 1] - values[..., low]))


@cache
def start_sizes(kind, tokens, draws):
    """Return the step's best size at the start of each draw, shape (draws,)."""
    world = KINDS[kind]._replace(tokens=tokens)
    return np.array([step_size(world.draw(FIRST + draw)[0], np.zeros(DIMENSION)) for draw in range(draws)])


def at_sizes(sides, wanted):
    """Return (rates, draws) of the size of the grid that is nearest to what is wanted in each draw, (draws,)."""
    places = np.abs(np.log2(SIZES)[:, None] - np.log2(wanted)).argmin(axis=0)
    return np.array(sides)[places, :, np.arange(len(places))].T


def pooled(pairs, judged=None):
    """Return the mean over pairs of sides of the first one's lead over the second, each at its best rate, as evidence's row."""
    weights = [sign / len(pairs) for sign in (1.0, -1.0) for _ in pairs]
    sides, seen = ([one for which in zip(*listed, strict=True) for one in which] for listed in (pairs, judged or pairs))
    return lead(sides, weights, seen if judged else None)


def cases(quick):
    """Each kind of world, and all together."""
    return [{"kind": kind, "draws": draws_of(quick)} for kind in (*KINDS, ALL)]


def in_kind(kind, **wanted):
    """Return the arms of a kind, or of all, with some of their parts."""
    return [arm for arm in ARMS if kind in (arm.kind, ALL) and all(getattr(arm, name) == own for name, own in wanted.items())]


LAWS = tuple(product((0.0, 1.0, 2.0, 3.0), (0.0, 0.25, 0.5, 1.0), (0.0, 0.25, 0.5), (0.0, 1.0)))
"""What log2 of the best size may be: a + b log2(step's size) + c log2(C/4096) + d if it is divided."""


def law_size(law, said, budget, divided):
    """Return the size of a law, of the step's size at the start of each draw."""
    a, b, c, d = law
    return np.clip(2.0 ** (a + b * np.log2(said) + c * np.log2(budget / BUDGETS[0]) + d * divided), SIZES[0], SIZES[-1])


def settings_of(found, arms, draws):
    """Return the sides, the step's size, the budget and the division of arms at each budget."""
    listed = []
    for arm in arms:
        values, said = values_of(found, arm), start_sizes(arm.kind, arm.tokens, draws)
        listed += [(sides_at(values, budget), said, budget, arm.estimator == "grpo") for budget in BUDGETS]
    return listed


def fitted(listed):
    """Return the law that loses least on average in settings."""
    ends = [np.array([side.mean(axis=1).max() for side in sides]) for sides, *_ in listed]

    def cost(law):
        sizes = [np.log2(law_size(law, *told)) for _, *told in listed]
        lost = [end.max() - np.interp(size, np.log2(SIZES), end).mean() for end, size in zip(ends, sizes, strict=True)]
        return np.mean(lost)

    return min(LAWS, key=cost)


@check(*stated("long/one size", "long/step size", "long/law"), of=trained, cases=cases, broken={"wrong": True}, setting="{kind}")
def advice(found, kind, draws, wrong=False):
    """What always 8, the step's size and a law lose to the best size; broken: always 64, 64 times the step's, 256 for a law."""
    listed = settings_of(found, in_kind(kind), draws)
    others = [arm for arm in ARMS if arm.kind != kind]
    law = None if kind == ALL else fitted(settings_of(found, others, draws))
    best = [np.concatenate(sides) for sides, *_ in listed]
    always = {size: [sides[k] for sides, *_ in listed] for k, size in enumerate(SIZES)}
    sides: dict[str, Any] = {
        "long/one size": evidence(pooled(list(zip(best, always[64 if wrong else USUAL], strict=True))), POINT)
    }
    undivided = [(sides, said) for sides, said, _, divided in listed if not divided]
    step = [(np.concatenate(one), at_sizes(one, (64.0 if wrong else 1.0) * said)) for one, said in undivided]
    sides["long/step size"] = (
        evidence(pooled(step), POINT),
        {"step's size at the start": np.mean([said for _, said in undivided])},
    )
    if law is not None:
        told = [at_sizes(one, law_size(law, *about)) for one, *about in listed]
        facts = dict(zip(("law: a", "law: step's size", "law: budget", "law: division"), law, strict=True))
        rival = always[MOST] if wrong else told
        sides["long/law"] = evidence(pooled(list(zip(always[USUAL], rival, strict=True))), 0.0), facts
    return sides


def late_ends(found):
    """Return each late arm with success at its end, (sizes, rates, draws)."""
    return [(arm, values_of(found, arm)[..., -1]) for arm in LATE_ARMS]


@check(stated("long/late"), of=trained, cases=lambda quick: [{"draws": draws_of(quick)}], broken={"look": 0}, setting=LATE)
def late(found, look=-1):
    """What groups of 8 lose to the best size, undivided and divided; broken: these stop after 4,096 responses."""
    usual = [values_of(found, arm)[SIZES.index(USUAL), ..., look] for arm in LATE_ARMS]
    return evidence(pooled([(np.concatenate(ends), own) for (_, ends), own in zip(late_ends(found), usual, strict=True)]), POINT)


@check(
    stated("long/equal time"),
    of=trained,
    cases=lambda quick: [{"draws": draws_of(quick), "cost": cost} for cost in COSTS],
    broken={"size": MOST},
    setting="a prompt costs {cost:g} responses",
)
def equal_time(found, cost, size=USUAL):
    """A group costs its prompt and G responses, and all sizes spend the same, in all texts; broken: always 256."""
    pairs = []
    for arm, budget in product(in_kind("text"), BUDGETS[1:]):
        values = values_of(found, arm)
        sides = [sides_at(own[None], budget / (1.0 + cost / other))[0] for own, other in zip(values, SIZES, strict=True)]
        pairs.append((np.concatenate(sides), sides[SIZES.index(size)]))
    return evidence(pooled(pairs), POINT)


@check(
    *stated("long/longer", "long/root"),
    of=trained,
    cases=lambda quick: cases(quick)[:1],
    broken={"tokens": (16, 1, 16)},
    setting="{kind}",
)
def longer(found, kind, tokens=(256, 1, 16)):
    """Groups of 32 less 4 with long answers and short ones, and the growth of the best size; broken: long ones have 16."""
    long, one, short = (in_kind(kind, tokens=number, optimiser="SGD") for number in tokens)
    few, large, places = SIZES.index(4), SIZES.index(32), list(product(range(2), BUDGETS))

    def sides(arms, k, budget):
        return sides_at(values_of(found, arms[k]), budget)

    leads = [(sides(one, *at)[large], sides(one, *at)[few]) for at in places]
    leads += [(sides(long, *at)[few], sides(long, *at)[large]) for at in places]
    row, rng = pooled(leads), np.random.default_rng(0)
    row = row | {name: 2.0 * row[name] for name in ("estimate", "standard_error")}  # of two leads, not of their mean
    logs = np.mean(
        [
            [best_sizes(np.array(sides(arms, *at)).swapaxes(0, 1), np.array(SIZES), rng) for at in places]
            for arms in (long, short)
        ],
        axis=1,
    )
    off = {
        "estimate": abs(logs[0][0] - logs[1][0] - np.log2(254.0 / 14.0) / 2.0),
        "standard_error": float(np.hypot(*logs[:, 1:].std(axis=1))),
    }
    facts = {f"best size, {number} tokens": 2.0 ** own[0] for number, own in zip((tokens[0], tokens[2]), logs, strict=True)}
    return {"long/longer": evidence(row, 0.0), "long/root": (evidence(off | {"replications": row["replications"]}, 1.0), facts)}


@check(
    stated("long/divide"),
    of=trained,
    cases=lambda quick: [case for case in cases(quick) if case["kind"] != "walk"],
    broken={"early": True},
    setting="{kind}",
)
def divide(found, kind, early=False):
    """What is lost by dividing, each side at its best size and rate; broken: the divided run stops at a quarter."""
    pairs = []
    for arm, budget in product((arm for arm in in_kind(kind, estimator="rloo") if arm.kind != "walk"), BUDGETS[2:]):
        plain, divided = (values_of(found, arm._replace(estimator=name)) for name in ("rloo", "grpo"))
        pairs.append((np.concatenate(sides_at(plain, budget)), np.concatenate(sides_at(divided, budget / (4 if early else 1)))))
    return evidence(pooled(pairs), POINT)


@check(
    stated("long/keep rate"),
    of=trained,
    cases=lambda quick: [
        {"draws": draws_of(quick), "estimator": estimator, "optimiser": optimiser, "size": size}
        for estimator, optimiser in RATES
        for size in (4, 16, 32, 64)
    ],
    broken={"place": 0},
    setting="{estimator}, {optimiser}, groups of {size}",
)
def keep(found, estimator, optimiser, size, place=None):
    """What is lost by the rate that is best for groups of 8, in all kinds; broken: the least rate of the grid."""
    pairs, judged = [], []
    for arm, budget in product(in_kind(ALL, estimator=estimator, optimiser=optimiser), BUDGETS[2:]):
        sides = sides_at(values_of(found, arm), budget)
        own, usual = sides[SIZES.index(size)], sides[SIZES.index(USUAL)]
        pairs.append((own, usual if place is None else np.eye(len(own))[place][:, None] + 0.0 * own))
        judged.append((own, own))
    return evidence(pooled(pairs, judged), POINT)


@check(
    stated("long/held out"),
    of=trained,
    cases=lambda quick: [case for case in cases(quick) if case["kind"] in ("teaching", "walk")],
    broken={"size": MOST},
    setting="{kind}",
)
def held_out(found, kind, size=None):
    """Held-out success at the size and rate that are best on training prompts, and at its own best; broken: always 256."""
    pairs, judged = [], []
    for arm, budget in product(in_kind(kind), BUDGETS):
        seen, held = (np.array(sides_at(values_of(found, arm, measure), budget)) for measure in (0, 1))
        own = slice(None) if size is None else slice(SIZES.index(size), SIZES.index(size) + 1)
        pairs.append((np.concatenate(held), np.concatenate(seen[own])))
        judged.append((np.concatenate(held), np.concatenate(held[own])))
    return evidence(pooled(pairs, judged), POINT)


@check(
    *stated("long/bonus", "long/penalty"),
    of=trained,
    cases=lambda quick: [{"draws": draws_of(quick)}],
    broken={"strengths": STRENGTHS[-1:]},
    setting="text, 64 tokens",
)
def terms(found, strengths=STRENGTHS[:-1]):
    """Runs with an entropy bonus, or a KL penalty, at its best strength and rate, beside runs without; broken: far too strong."""
    sides = {}
    for term in ("bonus", "penalty"):
        pairs = []
        for arm, size in PLAIN:
            own = [ends_of(found, arm._replace(**{term: strength}), size) for strength in strengths]
            pairs.append((ends_of(found, arm, size)[:, : own[0].shape[1]], np.concatenate(own)))
        sides[f"long/{term}"] = evidence(pooled(pairs), 0.0)
    return sides


def ends_of(found, arm, size):
    """Return success at the end of an arm at a group size, (rates, draws)."""
    own = [one["values"] for one in found if tuple(one["arm"]) == tuple(arm) and one["size"] == size]
    return np.array(own[0], dtype=float)[0, ..., -1]


def entropy_law(entropy, success, places, steep):
    """Return R = b - a exp(H), fitted at some places along a run, at its end; with a changed by a factor about the last place."""
    seen, reached = np.exp(entropy), success[places]
    slope, level = np.polyfit(seen[places], reached, 1)
    return level + slope * (steep * seen[-1] + (1.0 - steep) * seen[places][-1])


@check(
    stated("long/entropy law"),
    of=trained,
    cases=lambda quick: cases(quick)[:1],
    broken={"steep": 4.0},
    sound={"places": slice(None)},
    setting="{kind}, plain ascent",
)
def entropy_along(found, draws, places=slice(0, 3), steep=1.0):
    """How far the law from a quarter of runs of groups of 8 is off at their end; broken: too steep; sound: from whole runs."""
    courses = []
    for arm in in_kind("text", optimiser="SGD"):
        success, entropy = (values_of(found, arm, measure)[SIZES.index(USUAL)] for measure in (0, 2))
        at = success.mean(axis=1)[:, -1].argmax()
        courses.append((entropy[at], success[at]))

    def miss(weights):
        means = [(weights @ entropy, weights @ success) for entropy, success in courses]
        return float(np.mean([abs(entropy_law(*own, places, steep) - own[1][-1]) for own in means]))

    row = {"estimate": miss(np.full(draws, 1.0 / draws)), "standard_error": weighted_error(miss, draws), "replications": draws}
    return evidence(row, 0.05)


def of_arms(quick):
    """Each arm."""
    return [arm._asdict() | {"draws": draws_of(quick)} for arm in ARMS]


def arm_of(case):
    """Return the arm of a case."""
    return Arm(**{name: case[name] for name in Arm._fields})


@rows(of=trained, cases=of_arms)
def leads(found, **case):
    """Every size's lead over groups of 8 at each budget, success, entropy and the best rates, for the figure and the page."""
    arm, powers = arm_of(case), powers_of(case["estimator"], case["optimiser"], case["draws"])
    values, entropy = values_of(found, arm), values_of(found, arm, 2)
    for b, budget in enumerate(BUDGETS):
        sides = sides_at(values, budget)
        usual = sides[SIZES.index(USUAL)]
        yield {"budget": budget, "quantity": "success of 8"} | lead([usual])
        for size, own, told in zip(SIZES, sides, entropy, strict=True):
            about = {"budget": budget, "group_size": size}
            best = int(own.mean(axis=1).argmax())
            yield about | {"quantity": "lead over 8"} | lead([own, usual], (1.0, -1.0))
            yield about | {"quantity": "log2 of the best rate", "estimate": powers[best]}
            yield about | {"quantity": "entropy"} | lead([told[best, :, b][None]])


@rows(of=trained, cases=lambda quick: [*cases(quick), {"kind": LATE, "draws": draws_of(quick)}])
def losses(found, kind, draws):
    """What each size loses to the best one, at all lengths and budgets and in late runs, undivided and divided, for the page."""
    listed_all = [(ends, arm.estimator == "grpo") for arm, ends in late_ends(found)]
    if kind != LATE:
        listed_all = [(sides, divided) for sides, *_, divided in settings_of(found, in_kind(kind), draws)]
    for divided, name in ((False, "undivided"), (True, "divided")):
        listed = [sides for sides, own in listed_all if own == divided]
        for k, size in enumerate(SIZES):
            row = pooled([(np.concatenate(sides), sides[k]) for sides in listed])
            yield {"quantity": "lost", "group_size": size, "estimator": name} | row


@rows(
    of=trained,
    cases=lambda quick: [{"estimator": one, "optimiser": other, "draws": draws_of(quick)} for one, other in RATES],
)
def exponents(found, estimator, optimiser, draws):
    """By how many octaves the best learning rate moves where group size or length doubles, at equal responses, for the page.

    The best rate is the vertex of the parabola through the highest mean and its neighbours.  Slopes over sizes are means over
    arms.  Slopes over lengths are of texts at the largest budget.  They are means over groups of 8 to 32, whose best rates lie
    within the grid.
    """
    rates = 2.0 ** np.array(powers_of(estimator, optimiser, draws))
    every, texts = (in_kind(kind, estimator=estimator, optimiser=optimiser) for kind in (ALL, "text"))
    middle = [SIZES.index(size) for size in (USUAL, 16, 32)]
    for doubled, arms, budget in (("size", every, BUDGETS[0]), ("size", every, BUDGETS[-1]), ("length", texts, BUDGETS[-1])):
        ends = np.array([sides_at(values_of(found, arm), budget) for arm in arms])  # (arms, sizes, rates, draws)

        def slope(weights, ends=ends, doubled=doubled, arms=arms):
            best = np.array([[best_size(side @ weights, rates) for side in sides] for sides in ends])  # (arms, sizes)
            along, moved = (SIZES, best.T) if doubled == "size" else ([arm.tokens for arm in arms], best[:, middle])
            return float(np.polyfit(np.log2(along), moved, 1)[0].mean())

        row = {"estimate": slope(np.full(draws, 1.0 / draws)), "standard_error": weighted_error(slope, draws)}
        about = {"budget": budget, "quantity": f"octaves of the best rate per doubling of the {doubled}"}
        yield about | with_limits(row | {"replications": draws})


@rows(of=trained, cases=lambda quick: [case for case in of_arms(quick) if case["estimator"] == "rloo"])
def said(found, draws, **case):
    """The best size of one step, at the start and along runs of groups of 8, beside that of whole runs."""
    arm = arm_of(case)
    values, sizes = values_of(found, arm), values_of(found, arm, 3)[SIZES.index(USUAL)]
    yield {"budget": 0, "quantity": "step's size"} | lead([start_sizes(arm.kind, arm.tokens, draws)[None]])
    for b, budget in enumerate(BUDGETS):
        sides = np.array(sides_at(values, budget))
        at = sides[SIZES.index(USUAL)].mean(axis=1).argmax()
        yield {"budget": budget, "quantity": "step's size"} | lead([sizes[at, :, b][None]])
        logs = best_sizes(sides.swapaxes(0, 1), np.array(SIZES), np.random.default_rng(0))
        limits = dict(zip(("low", "high"), np.quantile(logs[1:], (0.025, 0.975)), strict=True))
        yield {"budget": budget, "quantity": "log2 of the best size", "estimate": logs[0], **limits}
