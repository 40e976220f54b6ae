"""R4: the shrunk leave-one-out baseline: bias and error.

Its bias is a sum over all batches of small problems. Its error is simulated beside the plain one's, on the same draws. In the
controls the baseline has the own sample in it, or is moved away from the other groups' mean instead of towards it.
"""

from itertools import product

import numpy as np

import grpo_theory as gt
from grpo_theory.estimation.trainers import CONVENTIONS as TRAINERS
from grpo_theory.harness import check, run
from simulations.gradient.cells import error_of, merge
from simulations.gradient.groups import advantages_of
from simulations.seeds import seed_of
from simulations.statements import stated

R4, UNBIASED, LOWER = stated("R4", "R4/unbiased", "R4/lower")
SMALL = [{"problem": "two-arms"}, {"problem": "two prompts"}]
SHRUNK, PLAIN = "james_stein", "trl_rloo"
AWAY = TRAINERS[SHRUNK].with_parameters(strength=-1.0)


def small_problem(name):
    """Return a problem whose batches can be enumerated."""
    if name == "two-arms":
        return gt.gallery.problem(name)
    bandit = gt.Bandit([[0.2, 0.9], [0.4, 0.05]], [0.3, 0.7])
    return gt.Problem(bandit, gt.TabularSoftmax(2, 2), theta=[0.3, -0.2, -0.4, 0.5])


def mean_over_batches(problem, estimator, batch_size=2, group_size=2):
    """Return the expected estimate, shape (d,), as a sum over all batches of prompts and ordered groups."""
    point = problem.at(problem.theta)
    drawn = [
        (prompt, list(group), weight * point.outcome_probabilities[prompt][list(group)].prod())
        for prompt, weight in enumerate(problem.bandit.prompt_weights)
        for group in product(range(point.outcome_responses.size), repeat=group_size)
    ]
    total = np.zeros(point.token_probabilities.shape)
    for batch in product(drawn, repeat=batch_size):
        advantages = advantages_of(estimator, np.array([point.rewards[prompt][group] for prompt, group, _ in batch]))
        p = np.prod([weight for _, _, weight in batch])
        for b, (prompt, group, _) in enumerate(batch):
            total[prompt] += p * advantages[b] @ point.logit_gradients[prompt][point.outcome_responses[group]]
    return point.tangent.adjoint(total / (batch_size * group_size))


@check(UNBIASED, cases=SMALL, broken={"estimator": "trl_grpo_none"}, setting="{problem}")
def bias(problem, estimator=SHRUNK):
    """The bias in batches of two groups of two, relative to the gradient; broken, the own sample is in the mean."""
    problem = small_problem(problem)
    truth = gt.moments(problem, problem.theta).gradient
    return np.linalg.norm(mean_over_batches(problem, estimator) - truth) / np.linalg.norm(truth), 0.0


def cases(quick):
    """Each problem with each size of batch."""
    sizes, often = product((2, 4, 16), (2, 8)), {"exact": False, "chunk_replications": 1 << (12 if quick else 15)}
    where = product(("tabular", "mixed", "lm-few-shot"), sizes)
    return [{"problem": name, "batch_size": b, "group_size": g, **often} for name, (b, g) in where]


@run()
def drawn(problem, rng, exact, chunk_replications, **sizes):
    """Simulate the three side by side."""
    problem, options = gt.gallery.problem(problem), sizes | {"replications": chunk_replications, "workers": 1}
    simulation = gt.simulate_gradients(problem, problem.theta, [SHRUNK, PLAIN, AWAY], **options, rng=seed_of(rng))
    return {"simulation": [simulation.to_dict()]}


@check(LOWER, of=drawn, cases=cases, broken={"estimator": AWAY.name}, setting="{problem}, B = {batch_size}, G = {group_size}")
def lower(found, estimator=SHRUNK):
    """The error less the plain one's, relative to that; broken, the baseline is moved away from the other groups' mean."""
    simulation = merge(found)
    plain, _, _ = error_of(simulation, "mse", PLAIN)
    difference, error, replications = error_of(simulation, "mse", estimator, PLAIN)
    return (difference / plain, error / plain, replications), 0.0
