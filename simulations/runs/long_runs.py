"""Whole runs of long answers over draws of kinds of worlds: which group size is best, and what advice is worth.

Every arm trains on the same numbered draws at every rate of a grid, and is judged at its best rate, one for all draws. Margins
were set before there were data of these draws. The grids and the kinds were chosen from runs on draws that are not judged.

Planned: the step's best size and groups of 8, each against the best size. All else was looked at beside them. The law of the
best size is fitted on all kinds but one, and judged on that one.
"""

from itertools import product
from typing import NamedTuple

import numpy as np

from grpo_theory.evidence.reading import evidence
from grpo_theory.harness import check, rows, run
from simulations.best_rate import lead
from simulations.jackknife import jackknife_error
from simulations.runs.growth import best_sizes
from simulations.runs.long_answers import DIMENSION, RESPONSES, Texts, step_size, train, update_of
from simulations.seeds import child_seed, seed_of
from simulations.statements import stated

SIZES = (2, 4, 8, 16, 32, 64, 128, 256)
UPDATES = (16, 32, 64, 128, 256)
BUDGETS = tuple(RESPONSES * count for count in UPDATES)
RATES = {("rloo", "SGD"): range(2, 9), ("grpo", "SGD"): range(1, 8), ("rloo", "Adam"): range(-5, 2), ("grpo", "Adam"): range(-5, 2)}
"""The learning rates are these powers of 2."""
DRAWS, QUICK_DRAWS = 48, 4
POINT, HALF_POINT = 0.01, 0.005
"""A point of success is what a learning rate costs that is off by a factor of one and a half."""
USUAL, MOST = 8, 256
COSTS = {"text": (0.25, 1.0, 4.0)}
"""What a prompt costs over a response: with long answers its prefill is cheap, with long prompts and short answers it is not."""


class Arm(NamedTuple):
    """What trains, where, but for its group size and learning rate: a kind of `Texts`, and what an update is made of."""

    kind: str
    tokens: int
    estimator: str
    aggregation: str = "sum"
    optimiser: str = "SGD"
    bonus: float = 0.0
    penalty: float = 0.0


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
    (arm._replace(**{term: strength}), size) for arm, size in PLAIN for term in ("bonus", "penalty") for strength in STRENGTHS
)
PIECES = (*((arm, size) for arm in ARMS for size in SIZES), *PLAIN[1:], *WITH_TERMS)


def label(kind, tokens, estimator, aggregation="sum", optimiser="SGD", budget=0, **_):
    """Return what tells an arm from others, in words."""
    words = [kind, f"{tokens} tokens" if tokens > 1 else "1 token", estimator]
    words += [aggregation] * (aggregation != "sum") + [optimiser] * (optimiser != "SGD")
    return ", ".join(words + [f"C = {budget:,}"] * bool(budget))


def deal(draws, **_):
    """Every case reads all arms: what is advised in a kind of world depends on all others."""
    return {"draws": draws}, len(PIECES)


@run(dealt=deal, shared=True)
def trained(draws, rng, chunk):
    """Return success, held-out success, entropy and the step's size, (4, rates, draws, budgets), of an arm at a group size."""
    arm, size = PIECES[chunk]
    powers = RATES[arm.estimator, arm.optimiser]
    rates = [2.0**power for power in (powers if draws == DRAWS else powers[1::2])]
    found = np.full((4, len(rates), draws, len(UPDATES)), np.nan)
    more = {"bonus": arm.bonus, "penalty": arm.penalty, "decay": 0.999 * (arm.optimiser == "Adam")}
    for draw in range(draws):
        prompts, held_out = KINDS[arm.kind]._replace(tokens=arm.tokens).draw(draw)
        update = update_of(prompts, arm.estimator, size, arm.aggregation, **more)
        thetas = train(prompts, update, rates, size, UPDATES, 1, child_seed(seed_of(rng), draw))[:, 0]
        ended = np.isfinite(thetas).all(axis=-1)
        kept = np.where(ended[..., None], thetas, 0.0)
        for m, seen in enumerate((prompts, held_out)):
            found[m, :, draw] = np.where(ended, seen.success(kept).mean(axis=-1), 0.0)
        found[2, :, draw] = prompts.entropy(kept)
        if size == USUAL and arm.estimator == "rloo":
            found[3, :, draw] = [[step_size(prompts, theta) for theta in run] for run in kept]
    return [{"arm": list(arm), "size": size, "values": found.round(6)}]


