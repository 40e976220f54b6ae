"""Which estimator for which question.

Direction, efficiency, uniform groups and old policies, for responses of several lengths.  No statement is decided here: the
table says what the other studies say, estimator by estimator.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.estimation import find
from grpo_theory.harness import rows
from simulations.gradient.groups import advantages_of
from simulations.seeds import seed_of
from simulations.sequence.parts import cosine, of_length

PROBLEM = "sequence-shared"
ESTIMATORS = (
    *("reinforce", "oracle", "optimal", "rloo", "james_stein", "dr_grpo", "verl_opo", "grpo", "trl_grpo_batch"),
    *("verl_reinforce_plus_plus_baseline", "nemo_rl", "max_rl", "verl_grpo_passk", "grpo_without_ratio", "trl_grpo_loss"),
    *("trl_dr_grpo_loss", "dapo", "cispo", "gspo", "trl_rloo_loss", "tic_grpo"),
)
"""Those that differ; what else is registered has the formula of one of them."""
SETTINGS = {"problem": PROBLEM, "batch_size": 4, "group_size": 8, "updates": 4, "steps": {"small": 0.025, "large": 0.1}}
"""The old policy is four steps along the gradient behind the current one.  After small ones tokens' ratios are within about 0.2
of 1, where clips begin to act; after large ones most clips do."""
REPLICATIONS = 1 << 16


def measured(problem, theta, estimator, seed, replications, behaviour=None, **sizes):
    """Return the mean and the error of its length, and the efficiency on policy and its error: exact without replications."""
    if not replications:
        efficiency = gt.efficiency(problem, theta, estimator, **sizes) if behaviour is None else np.nan
        return gt.gradient_mean(problem, theta, estimator, **sizes, behaviour=behaviour), 0.0, efficiency, 0.0
    sizes |= {"replications": replications, "rng": seed, "workers": 1, "behaviour": behaviour}
    run = gt.simulate_gradients(problem, theta, estimator, **sizes, directions=np.eye(theta.size))
    error = float(np.sqrt((run.along_standard_error[0] ** 2).sum()))
    return run.along[0], error, run.efficiency[0], run.efficiency_standard_error[0]


@rows(cases=lambda quick: [{**SETTINGS, "estimator": name, "replications": REPLICATIONS >> 3 * quick} for name in ESTIMATORS])
def answers(problem, estimator, batch_size, group_size, updates, steps, replications, rng):
    """Answer each question for one estimator, exactly where its groups do not depend on each other, else by simulation."""
    found, sizes = gt.gallery.problem(problem), {"batch_size": batch_size, "group_size": group_size}
    how = {"seed": seed_of(rng), "replications": replications if find(estimator).couples_groups else 0, **sizes}
    mean, error, efficiency, spread = measured(found, found.theta, estimator, **how)
    ideal = gt.efficiency(found, found.theta, "oracle", **sizes)
    answers = {
        "cosine": (cosine(mean, found.at(found.theta).moments.gradient), error / np.linalg.norm(mean)),
        "efficiency": (efficiency / ideal, spread / ideal),
        "uniform": (uniform_advantage(estimator, group_size), 0.0),
    }
    for size, step in steps.items():
        theta = np.array(found.theta)
        for _ in range(updates):
            theta = theta + of_length(step, found.at(theta).moments.gradient)
        mean, error, *_ = measured(found, theta, estimator, **how, behaviour=found.theta)
        answers[f"after {size} steps"] = (cosine(mean, found.at(theta).moments.gradient), error / np.linalg.norm(mean))
    for question, (answer, error) in answers.items():
        row = {"quantity": question, "estimate": answer, "standard_error": error, "steps": updates}
        yield row | {"replications": replications if error else 0}


def uniform_advantage(name, group_size):
    """Return the largest advantage in groups of equal rewards, in size; NaN for oracles, which know more.

    Two groups of the batch are uniform, all wrong and all right. Two are mixed, with half and with one of the responses right,
    because some kernels look at the other groups.
    """
    if find(name).reads & {"values", "optimal_baselines"}:
        return float("nan")
    right = np.array([0, group_size, group_size // 2, 1])
    rewards = (np.arange(group_size) < right[:, None]).astype(np.float64)
    return float(np.abs(advantages_of(name, rewards)[:2]).max())
