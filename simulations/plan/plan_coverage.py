"""Coverage of the planner's limits from rewards alone, and from gradients with heavy tails, and how often it warns of such tails.

Limits from rewards alone are tried on laws of success rates of known truth, over numbers of prompts and group sizes. In the
control the rates seen are plugged in. Where the lengths of gradients have heavy tails, the control has Student's limits. For
warnings it has the same pilots with lengths removed, or added where all are equal.
"""

import numpy as np

from grpo_theory.harness import check, rows, run
from grpo_theory.intervals.interval import student_coverage
from grpo_theory.intervals.rollout_intervals import PromptTerms
from grpo_theory.plan.advice import SHORT
from grpo_theory.plan.group_size import choose, choose_group_size, pilot_terms
from simulations.plan import rate_laws
from simulations.plan.pilot_problems import LAWS, LIMITS, draw_pilot, exact_law, judge, misses
from simulations.statements import stated

FROM_REWARDS = stated(*(f"plan/{name}" for name in rate_laws.SOUGHT))
TAILS = stated(*(f"plan/tails/{name}" for name in ("c1", "c2", "c3", "error", "loss", "missed", "false alarm")))

LEVEL = rate_laws.LEVEL
MISSES = 1.0 - LEVEL + 0.01 * LEVEL
"""How often an interval from rewards may miss: 95% may be 94.05%, as in the study of all other intervals."""
PROMPTS, SIZES = (32, 256, 2048), (2, 8, 64)
QUICK_PROMPTS, QUICK_SIZES = (32, 512), (8,)
POINTS = ("never, always, between", rate_laws.LANGUAGE_MODEL)
POINT_PROMPTS, POINT_SIZE = 256, 8
REPLICATIONS, POINT_REPLICATIONS, POINT_CHUNK = 200, 20_000, 5000
QUICK_REPLICATIONS = 100
ROUNDING = 1e-12
"""GRPO's weight with two responses is 1/2 for every prompt, and its limits are that number."""

TAIL_MISSES = 1.0 - LEVEL + 0.02
"""As of the planner's other limits from gradients: 93 of 100 cases instead of 95 misleads nobody."""
ALARMS = 0.1
"""A reader puts up with one wrong warning in ten: a table warned of for no reason, or one that is not warned of."""
HEAVY, LIGHT, SIGNAL = "lognormal 0.7", "equal", "lognormal 0.7, signal"
PILOTS, TAIL_CHUNK, QUICK_PILOTS = 200, 1000, 20
TAIL_DESIGN = (
    *((name, 30, True, PILOTS) for name in LAWS),
    ("lognormal 0.7", 100, False, PILOTS),
    ("lognormal 0.7", 400, True, PILOTS),
    ("lognormal 0.7, signal", 100, True, PILOTS),
)
"""Laws of lengths, prompts, whether the numbers of responses differ, and pilots."""
TAIL_POINTS = (
    (HEAVY, 30, True, 1000),
    (HEAVY, 30, False, 2000),
    (HEAVY, 100, True, 1000),
    (SIGNAL, 30, True, 2000),
    (LIGHT, 30, True, 1000),
    (LIGHT, 100, True, 1000),
)
"""Where the claims are decided: with more pilots where an earlier run found coverage nearer to what is promised. Half-widths are
less than what is left to the margin."""
TAIL_QUANTITIES = ("c1", "c2", "c3", "error", "loss", "best size", "risk", "warned")


def design(quick):
    """All laws of success rates, numbers of prompts and group sizes."""
    prompts, sizes = (QUICK_PROMPTS, QUICK_SIZES) if quick else (PROMPTS, SIZES)
    common = {"part": "design", "pilots": QUICK_REPLICATIONS if quick else REPLICATIONS}
    return [common | {"law": name, "prompts": b, "size": n} for name in rate_laws.laws() for b in prompts for n in sizes]


def points(quick):
    """Two points with many replications, on which the claims rest."""
    common = {"part": "point", "pilots": QUICK_REPLICATIONS if quick else POINT_REPLICATIONS}
    return [common | {"law": name, "prompts": POINT_PROMPTS, "size": POINT_SIZE} for name in POINTS]


def tails(quick, part="tails, point"):
    """Pilots with heavy tails: of the design, or the points with many pilots."""
    for law, prompts, ragged, pilots in TAIL_POINTS if part == "tails, point" else TAIL_DESIGN:
        case = {"part": part, "law": law, "prompts": prompts, "ragged": ragged, "pilots": QUICK_PILOTS if quick else pilots}
        yield case | ({"size": 0, "responses": "4 to 64"} if ragged else {"size": 8, "responses": "8"})