def values_of(found, arm, measure=0):
    """Return a measure of an arm by group size, (sizes, rates, draws, budgets)."""
    own = [np.array(one["values"], dtype=float)[measure] for one in found if tuple(one["arm"]) == tuple(arm)]
    return np.array(own)


def sides_at(values, budget):
    """Return (rates, draws) of each size after so many responses, which may lie between two budgets."""
    where = float(np.interp(np.log2(budget), np.log2(BUDGETS), np.arange(len(BUDGETS))))
    low = min(int(where), len(BUDGETS) - 2)
    return list(values[..., low] + (where - low) * (values[..., low + 1] - values[..., low]))


def start_sizes(arm, draws):
    """Return the step's best size at the start of each draw, shape (draws,)."""
    world = KINDS[arm.kind]._replace(tokens=arm.tokens)
    return np.array([step_size(world.draw(draw)[0], np.zeros(DIMENSION)) for draw in range(draws)])


def at_sizes(sides, wanted):
    """Return (rates, draws) of the size of the grid that is nearest to what is wanted in each draw, (draws,)."""
    places = np.clip(np.log2(wanted).round().astype(int) - 1, 0, len(SIZES) - 1)
    return np.array(sides)[places, :, np.arange(len(places))].T


def loss(sides, chosen):
    """Return what a choice (rates, draws) loses to the best size, each at its best rate, as a row."""
    return lead([np.concatenate(sides), chosen], (1.0, -1.0))


def arm_of(case):
    """Return the arm of a case."""
    return Arm(**{name: case[name] for name in Arm._fields if name in case})


def cases(quick, budgets=(BUDGETS[0], BUDGETS[2], BUDGETS[-1]), arms=ARMS):
    """Each arm at budgets."""
    return [
        arm._asdict() | {"budget": budget, "draws": QUICK_DRAWS if quick else DRAWS} for arm, budget in product(arms, budgets)
    ]


@check(stated("long/eight"), of=trained, cases=cases, broken={"size": MOST}, setting=label)
def eight(found, budget, size=USUAL, **case):
    """Broken: always 256."""
    sides = sides_at(values_of(found, arm_of(case)), budget)
    facts = {f"{other} less 8": lead([sides[k], sides[2]], (1.0, -1.0))["estimate"] for k, other in enumerate(SIZES)}
    return evidence(loss(sides, sides[SIZES.index(size)]), POINT), facts


@check(
    stated("long/eight, equal time"),
    of=trained,
    cases=lambda quick: [
        case | {"cost": cost}
        for case in cases(quick, BUDGETS[-1:], [Arm("text", tokens, "grpo") for tokens in LENGTHS])
        for cost in COSTS["text"]
    ],
    broken={"size": MOST},
    setting=lambda cost, **case: f"{label(**case)}, a prompt costs {cost:g} responses",
)
def equal_time(found, budget, cost, size=USUAL, **case):
    """A group costs its prompt and G responses, and all sizes spend the same; broken: always 256."""
    values = values_of(found, arm_of(case))
    sides = [sides_at(own[None], budget / (1.0 + cost / other))[0] for own, other in zip(values, SIZES, strict=True)]
    facts = {f"{other} less 8": lead([sides[k], sides[2]], (1.0, -1.0))["estimate"] for k, other in enumerate(SIZES)}
    return evidence(loss(sides, sides[SIZES.index(size)]), POINT), facts


