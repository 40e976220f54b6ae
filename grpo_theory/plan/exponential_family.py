"""The exponential family through a user's sampled responses: a problem that simulates training ahead of the user's run."""

import numpy as np

from grpo_theory.intervals.rollouts import Groups, RaggedRollouts
from grpo_theory.logs import RolloutLog
from grpo_theory.plan.advice import check_independent
from grpo_theory.plan.success_rates import fit_beta_rates
from grpo_theory.problem import Bandit, LinearSoftmax, Problem
from grpo_theory.validation import MOST_BYTES, check_room, shown

ANCHOR = 1e6
"""The parameter that holds the sampled probabilities, in units of 1/(a score's length): it learns 1e-12 as fast as the others."""
ABSENT = -1000.0
"""The logit of a place that a prompt's candidates leave empty: its probability is 0 in double precision."""
FEWEST = 2
"""Responses that a prompt must have: one has nothing beside which its probability could change."""


def twin(log: RolloutLog | Groups) -> Problem:
    """Return the exponential family through sampled responses as a problem: laws and training runs of it are had at once.

    Each sampled response is a candidate with the share of its prompt's responses as probability, and its sketch is its feature.
    So the first update is that of the user's policy on these responses, with the same learning rate.  Later updates go on as if
    the features stayed as they are.

    Memory grows with the square of the prompts where there are two rewards, because each prompt then has a coordinate of its own.

    If there are two rewards, a prompt whose responses all have the same one gets a candidate with the other, which was not seen.
    Its probability is the mean that the beta law of success rates leaves after such a sample: a/(a + b + n) if no answer was
    right.  Its feature has the mean length of the others' contrasts, in a direction of its own: it is learned when it is drawn.

    How far a twin reaches is measured in docs/twin.md; `half_twins` shows it for a log of one's own.

    Parameters
    ----------
    log : RolloutLog, RaggedRollouts or Rollouts
        B prompts with at least 2 responses each, whose scores are sketches of J numbers.

    Returns
    -------
    Problem
        Of B equally weighted prompts.  Its parameters are J, then one for each prompt if there are two rewards.  A last one
        holds the sampled probabilities and does not learn.  The responses were sampled at `problem.theta`.

    Raises
    ------
    TypeError
        If the log is none.
    ValueError
        If the log has no sketches, one response to a prompt, several groups of one prompt, or no prompt whose rewards differ.
        Also if it is so large that the features of all candidates would take more than 2 GB.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> data = gt.data.sampled.sampled_answers()
    >>> problem = gt.twin(gt.Rollouts(data.rewards[data.index], data.sketches[data.index]))
    >>> problem.bandit
    Bandit(M=129, K=21, values=[0.0, 1.0])
    >>> bool(abs(gt.moments(problem, problem.theta).value.mean() - data.rewards[data.index].mean()) < 0.01)
    True
    """
    rollouts = _checked(log, FEWEST)
    return _family(rollouts, _unit(rollouts))


def half_twins(log: RolloutLog | Groups) -> tuple[Problem, Problem]:
    """Return the twins of every other response of each prompt, and of the rest, with the same parameters.

    Training on the first and looking at both shows how far a twin of this log can be trusted.  Its own success is too high,
    because it learns the chances of its sample; the other half's is free of these.  Where the two part, look no further.

    Parameters
    ----------
    log : RolloutLog, RaggedRollouts or Rollouts
        As for `twin`, with at least 4 responses per prompt.

    Returns
    -------
    (Problem, Problem)

    Raises
    ------
    TypeError, ValueError
        As `twin`.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> data = gt.data.sampled.sampled_answers()
    >>> log = gt.Rollouts(data.rewards[data.index], data.sketches[data.index])
    >>> first, second = gt.plan.half_twins(log)
    >>> runs = gt.simulate_training(
    ...     first, first.theta, "rloo", gt.Constant(1e-5), batch_size=32, group_size=8, steps=8, replications=4, rng=1
    ... )
    >>> gt.moments(second, runs.theta[0]).value.shape
    (129,)
    """
    rollouts = _checked(log, 2 * FEWEST)
    unit, index, scores = _unit(rollouts), rollouts.index, rollouts.known_scores
    place = np.argsort(np.argsort(index, kind="stable")) - (np.cumsum(rollouts.sizes) - rollouts.sizes)[index]
    first, second = (
        RaggedRollouts.from_index(rollouts.prompts, index[kept], rollouts.rewards[kept], scores[kept])
        for kept in (place % 2 == 0, place % 2 == 1)
    )
    return _family(first, unit), _family(second, unit)


