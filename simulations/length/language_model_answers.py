"""SmolLM2's own answers of about 80 tokens: group sizes by convention, and whether the score's length tells of the reward.

Nothing is drawn: the shipped answers, rewards and sketches of the gradients of all parameters are read. A step has 1,024
responses. For groups of G an estimator's law averages over all subgroups of G of each prompt's responses. So G goes up to the
number of these, and for leave-one-out to 1,024. Errors are found by leaving out one prompt at a time. The claim about Assumption
2 is about the shipped prompts and has the error of their responses, as in `full_gradient`.

In the control of the claim, squared norms of right answers are multiplied by a hundred. Beside the efficiencies stands the loss
of a step with the responses of one prompt alone. Beside the gradient's squared length stands that with rewards dealt anew within
prompts.
"""

from typing import Any

import numpy as np
from scipy.special import stdtrit

import grpo_theory as gt
from grpo_theory.data import long_rollouts
from grpo_theory.estimation import find
from grpo_theory.harness import check, rows
from grpo_theory.intervals.rollout_intervals import prompt_gradients
from grpo_theory.plan.efficiency import RewardClasses, StepLaw, choose_by_efficiency
from grpo_theory.plan.group_size import Estimates, pilot_terms
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


def shipped(quick):
    """List the one case; the data are what they are, so quick is no different."""
    return [{"data": long_rollouts().provenance["sha256"]}]


@rows(cases=shipped)
def answers(rng):
    """Efficiencies, correlations and the gradient's squared length, with errors over prompts."""
    data = long_rollouts()
    rewards, scores = data.rewards[data.index], data.sketches[data.index]
    for name in ESTIMATORS:
        yield from by_size(name, data, rewards, scores)
    for which in (SHORT, LONG):
        yield {"answers": which, "quantity": "correlation"} | correlation(which)
    for which, given in ((LONG, rewards), (DEALT, rng.permuted(rewards, axis=1))):
        square = StepLaw.of_unbiased(pilot_terms(gt.Rollouts(given, scores)), np.array([2])).square
        yield {"answers": which, "quantity": "squared length of the gradient"} | row(square)


@check(ASSUMPTION, cases=shipped, broken={"right": 100.0}, setting=f"SmolLM2, {LONG}")
def assumption(right=1.0):
    """Assumption 2 of the shipped prompts; of group sizes so few prompts say nothing at the level of the report."""
    short, long = correlation(SHORT), correlation(LONG, right)
    facts = {f"correlation, {SHORT}": short["estimate"], "standard error over prompts": long["standard_error"]}
    return (abs(long["estimate"]), long["response_error"], long["freedom"] + 1), SMALL, facts


def laws(name, data, rewards, scores):
    """Return the law of an estimator's step at every size that the prompts' responses allow."""
    rollouts = gt.Rollouts(rewards, scores)
    if name == UNBIASED:
        return StepLaw.of_unbiased(pilot_terms(rollouts), np.array(LARGE))
    estimator, sizes = find(name), np.array(SIZES)
    sizes = sizes[(sizes <= rewards.shape[1]) & (sizes >= estimator.advantage.minimum_group_size)]
    # On policy a mean over a response's own tokens is its advantage times its score, over its length.
    weighed = scores / data.lengths[data.index][..., None] if name == OWN_LENGTH else scores
    return StepLaw.of_subgroups(RewardClasses.of(gt.Rollouts(rewards, weighed)), prompt_gradients(rollouts), estimator, sizes)


def by_size(name, data, rewards, scores):
    """Yield the efficiency at each group size, and what it loses against the best; and with the responses of one prompt alone."""
    law = laws(name, data, rewards, scores)
    sizes = law.group_sizes
    choice = choose_by_efficiency(law, RESPONSES // sizes, LEVEL)
    alone, _ = law.root_efficiency(np.ones(sizes.size, dtype=np.int64))
    for i, size in enumerate(sizes.tolist()):
        common = {"answers": LONG, "estimator": name, "best": sizes[choice.best], "group_size": size}
        yield common | {"quantity": "efficiency", "estimate": choice.efficiency[i]}
        # Not a number where the data set no bound: another size may be any number of times as good.
        above = {end: getattr(choice.loss, end)[i] for end in ("estimate", "low", "high")}
        yield common | {"quantity": "best above it"} | {end: x if x < UNBOUNDED else np.nan for end, x in above.items()}
        for quantity, roots in (("loss", choice.estimates), ("loss, one prompt alone", alone)):
            yield common | {"quantity": quantity} | row(loss(roots, choice.estimates, i, choice.best))


def loss(roots, of_best, size, best):
    """Return what share of the best size's efficiency is lost: 1 less the square of the ratio of roots."""
    ratio = roots.values[size] / of_best.values[best]
    influences = (roots.influences[size] - ratio * of_best.influences[best]) / of_best.values[best]
    return Estimates(np.asarray(1.0 - ratio**2), -2.0 * ratio * influences)


def correlation(answers, right=1.0):
    """Return the correlation of ||W||^2, times a factor of right answers, and Z given the prompt, with errors of two kinds."""
    data: Any = long_rollouts() if answers == LONG else gt.data.sampled_answers()
    rewards = data.rewards[data.index]
    if answers == LONG:
        norms = [data.squared_norms[data.index]] * 2
    else:  # halves of a sketch give two estimates, whose errors are independent
        norms = [2.0 * (half**2).sum(axis=-1) for half in np.split(data.sketches[data.index], 2, axis=-1)]
    given = [*(norm * (1.0 + (right - 1.0) * rewards) for norm in norms), rewards]
    found = terms(*given)
    mean = found.mean(axis=1)
    value, change = of_terms(mean), (found - mean[:, None]) / mean[:, None]
    less = [terms(*(np.delete(each, i, axis=1) for each in given)) for i in range(rewards.shape[1])]
    without = np.stack([of_terms(mean[:, None] + (some - found) / len(rewards)) for some in less], axis=1)
    return row(Estimates(value, value * (change[0] - (change[1] + change[2]) / 2.0))) | of_responses(without)


def terms(first, second, rewards):
    """Return each prompt's covariance of ||W||^2 and Z, and the variances of both, shape (3, B)."""
    return np.stack([covariances((first + second) / 2.0, rewards), covariances(first, second), covariances(rewards, rewards)])


def of_terms(means):
    """Return the correlation that the means of terms over prompts have."""
    return np.asarray(means[0] / np.sqrt(means[1] * means[2]))


def row(found):
    """Return an estimate as columns of a row, with Student's limits over prompts."""
    value, error = found.values, found.standard_errors
    half = stdtrit(found.prompts - 1, (1.0 + LEVEL) / 2.0) * error
    numbers = {"estimate": value, "standard_error": error, "replications": found.prompts}
    return numbers | {"low": value - half, "high": value + half}
