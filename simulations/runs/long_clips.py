"""Long answers with several updates per rollout: what clips of the tokens' ratios cost and gain, and where runs stop.

With one update per rollout each ratio is one, and a clip does nothing. Here a rollout serves four updates, as trainers have it.
Arms have groups of eight divided by their standard deviation, and each has its own best learning rate, one for all draws. The
kinds of world are those of `long_runs`, of 64 tokens.

The statements, their margins and the arms were written down after a look at eight other draws of texts. It said which learning
rates are best. Without clips runs led by up to 20 points under plain ascent, and trailed by up to five under Adam. After the
data were seen two things changed: orderings had been told the wrong way round, and the control of entropy was another one. The
first was a clip of 0.05, and under Adam that leaves more entropy, too.
"""

from itertools import product
from typing import NamedTuple

import numpy as np

from grpo_theory.evidence.reading import evidence
from grpo_theory.harness import check, rows, run
from simulations.best_rate import lead
from simulations.runs.long_answers import RESPONSES, trained_draw
from simulations.runs.long_runs import KINDS, POINT, pooled
from simulations.seeds import seed_of
from simulations.statements import stated

SIZE, TOKENS, TIMES = 8, 64, 4
DRAWS, QUICK_DRAWS, FIRST = 48, 4, 400
"""How many draws there are, from which number on."""
ROLLOUTS, LONG = (16, 64, 256), (16, 256, 1024)
"""Where success is looked at: after 4,096 to 65,536 responses, and in the longest runs after 262,144, too."""
RATES = {("SGD", 1): range(1, 8), ("SGD", TIMES): range(-1, 6), ("Adam", 1): range(-5, 2), ("Adam", TIMES): range(-6, 1)}
"""The learning rates are these powers of 2, by the number of updates per rollout."""
WIDTHS = {
    "none": (np.inf, np.inf),
    "0.2": (0.2, 0.2),
    "0.28 above": (0.2, 0.28),
    "below alone": (0.2, np.inf),
    "0.05": (0.05, 0.05),
    "0.001": (0.001, 0.001),
}
"""Clips below and above one. The third is DAPO's, the fourth leaves ratios above one as they are, the last is the control."""
CHOICES = {"one update": (1, "none"), **{clip: (TIMES, clip) for clip in WIDTHS}}
"""Updates per rollout and clip, by what the page calls them."""
EVERY = tuple(WIDTHS)[:-1]
COMPARED = {
    "clip/costs": (("none",), ("0.2",), POINT),
    "clip/higher": (("0.2",), ("0.28 above",), 0.0),
    "clip/below alone": (EVERY, ("below alone",), POINT),
    "clip/updates": (("one update",), EVERY[:-1], 0.0),
}
"""By statement: two sides, each the best of some choices, and by how much the first may end ahead."""
OPTIMISERS = ("SGD", "Adam")
TERMS = {"bonus": "clip/long bonus", "penalty": "clip/long penalty", "below alone": "clip/long updates"}
"""What is added to the longest runs, and the statement about it."""
STRENGTHS = (3e-4, 1e-3, 3e-3)
"""Of an entropy bonus, and of a KL penalty, in the longest runs."""
LOST = 1e-3
"""A prompt with less success is lost: a thousand responses to it hold no right one, on average."""


class Arm(NamedTuple):
    """What trains: in which kind of world, by which optimiser, with how many updates per rollout and which terms."""

    kind: str
    optimiser: str
    times: int = 1
    clip: str = "none"
    bonus: float = 0.0
    penalty: float = 0.0
    long: bool = False


CLIPPED = tuple(Arm(kind, one, TIMES, clip) for kind, one, clip in product(KINDS, OPTIMISERS, WIDTHS))
ONCE = tuple(Arm(kind, one) for kind, one in product(KINDS, OPTIMISERS))
LONGEST = {
    one: {
        "plain": (Arm("text", one, long=True),),
        "bonus": tuple(Arm("text", one, bonus=strength, long=True) for strength in STRENGTHS),
        "penalty": tuple(Arm("text", one, penalty=strength, long=True) for strength in STRENGTHS),
        "four updates": (Arm("text", one, TIMES, long=True),),
        "below alone": (Arm("text", one, TIMES, "below alone", long=True),),
    }
    for one in OPTIMISERS
}
ARMS = (*CLIPPED, *ONCE, *(arm for listed in LONGEST.values() for arms in listed.values() for arm in arms))


def deal(draws, **_):
    """Every case reads several arms."""
    return {"draws": draws}, len(ARMS)


@run(dealt=deal, shared=True)
def clipped(draws, rng, chunk):
    """Return success, entropy and the share of lost prompts, (3, rates, draws, looks), of an arm."""
    arm = ARMS[chunk]
    rates, looks = [2.0**power for power in powers_of(arm, draws)], looks_of(arm)
    world, seed, (low, high) = KINDS[arm.kind]._replace(tokens=TOKENS), seed_of(rng), WIDTHS[arm.clip]
    update = {"estimator": "grpo", "decay": 0.999 * (arm.optimiser == "Adam"), "times": arm.times, "low": low, "high": high}
    update |= {"bonus": arm.bonus, "penalty": arm.penalty}
    found = np.zeros((3, len(rates), draws, len(looks)))
    for draw in range(draws):
        prompts, _, ended, kept = trained_draw(world, FIRST + draw, rates, SIZE, looks, seed, **update)
        success = prompts.success(kept)
        measures = success.mean(axis=-1), prompts.entropy(kept), (success < LOST).mean(axis=-1)
        found[:, :, draw] = np.where(ended, measures, [[[0.0]], [[0.0]], [[1.0]]])
    return [{"arm": list(arm), "values": found.round(6)}]


