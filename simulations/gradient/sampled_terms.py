"""What sampled answers say, prompt by prompt, about the noise of a gradient's estimates, its baselines and its geometry.

Given the prompt every term but `gain` is unbiased, for scores in full, in coordinates that keep inner products, or sketched. For
sketches, a product of two estimates of squared norms takes one from each half of the sketch: their errors are independent. All
results are functions of the terms' means over prompts, and of the mean product of different prompts' gradients.
"""

from typing import NamedTuple

import numpy as np

from grpo_theory.intervals.rollout_intervals import prompt_gradients, prompt_powers
from grpo_theory.intervals.rollouts import Rollouts
from grpo_theory.validation import Array, Integers

OTHERS = "product of others"
"""The name of the mean product of the estimated gradients of different prompts."""
ANOTHERS = "variance P, another's"
"""The control of the proxy: the variance of each prompt beside the squared norm of a prompt half the list away."""
TENFOLD = ", right answers' tenfold"
"""The control of a correlation with ||W||^2: squared norms of right answers are multiplied by ten."""


class Scores(NamedTuple):
    """Different answers' rewards (D,) and scores (D, J), exact or sketched, and which of them each response is, (B, G)."""

    rewards: Array
    scores: Array
    answers: Integers
    exact: bool

    def of(self, answers):
        """Return rewards (b, G) and scores (b, G, J) of some responses (b, G)."""
        return self.rewards[answers], self.scores[answers]


def prompt_terms(rewards, scores, exact):
    """Return the terms (B,) of prompts from rewards (B, G) and scores (B, G, J).

    P = ||W||^2, Z the reward, V its mean; `power` is of ||g||^2, and a product of names is of the product of their means.
    Where scores are sketched there are two estimates of P, one from each half.
    """
    size, z = rewards.shape[1], rewards
    halves = (scores, scores) if exact else np.sqrt(2.0) * np.array(np.split(scores, 2, axis=-1))
    first, second = ((half**2).sum(axis=-1) for half in halves)
    p = (first + second) / 2.0
    power, advantage, independent = prompt_powers(Rollouts(z, scores))
    pairs, triples = size * (size - 1.0), size * (size - 1.0) * (size - 2.0)
    total, sum_z, sum_pz, sum_pzz = p.sum(axis=1), z.sum(axis=1), (p * z).sum(axis=1), (p * z**2).sum(axis=1)
    both, apart = (prompt_powers(Rollouts(z, some[..., None]))[0] for some in (first + second, first - second))
    tenfold = 1.0 + 9.0 * z
    return {
        "power": power,
        "c2": advantage - power,
        "c3": independent + power,
        "P": total / size,
        "PZZ": sum_pzz / size,
        "V PZ": (sum_z * sum_pz - sum_pzz) / pairs,
        "V V P": (total * (sum_z**2 - (z**2).sum(axis=1)) - 2.0 * sum_z * sum_pz + 2.0 * sum_pzz) / triples,
        "squared covariance": (both - apart) / 4.0,
        "gain": (both - apart) / 4.0 / p.mean(axis=1),
        "covariance": covariances(p, z),
        "variance of P": covariances(first, second),
        f"covariance{TENFOLD}": covariances(p * tenfold, z),
        f"variance of P{TENFOLD}": covariances(first * tenfold, second * tenfold),
        "variance": covariances(z, z),
        "variance variance": prompt_powers(Rollouts(z, z[..., None]))[0],
        "variance P": independent,
        "P P": (first.sum(axis=1) * second.sum(axis=1) - (first * second).sum(axis=1)) / pairs,
    }


def covariances(a, b):
    """Return the sample covariances along the last axis."""
    centred = (a - a.mean(axis=1, keepdims=True)) * (b - b.mean(axis=1, keepdims=True))
    return centred.sum(axis=1) / (a.shape[1] - 1.0)


def mean_of_pairs(values):
    """Return the mean of a symmetric matrix (B, B) beside its diagonal."""
    size = len(values)
    return float((values.sum() - np.trace(values)) / (size * (size - 1.0)))