@check(
    stated("long/step size"),
    of=trained,
    cases=lambda quick: cases(quick, arms=[arm for arm in ARMS if arm.estimator == "rloo"]),
    broken={"factor": 64.0},
    setting=label,
)
def step(found, budget, draws, factor=1.0, **case):
    """Broken: 64 times the size, or the largest there is."""
    arm = arm_of(case)
    sides, said = sides_at(values_of(found, arm), budget), start_sizes(arm, draws)
    at = values_of(found, arm)[SIZES.index(USUAL)].mean(axis=1)[:, BUDGETS.index(budget)].argmax()
    later = np.nanmean(values_of(found, arm, 3)[SIZES.index(USUAL), at], axis=0)
    facts = {"size at the start": said.mean(), "in the middle": later[2], "at the end": later[-1]}
    facts["best size"] = 2.0 ** best_sizes(np.array(sides).swapaxes(0, 1), np.array(SIZES), np.random.default_rng(0))[0]
    return evidence(loss(sides, at_sizes(sides, factor * said)), POINT), facts


@check(
    *stated("long/root", "long/longer"),
    of=trained,
    cases=lambda quick: [
        case for case in cases(quick, arms=[Arm("text", 256, name) for name in ("rloo", "grpo")]) if case["budget"] > BUDGETS[0]
    ],
    broken={"tokens": 16},
    setting="{estimator}, C = {budget:,}",
)
def root(found, budget, tokens, **case):
    """The best size at 256 tokens beside that at 16, and groups of 32 less 4 beside one token; broken: 16 tokens again, or one."""
    arm = arm_of(case | {"tokens": tokens})
    sides, short, one = (
        np.array(sides_at(values_of(found, arm._replace(tokens=number)), budget)) for number in (tokens, 16, 1)
    )
    sizes, rng = np.array(SIZES), np.random.default_rng(0)
    logs = [best_sizes(own.swapaxes(0, 1), sizes, rng) for own in (sides, short)]
    apart = (logs[0] - logs[1]) - np.log2(np.sqrt(254.0 / 14.0))
    error = float(np.std(apart[1:])) if tokens != 16 else float(np.sqrt(2.0) * np.std(logs[0][1:]))
    few, large = SIZES.index(4), SIZES.index(32)
    rise = lead([one[large], one[few], sides[large], sides[few]], (1.0, -1.0, -1.0, 1.0))
    if tokens == 16:
        rise = lead([one[large], one[few]] * 2, (1.0, -1.0, -1.0, 1.0)) | {"standard_error": rise["standard_error"]}
    facts = {"best size at 256 tokens": 2.0 ** logs[0][0], "at 16": 2.0 ** logs[1][0]}
    found = evidence({"estimate": abs(apart[0]), "standard_error": error, "replications": sides.shape[-1]}, 1.0)
    return {"long/root": (found, facts), "long/longer": (evidence(rise, 0.0), facts)}


@check(
    stated("long/divide"),
    of=trained,
    cases=lambda quick: cases(quick, arms=[arm for arm in ARMS if arm.estimator == "rloo" and arm.kind != "walk"]),
    broken={"early": True},
    setting=label,
)
def divide(found, budget, early=False, **case):
    """What is lost by dividing, each side at its best size and rate; broken: the divided run stops at a sixteenth."""
    arm = arm_of(case)
    plain, divided = (values_of(found, arm._replace(estimator=name)) for name in ("rloo", "grpo"))
    sides = [np.concatenate(sides_at(own, at)) for own, at in ((plain, budget), (divided, BUDGETS[0] / 4 if early else budget))]
    return evidence(lead(sides, (1.0, -1.0)), POINT)


@check(
    stated("long/keep rate"),
    of=trained,
    cases=lambda quick: [
        case | {"size": size}
        for case in cases(quick, BUDGETS[-1:], [Arm("text", 64, *how) for how in (("rloo",), ("grpo",))] + [Arm("text", 256, "rloo")])
        for size in (4, 16, 32, 64)
    ],
    broken={"place": 0},
    setting=lambda size, **case: f"{label(**case)}, G = {size}",
)
def keep(found, budget, size, place=None, **case):
    """What is lost by the rate that is best for groups of 8; broken: the least rate of the grid."""
    sides = sides_at(values_of(found, arm_of(case)), budget)
    own, usual = sides[SIZES.index(size)], sides[SIZES.index(USUAL)]
    chooser = usual if place is None else np.eye(len(own))[place][:, None] + 0.0 * own
    row = lead([own, chooser], (1.0, -1.0), [own, own])
    return evidence(row, POINT)