def powers_of(arm, draws):
    """Return the learning rates' powers of 2; where draws are few, every other one."""
    return RATES[arm.optimiser, arm.times][:: 1 if draws == DRAWS else 2]


def looks_of(arm):
    """Return the numbers of rollouts after which an arm is looked at."""
    return LONG if arm.long else ROLLOUTS


def values_of(found, arm, measure=0):
    """Return a measure of an arm, (rates, draws, looks)."""
    return np.array(next(one["values"] for one in found if tuple(one["arm"]) == tuple(arm))[measure], dtype=float)


def lead_of(found, optimiser, rollouts, *sides):
    """Return how far the best of some choices ends ahead of the best of others, on average over the kinds, as a row."""
    place = ROLLOUTS.index(rollouts)

    def best_of(kind, names):
        return np.concatenate([values_of(found, Arm(kind, optimiser, *CHOICES[name]))[..., place] for name in names])

    return pooled([[best_of(kind, names) for names in sides] for kind in KINDS])


def long_cases(quick):
    """Each optimiser."""
    return [{"optimiser": one, "draws": QUICK_DRAWS if quick else DRAWS} for one in OPTIMISERS]


def cases(quick):
    """Each optimiser, early and late."""
    return [case | {"rollouts": look} for case, look in product(long_cases(quick), ROLLOUTS)]


SETTING = "{optimiser}, {rollouts} rollouts"


@check(*stated(*COMPARED), of=clipped, cases=cases, broken={"clips": ("0.001",)}, setting=SETTING)
def compared(found, optimiser, rollouts, clips=None):
    """How far the first side of each pair ends ahead of the second; broken: of a clip of 0.001."""
    return {
        statement: evidence(lead_of(found, optimiser, rollouts, one, clips or other), margin)
        for statement, (one, other, margin) in COMPARED.items()
    }


@check(stated("clip/entropy"), of=clipped, cases=cases, broken={"least": True}, setting=SETTING)
def entropy(found, optimiser, rollouts, least=False):
    """Entropy with 0.2 less that with 0.28 from above, at the rate that is best with 0.2; broken: with 0.2 at the least rate."""
    place, leads = ROLLOUTS.index(rollouts), []
    for kind in KINDS:
        arms = [Arm(kind, optimiser, TIMES, one) for one in ("0.2", "0.28 above")]
        rate = values_of(found, arms[0])[..., place].mean(axis=1).argmax()
        narrow, wide = (values_of(found, arm, 1)[..., place] for arm in arms)
        leads.append(narrow[0 if least else rate] - wide[rate])
    return evidence(lead([np.mean(leads, axis=0)[None]]), 0.0)


def ends_of(found, optimiser, term, look):
    """Return success of the longest runs at all strengths of a term, and all rates, (rates, draws)."""
    return np.concatenate([values_of(found, arm)[..., look] for arm in LONGEST[optimiser][term]])


@check(stated("clip/level"), of=clipped, cases=long_cases, broken={"before": 0}, setting="text, {optimiser}")
def level(found, optimiser, before=1):
    """What runs gain from 65,536 to 262,144 responses, at their best rate for each; broken: from 4,096 responses."""
    return evidence(lead([ends_of(found, optimiser, "plain", look) for look in (2, before)], (1.0, -1.0)), 0.05)


@check(stated("clip/lost"), of=clipped, cases=long_cases, broken={"at": (0, 0)}, setting="text, {optimiser}")
def lost(found, optimiser, at=None):
    """What success falls short of one, less twice the share of lost prompts; broken: early, at the least rate."""
    success, gone = (values_of(found, LONGEST[optimiser]["plain"][0], measure) for measure in (0, 2))
    rate, look = at or (int(success[..., -1].mean(axis=1).argmax()), -1)
    return evidence(lead([(1.0 - success - 2.0 * gone)[rate, :, look][None]]), 0.0)


@check(*stated(*TERMS.values()), of=clipped, cases=long_cases, broken={"wrong": True}, setting="text, {optimiser}")
def terms(found, optimiser, wrong=False):
    """What plain runs end ahead of a term's, each at its best; broken: of the plain run after 4,096 responses."""
    plain, early = (ends_of(found, optimiser, "plain", look) for look in (2, 0))
    return {
        statement: evidence(lead([plain, early if wrong else ends_of(found, optimiser, term, 2)], (1.0, -1.0)), 0.0)
        for term, statement in TERMS.items()
    }


@rows(of=clipped, cases=lambda quick: [arm._asdict() | {"draws": long_cases(quick)[0]["draws"]} for arm in ARMS])
def ends(found, draws, **case):
    """Success, entropy, lost prompts and the best rate of every arm at each look, for the page."""
    arm = Arm(**case)
    (success, entropies, gone), powers = (values_of(found, arm, measure) for measure in range(3)), powers_of(arm, draws)
    for place, rollouts in enumerate(looks_of(arm)):
        best = int(success[..., place].mean(axis=1).argmax())
        about = {"budget": rollouts * RESPONSES, "log2 of the best rate": powers[best]}
        yield about | {"quantity": "success"} | lead([success[..., place]])
        yield about | {"quantity": "entropy"} | lead([entropies[best, :, place][None]])
        yield about | {"quantity": "lost prompts"} | lead([gone[best, :, place][None]])


@rows(of=clipped, cases=cases)
def losses(found, optimiser, rollouts, draws):
    """What each clip loses to the best of all, over all kinds, for the page."""
    for clip in EVERY:
        row = lead_of(found, optimiser, rollouts, EVERY, (clip,))
        yield {"budget": rollouts * RESPONSES, "quantity": "lost", "clip": clip} | row