def _checked(log: RolloutLog | Groups, responses: int) -> RaggedRollouts:
    """Return the rollouts of a log from which a twin can be made."""
    if isinstance(log, RolloutLog):
        check_independent(log.findings)
        log = log.rollouts
    if not isinstance(log, Groups):
        raise TypeError(f"log must be rollouts, as gt.read_rollouts(path) or gt.RaggedRollouts(...) makes them, got {shown(log)}")
    if log.scores is None:
        told = "log must have a sketch of each response for a twin, and has rewards alone. Use gt.sketch to make sketches;"
        raise ValueError(f"{told} gt.read_rollouts reads them from a column named sketch")
    if not log.single:
        raise ValueError(f"log must be one batch for a twin, got rewards of shape {log.rewards.shape}")
    log.require(responses=responses)
    if isinstance(log, RaggedRollouts):
        return log
    prompts = np.repeat(np.arange(log.batch_size), log.rewards.shape[1])
    return RaggedRollouts(prompts, log.rewards.ravel(), log.scores.reshape(prompts.size, -1))


def _unit(rollouts: RaggedRollouts) -> float:
    """Return the anchor's parameter: `ANCHOR` over the length of a typical score."""
    scores = rollouts.known_scores
    means = np.stack([np.bincount(rollouts.index, column) for column in scores.T], axis=1) / rollouts.sizes[:, None]
    power = float(((scores - means[rollouts.index]) ** 2).sum(axis=1).mean())
    if power == 0.0:
        raise ValueError("log must have sketches that differ between the responses to a prompt; they are all equal")
    return ANCHOR / power**0.5


def _family(rollouts: RaggedRollouts, unit: float) -> Problem:
    """Return the problem of the candidates of all prompts, whose empty places have no probability.

    They are those sampled, and one of the other reward where all of two rewards are one.
    """
    order, counts = np.argsort(rollouts.index, kind="stable"), rollouts.counts
    groups = np.split(order, np.cumsum(rollouts.sizes)[:-1])
    found = []  # the different responses to each prompt: rewards (K,), sketches (K, J), and the shares of the sample (K,)
    for rows in groups:
        table = np.ascontiguousarray(np.column_stack([rollouts.rewards[rows], rollouts.known_scores[rows]]))
        # Whole rows are compared as bytes, which is several times as fast as number by number.
        whole = table.view(np.dtype((np.void, table.itemsize * table.shape[1])))[:, 0]
        _, first, often = np.unique(whole, return_index=True, return_counts=True)
        found.append((table[first, 0], table[first, 1:], often / often.sum()))
    contrasts = []  # mean squared distances of the sketch of a best response from the mean sketch of the others
    for own, sketches, shares in [one for one in found if np.ptp(one[0]) > 0.0]:
        best = own == own.max()
        others = shares[~best] @ sketches[~best] / shares[~best].sum()
        contrasts.append(float(shares[best] @ ((sketches[best] - others) ** 2).sum(axis=1) / shares[best].sum()))
    if not contrasts:
        raise ValueError("log must have a prompt whose responses differ in their reward; there is none, so nothing is learned")
    chances = np.zeros(len(found))
    if counts.binary:
        # Of a reward that a prompt's responses never had: the mean that the beta law leaves after such a sample.
        law = fit_beta_rates(counts)
        missing = np.where(counts.successes == 0, law.a, law.b)
        chances = np.where(counts.uniform, missing / (law.a + law.b + counts.sizes), 0.0)
    most, width = int(max(one[0].size + (chances[m] > 0.0) for m, one in enumerate(found))), found[0][1].shape[1]
    # Features take B K (J + B + 1) numbers of two rewards, or B K (J + 1): checked before anything grows with the square of B.
    shape, room = (len(found), most, width + len(found) * counts.binary + 1), MOST_BYTES / 8.0 / most
    fitting = int(((width + 1) ** 2 / 4.0 + room) ** 0.5 - (width + 1) / 2.0) if counts.binary else int(room / (width + 1))
    check_room(
        f"a twin of {len(found):,} prompts, with up to {most} candidates each and features",
        shape,
        f"give it a log of at most {fitting:,} of these prompts, or of fewer responses to each, or shorter sketches",
    )
    features, rewards = np.zeros(shape), np.zeros(shape[:2], dtype=np.int64)
    features[..., -1] = ABSENT / unit
    for m, ((own, sketches, shares), chance) in enumerate(zip(found, chances, strict=True)):
        size, mean = own.size, shares @ sketches
        features[m, :size, :width] = sketches
        rewards[m, :size] = np.searchsorted(counts.values, own)
        if chance > 0.0:
            shares = np.append((1.0 - chance) * shares, chance)
            rewards[m, size] = 1 - rewards[m, 0]
            features[m, size, :width] = mean
            features[m, size, width + m] = np.mean(contrasts) ** 0.5
        features[m, : shares.size, -1] = np.log(shares) / unit
    theta = np.append(np.zeros(features.shape[2] - 1), unit)
    bandit = Bandit.from_law(counts.values, np.eye(counts.values.size)[rewards])
    return Problem(bandit, LinearSoftmax(features), theta=theta, name="twin", title="a log's twin")