def means_of_others(values):
    """Return that mean without each of the B rows and its column in turn, shape (B,)."""
    size = len(values)
    rows = values.sum(axis=1) - np.diag(values)
    return (rows.sum() - 2.0 * rows) / ((size - 1.0) * (size - 2.0))


class Sample(NamedTuple):
    """Terms of all prompts, and the inner products (B, B) of their estimated gradients."""

    terms: dict[str, Array]
    products: Array

    @classmethod
    def of(cls, scores):
        """Compute both."""
        rewards, some = scores.of(scores.answers)
        gradients, terms = prompt_gradients(Rollouts(rewards, some)), prompt_terms(rewards, some, scores.exact)
        terms[ANOTHERS] = terms["variance"] * np.roll(terms["P"], -(len(terms["P"]) // 2))
        return cls(terms, gradients @ gradients.T)

    def means(self):
        """Return the means, as arrays of no axes."""
        return {name: term.mean() for name, term in self.terms.items()} | {OTHERS: np.asarray(mean_of_pairs(self.products))}

    def without_prompt(self):
        """Return the means without each prompt in turn, shape (B,)."""
        means = {name: (term.sum() - term) / (len(term) - 1.0) for name, term in self.terms.items()}
        return means | {OTHERS: means_of_others(self.products)}

    def without_response(self, scores):
        """Return the means without each response in turn, shape (B, G); each different answer is left out once."""
        size, group_size = scores.answers.shape
        gradients = prompt_gradients(Rollouts(*scores.of(scores.answers)))
        total, means = gradients.sum(axis=0), self.means()
        without = {name: np.empty((size, group_size)) for name in means}
        for b, answers in enumerate(scores.answers):
            _, first, copies = np.unique(answers, return_index=True, return_inverse=True)
            rewards, some = scores.of(np.stack([np.delete(answers, i) for i in first]))
            terms = prompt_terms(rewards, some, scores.exact)
            for name, term in terms.items():
                without[name][b] = means[name] + (term - self.terms[name][b])[copies] / size
            variance, p = self.terms["variance"], self.terms["P"]
            partners = p[(b + size // 2) % size], variance[(b - size // 2) % size]
            change = partners[0] * (terms["variance"] - variance[b]) + partners[1] * (terms["P"] - p[b])
            without[ANOTHERS][b] = means[ANOTHERS] + change[copies] / size
            change = (prompt_gradients(Rollouts(rewards, some)) - gradients[b]) @ (total - gradients[b])
            without[OTHERS][b] = means[OTHERS] + 2.0 * change[copies] / (size * (size - 1.0))
        return without


def noise(means, group_size):
    """Return the mean noise of a group's estimate about its prompt's gradient, times G, by baseline; the last two are controls.

    The baselines are none, the leave-one-out mean, V and b* = E[PZ]/E[P]. In the controls V is added instead of subtracted, or
    the baseline is one other reward, leave-one-out in groups of 2.
    """
    none = means["PZZ"] - means["power"]
    return {
        "none": none,
        "leave-one-out": means["c2"] + means["c3"] / (group_size - 1.0),
        "value": means["c2"],
        "optimal": means["c2"] - means["gain"],
        "value, wrong sign": none + 2.0 * means["V PZ"] + means["V V P"],
        "means of pairs": means["c2"] + means["c3"],
    }


def components(means):
    """Return c1, c2 and c3."""
    return means["power"] - means[OTHERS], means["c2"], means["c3"]


def within_correlation(means, suffix=""):
    """Return the correlation of ||W||^2 and Z given the prompt, over all prompts: mean covariance over root mean variances."""
    return means[f"covariance{suffix}"] / np.sqrt(means[f"variance of P{suffix}"] * means["variance"])


def proxy_correlation(means, product="variance P"):
    """Return the correlation over prompts of the reward's variance and ||W||^2, freed of the noise of their estimates.

    The product of the two is each prompt's own, or, for the control, of two prompts.
    """
    v, p = means["variance"], means["P"]
    spread = (means["variance variance"] - v**2) * (means["P P"] - p**2)
    return (means[product] - v * p) / np.sqrt(spread)
