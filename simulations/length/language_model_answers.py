"""SmolLM2's own answers of about 80 tokens: group sizes by convention, and whether the score's length tells of the reward.

Nothing is drawn: the shipped answers, rewards and sketches of the gradients of all parameters are read. A step has 1,024
responses. For groups of G an estimator's law averages over all subgroups of G of each prompt's responses. So G goes up to the
number of these, and for leave-one-out to 1,024. Errors are found by leaving out one prompt at a time. The claim about Assumption
2 is about the shipped prompts and has the error of their responses, as in `full_gradient`.

In the control of the claim, squared norms of right answers are multiplied by a hundred. Beside the efficiencies stands the loss
of a step with the responses of one prompt alone. Beside the gradient's squared length stands that with rewards dealt anew within
prompts.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.data import LongRollouts, long_rollouts
from grpo_theory.estimation import find
from grpo_theory.evidence import Claim, Evidence
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.intervals.u_statistics import prompt_gradients
from grpo_theory.plan.efficiency import Estimates, StepLaw, choose_by_efficiency
from grpo_theory.plan.error_constants import pilot_terms
from grpo_theory.plan.subgroups import RewardClasses
from simulations.gradient.groups import RESPONSES
from simulations.gradient.sampled_statistics import of_responses
from simulations.gradient.sampled_terms import covariances
from simulations.statements import stated

ASSUMPTION = stated("U6/assumption, 80 tokens")
ESTIMATORS = ("reinforce", "rloo", "trl_grpo", "nemo_rl", "max_rl", "verl_grpo_passk", "trl_grpo_loss")
"""One of each convention. The first has no baseline, the second the group's mean, which Dr. GRPO, prime-rl and Tinker share. The
next three divide: by the group's deviation, as TRL, verl, OpenRLHF and rLLM do, by the others', or by the mean. The last two are
pass@k, and division by each response's own length.
"""
OWN_LENGTH = "trl_grpo_loss"
UNBIASED = "rloo"
SIZES = (2, 3, 4, 6, 8, 12, 16, 24, 32)
LARGE = (*SIZES, 64, 128, 256, 512, 1024)
LEVEL, SMALL = 0.95, 0.1
"""Of the table's limits; and a correlation below 0.1 is called none, as of the short answers."""
UNBOUNDED = 1e3
SHORT, LONG, DEALT = "1 to 6 tokens", "80 tokens", "80 tokens, rewards dealt anew"
HUNDREDFOLD = ", right answers' hundredfold"


def cells(quick: bool) -> list[Cell]:
    """One cell; the data are what they are, so quick is no different."""
    return [Cell({"data": long_rollouts().provenance["sha256"]})]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Rows:
    """Read efficiencies, correlations and the gradient's squared length off the data, with errors over prompts."""
    data = long_rollouts()
    rewards, scores = data.rewards[data.index], data.sketches[data.index]
    table: Rows = []
    for name in ESTIMATORS:
        table += _by_size(name, data, rewards, scores)
    short = gt.data.sampled_answers()
    halves = np.split(short.sketches[short.index], 2, axis=-1)
    norms = [2.0 * (half**2).sum(axis=-1) for half in halves]
    table += _correlations(SHORT, norms[0], norms[1], short.rewards[short.index])
    exact = data.squared_norms[data.index]
    table += _correlations(LONG, exact, exact, rewards)
    dealt = rng.permuted(rewards, axis=1)
    for which, given in ((LONG, rewards), (DEALT, dealt)):
        constants = StepLaw.of_unbiased(pilot_terms(gt.Rollouts(given, scores)), np.array([2])).square
        table.append(_row({"answers": which, "quantity": "squared length of the gradient"}, constants))
    return table


def laws(name: str, data: LongRollouts, rewards: Array, scores: Array) -> StepLaw:
    """Return the law of an estimator's step at every size that the prompts' responses allow."""
    rollouts = gt.Rollouts(rewards, scores)
    if name == UNBIASED:
        return StepLaw.of_unbiased(pilot_terms(rollouts), np.array(LARGE))
    estimator, sizes = find(name), np.array(SIZES)
    sizes = sizes[(sizes <= rewards.shape[1]) & (sizes >= estimator.advantage.minimum_group_size)]
    # On policy a mean over a response's own tokens is its advantage times its score, over its length.
    weighed = scores / data.lengths[data.index][..., None] if name == OWN_LENGTH else scores
    return StepLaw.of_subgroups(RewardClasses.of(gt.Rollouts(rewards, weighed)), prompt_gradients(rollouts), estimator, sizes)


