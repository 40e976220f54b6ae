"""N11, N12: do prompts lose their orthogonality where features are learned, and what are the phases of division?  Exact.

Networks of two layers range from narrow to wide, and prompts are easy or hard. Inputs, right answers and the start are drawn.
All statements are about means over the draws, and limits count draws. Ascent is along the sums of grad J_i and of
grad J_i / sqrt(V_i), with first updates of one length in the logits. The linear policies with the features of the start ascend in
the same way. The criterion of a phase is that of SmolLM2's head.

For what division gains, the control is the divided arm with a tenth of the step: its first update is shorter than the others'.
For cosines, the controls are gradients without their signs, and prompts that share no parameter. For what learning the features
adds, the control is the linear policy after half of the updates.

The draws are numbered from 0 and were fixed before the run. An earlier version of this study saw two networks of each kind, at a
quarter of the step.
"""

from itertools import product

import numpy as np

from grpo_theory.evidence.reading import distance, mean_of, summary
from grpo_theory.harness import check, rows, run
from grpo_theory.problem.logits import TabularMap
from simulations.normalisation.heads import near_orthogonal
from simulations.normalisation.networks import TITLE, ascent, linearised, network_problem, pair_cosines
from simulations.normalisation.phases import FALL, MORE, ORTHOGONAL, PRINTED_NEAR, first_two, shown
from simulations.statements import stated

DRIFT, LEARNED, LOST = stated("N11/learned features", "N11/features", "N12/III, learned features")
PRINTED_SHARES, FIRST, SECOND = stated("N11/printed, learned features", "N12/I, learned features", "N12/II, learned features")
WIDTHS, MIXTURES = (4, 16, 64), ("easy", "hard")
DRAWS, QUICK_DRAWS = 48, 32
UPDATES, STRIDE = (0, 5, 10, 20, 40, 80, 160), 0.4
SLOW = 0.1
"""A tenth of the step of the others: that much is no matter of taste."""

ARMS = {"plain": (0.0, 1.0), "divided": (-1.0, 1.0), "slow": (-1.0, SLOW)}
"""The power of V_i^(1/2) that gradients have as a factor, and the length of the first update relative to that of the others."""
MEASURES = ("success", "deviation", "orthogonality", "without signs", "apart")
"""Means over prompts of success and its deviation; shares of pairs whose gradients are near-orthogonal.

The last two are those of gradients whose entries have lost their signs, and of prompts with parameters of their own.
"""
TENTH = 0.1
"""A share of which the first digit holds would be read as the same finding, as for SmolLM2's head."""
SHARE = MEASURES.index("orthogonality")


def cases(quick):
    """One case for each width and mixture of prompts; a quick run has the first."""
    kinds = list(product(WIDTHS, MIXTURES))[: 1 if quick else None]
    draws = QUICK_DRAWS if quick else DRAWS
    return [{"width": width, "mixture": mixture, "updates": list(UPDATES), "draws": draws} for width, mixture in kinds]


def each(**parts):
    """Return what lists the cases with each value of a further key."""
    return lambda quick: [case | {name: one} for case in cases(quick) for name, values in parts.items() for one in values]


@run()
def courses(width, mixture, updates, draws):
    """Return the measures of each arm on each draw, (draws, updates, measures), where features are learned and where not."""
    networks = [network_problem(width, draw, mixture=mixture) for draw in range(draws)]
    kinds = {"learned": (networks, ARMS), "of the start": ([linearised(one) for one in networks], ("plain", "divided"))}
    return {kind: {arm: [course(one, arm, updates) for one in ones] for arm in arms} for kind, (ones, arms) in kinds.items()}


def course(problem, arm, updates):
    """Return the `MEASURES` of an ascent after these numbers of updates, (updates, measures)."""
    power, length = ARMS[arm]
    return [measured(place) for n, place in enumerate(ascent(problem, power, updates[-1], length * STRIDE)) if n in updates]


def measured(place):
    """Return the `MEASURES` of a policy."""
    now, gradients = place.now, place.gradients
    apart = TabularMap(*now.logit_gradients.shape).adjoint_by_prompt(now.logit_gradients)
    shares = [near_orthogonal(pair_cosines(vectors)) for vectors in (gradients, np.abs(gradients), apart)]
    return [now.value.mean(), now.deviation.mean(), *shares]


@check(DRIFT, LOST, of=courses, cases=each(arm=("plain", "divided")), broken={"measure": "apart"}, setting=TITLE + ", {arm}")
def lost(found, arm, measure="orthogonality"):
    """By how much the share of near-orthogonal gradients falls, and where it ends."""
    shares = found["learned"][arm][:, :, MEASURES.index(measure)]
    facts = {"share of draws that lose it": (shares[:, -1] <= ORTHOGONAL).mean()}
    return {DRIFT.id: (mean_of(shares[:, -1] - shares[:, 0]), -FALL), LOST.id: (mean_of(shares[:, -1]), ORTHOGONAL, facts)}


@check(PRINTED_SHARES, of=courses, cases=each(time=PRINTED_NEAR), broken={"measure": "without signs"}, setting=TITLE + ", {time}")
def near_printed(found, time, measure="orthogonality"):
    """How far from the printed shares those at the start, half-way in success and at the end are."""
    runs = found["learned"]["plain"]
    success = runs[:, :, 0].mean(axis=0)
    half = np.argmax(success >= (success[0] + success[-1]) / 2.0)  # the first to be half-way
    place, printed = {"start": 0, "middle": half, "end": -1}[time], PRINTED_NEAR[time]
    facts = {"success": success[place], "orthogonality": runs[:, place, SHARE].mean()}
    return distance(summary(runs[:, place, MEASURES.index(measure)]), printed, TENTH), facts


@check(LEARNED, FIRST, SECOND, of=courses, cases=cases, broken={"arm": "slow", "learns": False}, setting=TITLE)
def of_learning(found, updates, arm="divided", learns=True):
    """How much more the share falls with learned features, or with those of the start after half of the updates; the phases."""
    own, frozen = (found[kind]["plain"][:, :, SHARE] for kind in ("learned", "of the start"))
    end = own[:, -1] - own[:, 0] if learns else frozen[:, -2] - frozen[:, 0]
    both = first_two(found["learned"], arm, MEASURES, updates)
    sides = {f"N12/{name}, learned features": one for name, one in both.items()}
    return sides | {LEARNED.id: (mean_of(end - (frozen[:, -1] - frozen[:, 0])), -MORE)}


@rows(of=courses, cases=cases)
def measures(found, updates):
    """Measures and advantages of each arm at each number of updates, and increases of division's with their phases."""
    for features, arms in found.items():
        yield from ({"features": features} | row for row in shown(arms, MEASURES, updates))