@run(pilots=POINT_CHUNK)
def counted(part, law, prompts, size, pilots, rng):
    """Draw pilots, and count how often the intervals hold the truth, and how often those do that take rates seen for rates."""
    of, found = rate_laws.laws()[law], {}
    tables = rate_laws.count_tables(rng.binomial(size, of.draw((pilots, prompts), rng)), size)
    arms = {"covered": rate_laws.honest_limits(tables), "plugged_in": rate_laws.limits_of(rate_laws.seen_terms(size), tables)}
    for name, truth in rate_laws.truths(of, size).items():
        holds = {arm: covers(limits[name], truth).sum() for arm, limits in arms.items()}
        found[name] = holds | {"width": np.median(np.subtract(*arms["covered"][name][::-1])), "truth": truth}
    return found


def covers(limits, truth):
    """Return which limits hold a number, but for rounding."""
    low, high = limits
    return (low <= truth + ROUNDING) & (truth - ROUNDING <= high)


@run(pilots=TAIL_CHUNK)
def counted_tails(part, law, prompts, ragged, pilots, rng):
    """Draw pilots, and count how often the planner's limits hold the truth, how often Student's do, and warnings of both."""
    counts = {quantity: {"covered": 0, "plugged_in": 0} for quantity in TAIL_QUANTITIES}
    for _ in range(pilots):
        rollouts, lengths = draw_pilot(law, prompts, ragged, rng)
        planned = choose_group_size(rollouts, LIMITS, LEVEL)
        plain = choose(planned.estimates, LIMITS, LEVEL, heavy=False)
        factors = LAWS[HEAVY].draw(rng, prompts) if law == LIGHT else 1.0 / lengths
        other = student_coverage(scaled(pilot_terms(rollouts), factors).influences(), LEVEL).min()
        arms = {"covered": (planned, planned.student_coverage), "plugged_in": (plain, other)}
        for arm, (choice, coverage) in arms.items():
            judged = {**judge(choice, exact_law(law)), "warned": coverage < LEVEL - SHORT}
            for quantity in TAIL_QUANTITIES:
                counts[quantity][arm] += int(judged[quantity])
    return counts


def scaled(terms, factors):
    """Return what prompts would say were the scores of each multiplied by a factor, (B,): all but gradients have its square."""
    squares = factors**2
    return PromptTerms(terms.gradients * factors[:, None], terms.power * squares, terms.c2 * squares, terms.c3 * squares)


@check(*FROM_REWARDS, of=counted, cases=points, broken={"arm": "plugged_in"}, setting="{law} (B = {prompts}, n = {size})")
def rewards_alone(found, pilots, arm="covered"):
    """The intervals from rewards cover at least so often as they say."""
    return {f"plan/{name}": misses(found[name][arm].sum(), pilots, MISSES) for name in rate_laws.SOUGHT}


@check(*TAILS, of=counted_tails, cases=tails, broken={"arm": "plugged_in"}, setting="{law}, {prompts} prompts of {responses}")
def heavy_tails(found, law, pilots, arm="covered"):
    """Limits hold as often as promised, and warnings are right.

    With common lengths the limits are those of absolute errors, else those of ratios of errors.
    """
    warned = found["warned"][arm].sum()
    if law == LIGHT:
        return {"plan/tails/false alarm": misses(pilots - warned, pilots, ALARMS)}
    promised = ("loss",) if law == SIGNAL else ("c1", "c2", "c3", "error")
    sides = {f"plan/tails/{name}": misses(found[name][arm].sum(), pilots, TAIL_MISSES) for name in promised}
    return sides if law == SIGNAL else sides | {"plan/tails/missed": misses(warned, pilots, ALARMS)}


@rows(of=counted, cases=design)
def shares(found, pilots):
    """In what share of pilots limits hold, or the planner warns; in what share those of the control do; and the median width."""
    for quantity, one in found.items():
        share, plain = (one[arm].sum() / pilots for arm in ("covered", "plugged_in"))
        facts = {"width": one["width"].mean(), "truth": one["truth"][0]} if "width" in one else {}
        numbers = {"estimate": share, "standard_error": np.sqrt(share * (1.0 - share) / pilots), "replications": pilots}
        yield facts | {"quantity": quantity, "plugged_in": plain} | numbers


@rows(of=counted_tails, cases=lambda quick: [*tails(quick, "tails"), *tails(quick)])
def shares_of_tails(found, pilots):
    """The same of pilots with gradients."""
    return shares(found, pilots)