@check(
    stated("long/held out"),
    of=trained,
    cases=lambda quick: cases(quick, BUDGETS[-1:], [arm for arm in ARMS if arm.kind in ("teaching", "walk")]),
    broken={"size": MOST},
    setting=label,
)
def held_out(found, budget, size=None, **case):
    """Held-out success at the size and rate that are best on training prompts, and at its own best; broken: always 256."""
    trained, held = (sides_at(values_of(found, arm_of(case), measure), budget) for measure in (0, 1))
    chosen = [trained, held] if size is None else [[own[SIZES.index(size)]] for own in (trained, held)]
    best = np.concatenate(held)
    return evidence(lead([best, np.concatenate(chosen[0])], (1.0, -1.0), [best, np.concatenate(chosen[1])]), POINT)


@check(
    *stated("long/bonus", "long/penalty"),
    of=trained,
    cases=lambda quick: [
        arm._asdict() | {"size": size, "draws": QUICK_DRAWS if quick else DRAWS}
        for arm, size in PLAIN
    ],
    broken={"strengths": STRENGTHS[-1:]},
    setting=lambda size, **case: f"{label(**case)}, G = {size}",
)
def terms(found, size, strengths=STRENGTHS[:-1], **case):
    """A run with an entropy bonus, or a KL penalty, at its best strength and rate, beside one without; broken: far too strong."""
    sides, plain = {}, ends_of(found, arm_of(case), size)
    for term in ("bonus", "penalty"):
        own = [ends_of(found, arm_of(case)._replace(**{term: strength}), size) for strength in strengths]
        sides[f"long/{term}"] = evidence(lead([plain, np.concatenate(own)], (1.0, -1.0)), 0.0)
    return sides


def ends_of(found, arm, size):
    """Return success at the end of an arm that has one size here, (rates, draws)."""
    own = [one["values"] for one in found if tuple(one["arm"]) == tuple(arm) and one["size"] == size]
    return np.array(own[-1], dtype=float)[0, ..., -1]


def entropy_law(entropy, success, places, steep):
    """Return R = b - a exp(H), fitted at some places along a run, at its end; with a changed by a factor about the last place."""
    seen, reached = np.exp(entropy), success[places]
    slope, level = np.polyfit(seen[places], reached, 1)
    return level + slope * (steep * seen[-1] + (1.0 - steep) * seen[places][-1])


@check(
    stated("long/entropy law"),
    of=trained,
    cases=lambda quick: cases(quick, BUDGETS[-1:], [Arm("text", tokens, name) for tokens in LENGTHS for name in ("rloo", "grpo")]),
    broken={"steep": 4.0},
    sound={"places": slice(None)},
    setting=label,
)
def entropy_along(found, draws, places=slice(0, 3), steep=1.0, **case):
    """The law from a quarter of a run of groups of 8, at its end; broken: four times as steep; sound: fitted to the whole run."""
    arm = arm_of(case)
    success, entropy = (values_of(found, arm, measure)[SIZES.index(USUAL)] for measure in (0, 2))
    at = success.mean(axis=1)[:, -1].argmax()

    def miss(weights):
        means = [weights @ own[at] for own in (entropy, success)]
        return abs(entropy_law(*means, places, steep) - means[1][-1])

    without = (np.eye(draws) != 1.0) / (draws - 1.0)
    error = jackknife_error(np.array([miss(weights) for weights in without]))
    row = {"estimate": miss(np.full(draws, 1.0 / draws)), "standard_error": float(error), "replications": draws}
    return evidence(row, 0.05), {"entropy at the end": float(entropy[at, :, -1].mean())}


LAWS = tuple(product((0.0, 1.0, 2.0, 3.0), (0.0, 0.25, 0.5, 1.0), (0.0, 0.25, 0.5), (0.0, 1.0)))
"""What log2 of the best size may be: a + b log2(step's size) + c log2(C/4096) + d if it is divided; b of 1 is the step's law."""


