"""What the simulators' algorithms must do at the least, counted from the code of grpo_theory/simulate.

Only what every lane has to do is counted: words, comparisons, and multiplications and additions.  Look-ups, prompts, conversions
and everything that moves numbers about are left out, so that no program can reach the sum.  Derivations: docs/derivations.md,
section 17.
"""

from typing import NamedTuple

import numpy as np

import grpo_theory as gt
from benchmarks.task import Task
from benchmarks.training_task import TrainingTask
from grpo_theory.simulate.draw.outcome_law import drawn_again, outcome_law
from grpo_theory.simulate.observe.errors import PAIRED

EXPONENTIAL = 13
"""Operations of `simulate.elementary.exponential`, whose comparison and shifts are not counted."""
LOGARITHM = 19
"""And of `logarithm`, whose division is not counted either."""


class Work(NamedTuple):
    """Work for one response.

    Attributes
    ----------
    words : float
        Random words of 64 bits.
    comparisons : float
        Of 16 bits, each with the addition that counts it. A comparison of 32 bits counts as two, one of 8 bits as half.
    operations : float
        Multiplications and additions of doubles; a product that is added to something is one.
    """

    words: float
    comparisons: float
    operations: float


def gradient_work(task: Task, n_estimators: int = 1) -> Work:
    """Return the work for a response of a gradient simulation, whose kernels are tables, and of mean 0 where rewards are binary.

    A group draws a word for its prompt and 16 bits for each response. A large one draws 8 for each response, and 16 for as many
    as may have to be drawn again. All are compared with the threshold of every outcome that the prompt makes possible (the last
    one included: the words beyond it are drawn again). A logit takes one operation for the group's contrast. Where pairs of
    groups are added up, a logit takes 3 more for the errors about g and g(x) and one for each pair. Then each estimator takes one
    for each pair and 6 besides. Where prompts are added up, each estimator takes 5 for each logit and one for each pair of
    prompts. With the d features of any other map it takes d for each logit to be pulled back, and 3 for each parameter. With more
    rewards than two nothing is shared: each estimator weighs every outcome, and adds up and centres each logit.
    """
    outcomes = int((task.point.outcome_probabilities > 0.0).sum(axis=1).max())
    n_logits, b, g = task.problem.policy.n_logits, task.batch_size, task.group_size
    n_prompts, by_group, pairs = task.problem.bandit.n_prompts, 1.0 * n_logits, (b - 1) / 2
    if isinstance(task.problem.policy, gt.LinearSoftmax):
        by_estimator = n_logits + (n_logits + 3.0) * task.problem.policy.dimension
    elif n_prompts < b > PAIRED:
        by_estimator = n_logits * (5.0 + n_prompts**2 / b)
    else:
        by_group += n_logits * (3.0 + pairs)
        by_estimator = pairs + 6.0
    if task.problem.bandit.values.size > 2:
        by_group, by_estimator = 0.0, by_estimator + by_group + n_logits + outcomes
    law = outcome_law(task.point, g)
    by_bytes, by_words = (g, drawn_again(law.coarse, g)) if len(law.coarse) else (0, g)
    words, comparisons = 1.0 + by_bytes / 8.0 + by_words / 4.0, outcomes * (by_bytes / 2.0 + by_words)
    return Work(words / g, comparisons / g, (by_group + n_estimators * by_estimator) / g)


def training_work(task: TrainingTask) -> Work:
    """Return the work for a response of a training run with a tabular or a dense linear policy and rewards 0 and 1.

    A group draws a word for its prompt and 32 bits for each response, and compares these with all thresholds but the last. A
    logit takes an exponential, 3 operations for the softmax, 4 for two thresholds, 2 to centre and one for the step. A penalty
    takes a logarithm, 3 for each logit and 1 for each reward. An outcome takes 1 for its sum of advantages by a table, 3 by
    coefficients, and 1 for its weight. The features of a linear policy take one operation for each number, there and back, of all
    prompts or of those drawn. An update takes 4 for each parameter, for averages and distances.
    """
    bandit, b, g = task.problem.bandit, task.batch_size, task.group_size
    n_responses, dimension = bandit.n_responses, task.problem.policy.dimension
    n_outcomes = n_responses * bandit.values.size
    group = n_responses * (EXPONENTIAL + 3 + 4 + 2) + 2 * n_outcomes
    if task.is_tabular:
        group += n_responses
    if task.problem.kl is not None:
        group += LOGARITHM + 3 * n_responses + n_outcomes + 2 * n_outcomes
    update = 4 * dimension
    if not task.is_tabular:
        update += 2 * min(b, bandit.n_prompts) * n_responses * dimension
    return Work((1.0 + g / 2.0) / g, 2.0 * (n_outcomes - 1), (group + update / b) / g)


class Peaks(NamedTuple):
    """Nanoseconds that this machine takes at the least, on one thread, for one of each kind of work."""

    word: float
    comparison: float
    operation: float

    def floor(self, work: Work) -> float:
        """Return the nanoseconds that the work takes at the least."""
        return float(np.dot(self, work))