def _by_size(name: str, data: LongRollouts, rewards: Array, scores: Array) -> Iterator[dict[str, Any]]:
    """Yield the efficiency at each group size, and what it loses against the best; and with the responses of one prompt alone."""
    law = laws(name, data, rewards, scores)
    sizes = law.group_sizes
    choice = choose_by_efficiency(law, RESPONSES // sizes, LEVEL)
    alone, _ = law.root_efficiency(np.ones(sizes.size, dtype=np.int64))
    at = {"answers": LONG, "estimator": name, "best": int(sizes[choice.best])}
    for i, size in enumerate(sizes.tolist()):
        common = at | {"group_size": size, "candidate": bool(choice.candidates[i])}
        yield common | {"quantity": "efficiency", "estimate": float(choice.efficiency[i]), **EXACT}
        above = {name: _bounded(getattr(choice.loss, name)[i]) for name in ("estimate", "low", "high")}
        yield common | {"quantity": "best above it"} | EXACT | above
        for quantity, roots in (("loss", choice.roots), ("loss, one prompt alone", alone)):
            yield _row(common | {"quantity": quantity}, _loss(roots, choice.roots, i, choice.best))


def _bounded(value: float) -> float:
    """Return a share, or not a number where the data set no bound: another size may be any number of times as good."""
    return float(value) if value < UNBOUNDED else float("nan")


def _loss(roots: Estimates, of_best: Estimates, size: int, best: int) -> Estimates:
    """Return what share of the best size's efficiency is lost: 1 less the square of the ratio of roots."""
    ratio = float(roots.values[size] / of_best.values[best])
    influences = (roots.influences[size] - ratio * of_best.influences[best]) / of_best.values[best]
    return Estimates(np.asarray(1.0 - ratio**2), -2.0 * ratio * influences)


def _correlations(answers: str, first: Array, second: Array, rewards: Array) -> Iterator[dict[str, Any]]:
    """Yield the correlation of ||W||^2 and Z given the prompt, and with right answers' hundredfold; two estimates each."""
    for suffix, factor in (("", 1.0), (HUNDREDFOLD, 1.0 + 99.0 * rewards)):
        one, other = first * factor, second * factor
        terms = _terms(one, other, rewards)
        mean = terms.mean(axis=1)
        value = _correlation(mean)
        change = (terms - mean[:, None]) / mean[:, None]
        found = Estimates(np.asarray(value), value * (change[0] - (change[1] + change[2]) / 2.0))
        less = [_terms(*(np.delete(each, i, axis=1) for each in (one, other, rewards))) for i in range(rewards.shape[1])]
        without = np.stack([_correlation(mean[:, None] + (some - terms) / len(rewards)) for some in less], axis=1)
        yield _row({"answers": answers, "quantity": f"correlation{suffix}"}, found) | of_responses(without)


def _terms(first: Array, second: Array, rewards: Array) -> Array:
    """Return each prompt's covariance of ||W||^2 and Z, and the variances of both, shape (3, B)."""
    return np.stack([covariances((first + second) / 2.0, rewards), covariances(first, second), covariances(rewards, rewards)])


def _correlation(means: Array) -> Array:
    return np.asarray(means[0] / np.sqrt(means[1] * means[2]))


def _row(labels: dict[str, Any], found: Estimates) -> dict[str, Any]:
    value, error = float(found.values), float(found.standard_errors)
    half = float(stdtrit(found.prompts - 1, (1.0 + LEVEL) / 2.0)) * error
    numbers = {"estimate": value, "standard_error": error, "replications": found.prompts}
    return labels | numbers | {"low": value - half, "high": value + half}


def rows(settings: Settings, results: list[Any]) -> Iterator[dict[str, Any]]:
    """One row for each estimator, group size and quantity, and for each correlation."""
    (measured,) = results
    yield from (row | {"prediction": np.nan} for row in measured)


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Judge Assumption 2 of the shipped prompts; of group sizes so few prompts say nothing at the level of the report."""
    known = table[table["quantity"].str.startswith("correlation")].set_index(["answers", "quantity"])
    own, broken = (_given_prompts(known.loc[(LONG, f"correlation{suffix}"), :]) for suffix in ("", HUNDREDFOLD))
    short, long = (known.loc[(answers, "correlation"), :] for answers in (SHORT, LONG))
    facts = {f"correlation, {SHORT}": float(short["estimate"]), "standard error over prompts": float(long["standard_error"])}
    yield ASSUMPTION.claim(f"SmolLM2, {LONG}", own, broken, facts)


def _given_prompts(row: pd.Series) -> Evidence:
    """Return the evidence about the shipped prompts: the error of their responses."""
    error, replications = float(row["response_error"]), int(row["freedom"]) + 1
    return Evidence(abs(float(row["estimate"])), SMALL, error, replications=replications)
