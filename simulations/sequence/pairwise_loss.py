"""R7: the pairwise loss and the group-relative update, exact.

A step on the squared differences of regularised rewards is compared with the update of the group mean, own sample included, for
any samples. In the control the mean leaves the own sample out: it is off by a factor of 1/(K-1).
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence.reading import largest
from grpo_theory.harness import check
from simulations.gradient.groups import estimate
from simulations.sequence.divergences import gradient
from simulations.sequence.parts import of_length
from simulations.statements import stated

PROBLEMS = ("tabular", "linear", "graded", "sequence-shared")
SETTINGS = {"groups": 50, "group_size": 6, "strength": 0.3, "drift": 0.5}


@check(
    *stated("R7", "R7/away"),
    cases=[{"problem": name, **SETTINGS} for name in PROBLEMS],
    broken={"kernel": "rloo"},
    setting="{problem}",
)
def updates(problem, groups, group_size, strength, drift, rng, kernel="dr_grpo"):
    """The largest discrepancies, in units of a score times the rewards' spread, for groups that no policy would draw.

    Responses are drawn evenly from all there are, and rewards from a normal law, whatever the responses are.
    """
    found = gt.gallery.problem(problem)
    paths, then = found.policy.paths, found.at(found.theta)
    scale = np.sqrt(then.moments.score_squared_norm)
    policies = {"R7": then, "R7/away": found.at(found.theta + of_length(drift, rng.normal(size=found.policy.dimension)))}
    gaps: dict[str, list[float]] = {name: [] for name in policies}
    i, j = np.triu_indices(group_size, 1)

    def gap(here, prompt, responses, rewards):
        def regularised(logs):
            # a = r - tau log(pi/pi_0)
            return rewards - strength * paths.along(logs - then.token_log_probabilities)[prompt, responses]

        def loss(logs):
            # (1/K^2) sum_{i<j} (a_i - a_j)^2
            a = regularised(logs)
            return ((a[i] - a[j]) ** 2).sum() / group_size**2

        a = regularised(here.token_log_probabilities)
        logit_gradients = np.zeros((found.bandit.n_prompts, here.logit_gradients.shape[-1]))
        logit_gradients[prompt] = estimate(kernel, here.logit_gradients[prompt, responses], a)
        update = found.policy.tangent(found.theta).adjoint(logit_gradients)
        return np.linalg.norm(-gradient(found, loss, here.theta) / (2.0 * strength) - update) / (a.std() * scale[prompt])

    for _ in range(groups):
        prompt = int(rng.integers(found.bandit.n_prompts))
        group = prompt, rng.integers(found.bandit.n_responses, size=(group_size,)), rng.normal(size=(group_size,))
        for name, here in policies.items():
            gaps[name].append(gap(here, *group))
    return {name: (largest(of_groups), 0.0) for name, of_groups in gaps.items()}