def law_size(law, said, budget, divided):
    """Return the size of a law, of the step's size at the start of each draw."""
    a, b, c, d = law
    return np.clip(2.0 ** (a + b * np.log2(said) + c * np.log2(budget / BUDGETS[0]) + d * divided), SIZES[0], SIZES[-1])


def settings_of(found, kind, draws):
    """Yield the sides, the step's size, the budget and the division of a kind's arms, at each budget."""
    for arm in ARMS:
        if arm.kind == kind:
            values, said = values_of(found, arm), start_sizes(arm, draws)
            for budget in BUDGETS:
                yield sides_at(values, budget), said, budget, arm.estimator == "grpo"


@check(
    *stated("long/one size", "long/law"),
    of=trained,
    cases=lambda quick: [{"kind": kind, "draws": QUICK_DRAWS if quick else DRAWS} for kind in KINDS],
    broken={"wrong": True},
    setting="{kind}",
)
def advice(found, kind, draws, wrong=False):
    """Regret over a kind's lengths, estimators and budgets of always 8, and of the law fitted elsewhere; broken: always 64."""
    listed = list(settings_of(found, kind, draws))
    others = [one for other in KINDS if other != kind for one in settings_of(found, other, draws)]
    ends = [np.array([side.mean(axis=1).max() for side in sides]) for sides, *_ in others]
    places = np.arange(1.0, len(SIZES) + 1.0)

    def cost(law):
        sizes = [np.log2(law_size(law, said, budget, divided)) for _, said, budget, divided in others]
        return np.mean([end.max() - np.interp(size, places, end).mean() for end, size in zip(ends, sizes, strict=True)])

    law = min(LAWS, key=cost)
    chosen = {f"always {size}": [sides[k] for sides, *_ in listed] for k, size in enumerate(SIZES)}
    chosen["step"] = [at_sizes(sides, said) for sides, said, *_ in listed]
    chosen["law"] = [at_sizes(sides, law_size(law, said, budget, divided)) for sides, said, budget, divided in listed]
    best, weight = [np.concatenate(sides) for sides, *_ in listed], 1.0 / len(listed)

    def less(one, other):
        return lead([*one, *other], [sign * weight for sign in (1.0, -1.0) for _ in listed])

    facts = {f"regret of {name}": less(best, own)["estimate"] for name, own in chosen.items()}
    facts |= dict(zip(("law: a", "law: step's size", "law: budget", "law: division"), law, strict=True))
    eight, rival = chosen["always 64" if wrong else "always 8"], chosen["always 64" if wrong else "law"]
    return {
        "long/one size": (evidence(less(best, eight), POINT), facts),
        "long/law": (evidence(less(chosen["always 8"], rival), 0.0), facts),
    }


@rows(of=trained, cases=cases)
def leads(found, budget, **case):
    """Every size's lead over groups of 8, success of 8, and the best rate of each size, for the figure and the page."""
    values = sides_at(values_of(found, arm_of(case)), budget)
    powers = RATES[case["estimator"], case["optimiser"]]
    powers = powers if len(values[0]) == len(powers) else powers[1::2]
    yield {"quantity": "success of 8"} | lead([values[SIZES.index(USUAL)]])
    for size, own in zip(SIZES, values, strict=True):
        yield {"quantity": "lead over 8", "group_size": size} | lead([own, values[SIZES.index(USUAL)]], (1.0, -1.0))
        yield {"quantity": "log2 of the best rate", "group_size": size, "estimate": powers[int(own.mean(axis=1).argmax())]}


@rows(of=trained, cases=lambda quick: cases(quick, BUDGETS, [Arm("text", 64, name) for name in ("rloo", "grpo")]))
def entropies(found, budget, **case):
    """Entropy along runs, at each size's rate that is best at the end, for the figure."""
    success, entropy = (values_of(found, arm_of(case), measure) for measure in (0, 2))
    for size, own, told in zip(SIZES, success, entropy, strict=True):
        seen = told[own[..., -1].mean(axis=1).argmax(), :, BUDGETS.index(budget)]
        yield {"quantity": "entropy", "group_size": size} | lead([seen[None]])
