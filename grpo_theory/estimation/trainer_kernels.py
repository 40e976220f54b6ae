"""Advantage kernels that trainers share, each group by itself.

Trainers differ in four numbers.  The first two are `ddof` of the standard deviation and the `epsilon` that is added to it.  A
standard deviation at or below `floor` counts as 0, and nothing is then divided.  A lone response keeps the share `alone` of its
reward.
"""

import numpy as np

from grpo_theory.estimation.kernel import centre


def centred(batch, advantages):
    """A = Z - group mean, own sample in."""
    alone = batch.parameters[0]
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        mean = batch.rewards[b].sum() / group_size
        for g in range(group_size):
            advantages[b, g] = batch.rewards[b, g] - mean if group_size > 1 else alone * batch.rewards[b, g]


def leave_one_out(batch, advantages):
    """A = Z - mean of the group's other rewards."""
    alone = batch.parameters[0]
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        mean, scale = batch.rewards[b].sum() / group_size, group_size / max(group_size - 1.0, 1.0)
        for g in range(group_size):
            reward = batch.rewards[b, g]
            advantages[b, g] = scale * (reward - mean) if group_size > 1 else alone * reward


def standardised(batch, advantages):
    """A = (Z - group mean)/(group sd + epsilon), own sample in both."""
    ddof, epsilon, floor, alone = batch.parameters[0], batch.parameters[1], batch.parameters[2], batch.parameters[3]
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        if group_size == 1:
            advantages[b, 0] = alone * batch.rewards[b, 0] / (1.0 + epsilon)
            continue
        deviation = np.sqrt(centre(batch.rewards[b], advantages[b]) / (group_size - ddof))
        if deviation > floor:
            for g in range(group_size):
                advantages[b, g] /= deviation + epsilon


def leave_one_out_standardised(batch, advantages):
    """A = (Z - mean of the others)/(sd of the others + epsilon); not divided where the others' sd is at most the floor."""
    ddof, epsilon, floor = batch.parameters[0], batch.parameters[1], batch.parameters[2]
    n_groups, group_size = batch.rewards.shape
    others, deviations = np.empty(max(group_size - 1, 0)), np.empty(max(group_size - 1, 0))
    for b in range(n_groups):
        for g in range(group_size):
            if group_size == 1:
                advantages[b, g] = 0.0
                continue
            if g > 0 and batch.rewards[b, g] == batch.rewards[b, g - 1]:
                # The others are the same then.  Sorted groups of two rewards are cost 2 G by this, and not G squared.
                advantages[b, g] = advantages[b, g - 1]
                continue
            others[:g] = batch.rewards[b, :g]
            others[g:] = batch.rewards[b, g + 1 :]
            squares = centre(others, deviations)
            # Z_g - mean of the others = (Z_g - o_0) + (o_0 - mean of the others), o the others.
            advantages[b, g] = (batch.rewards[b, g] - others[0]) + deviations[0]
            deviation = np.sqrt(squares / (group_size - 1.0 - ddof)) if group_size - 1.0 > ddof else 0.0
            if deviation > floor:
                advantages[b, g] /= deviation + epsilon


def length_weighted(batch, advantages):
    """A = Z - (sum of lengths times rewards)/(sum of lengths), own sample in."""
    alone = batch.parameters[0]
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        mean = (batch.lengths[b] * batch.rewards[b]).sum() / batch.lengths[b].sum()
        for g in range(group_size):
            advantages[b, g] = batch.rewards[b, g] - mean if group_size > 1 else alone * batch.rewards[b, g]


def best_less_second(batch, advantages):
    """A = (best - second best)/(group sd + epsilon) for the best response, 0 for the others."""
    ddof, epsilon, floor = batch.parameters[0], batch.parameters[1], batch.parameters[2]
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        deviation = np.sqrt(centre(batch.rewards[b], advantages[b]) / (group_size - ddof))
        best = np.argmax(batch.rewards[b])
        second = -np.inf
        for g in range(group_size):
            if g != best:
                second = max(second, batch.rewards[b, g])
            advantages[b, g] = 0.0
        lead = batch.rewards[b, best] - second
        advantages[b, best] = lead / (deviation + epsilon) if deviation > floor else lead


def relative_to_mean(batch, advantages):
    """A = (Z - group mean)/group mean, own sample in; 0 where the mean is not above 0."""
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        centre(batch.rewards[b], advantages[b])
        mean = batch.rewards[b, 0] - advantages[b, 0]
        for g in range(group_size):
            advantages[b, g] = advantages[b, g] / mean if mean > 0.0 else 0.0


def scaled_by_batch(batch, advantages):
    """A = (Z - group mean)/(sd of all rewards of the batch + epsilon)."""
    ddof, epsilon = batch.parameters[0], batch.parameters[1]
    rewards = batch.rewards.reshape(-1)
    scratch = np.empty(rewards.size)
    squares = centre(rewards, scratch)
    deviation = np.sqrt(squares / (rewards.size - ddof)) if rewards.size > ddof else 0.0
    for b in range(batch.rewards.shape[0]):
        centre(batch.rewards[b], advantages[b])
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = advantages[b, g] / (deviation + epsilon) if deviation > 0.0 else 0.0


def leave_one_out_whitened(batch, advantages):
    """A = (a - mean of a)/(sd of a + epsilon) over the batch, a = Z - mean of the group's other rewards."""
    ddof, epsilon = batch.parameters[0], batch.parameters[1]
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        centre(batch.rewards[b], advantages[b])
        for g in range(group_size):
            advantages[b, g] *= group_size / (group_size - 1.0)
    flat = advantages.reshape(-1)
    scratch = np.empty(flat.size)
    deviation = np.sqrt(centre(flat, scratch) / (flat.size - ddof))
    for i in range(flat.size):
        flat[i] = scratch[i] / (deviation + epsilon) if deviation > 0.0 else 0.0


def whitened_by_token(batch, advantages):
    """A = (a - m)/sqrt(v + epsilon), a = Z - group mean, m and v (ddof 1) its mean and variance over the tokens of the batch."""
    epsilon, alone = batch.parameters[0], batch.parameters[1]
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        centre(batch.rewards[b], advantages[b])
        if group_size == 1:
            advantages[b, 0] = alone * batch.rewards[b, 0]
    tokens = batch.lengths.sum()
    advantages[:, :] -= (batch.lengths * advantages).sum() / tokens
    # v = sum |y| (a - m)^2/(tokens - 1) (REINFORCE++, arXiv 2501.03262).
    variance = (batch.lengths * advantages**2).sum() / (tokens - 1.0) if tokens > 1 else 0.0
    for b in range(n_groups):
        for g in range(group_size):
            advantages[b, g] = advantages[b, g] / np.sqrt(variance + epsilon) if variance > 0.0 else 0.0


def scaled_by_successes(batch, advantages):
    """A = (Z - group mean) times responses of the batch over those whose reward is not 0."""
    alone = batch.parameters[0]
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        centre(batch.rewards[b], advantages[b])
        if group_size == 1:
            advantages[b, 0] = alone * batch.rewards[b, 0]
    successes = np.count_nonzero(batch.rewards)
    advantages[:, :] *= n_groups * group_size / max(successes, 1)


def shrunk(batch, advantages):
    """A = Z - (1 - l) mean of the group's others - l mean of the other groups, l = strength v/(v + s + epsilon).

    v is the mean over the other groups of the variance (ddof 1) of their means, s the variance (ddof 0) of these means.  So the
    baseline is independent of the response; without another group it is the leave-one-out mean.
    """
    epsilon, strength = batch.parameters[0], batch.parameters[1]
    n_groups, group_size = batch.rewards.shape
    means, noises = np.empty(n_groups), np.empty(n_groups)
    others, scratch = np.empty(max(n_groups - 1, 0)), np.empty(max(n_groups - 1, 0))
    for b in range(n_groups):
        # The variance of a group's mean: sum_g (Z_g - mean)^2/((G - 1) G).
        noises[b] = centre(batch.rewards[b], advantages[b]) / ((group_size - 1.0) * group_size)
        means[b] = batch.rewards[b, 0] - advantages[b, 0]
    for b in range(n_groups):
        share, elsewhere = 0.0, 0.0
        if n_groups > 1:
            others[:b] = means[:b]
            others[b:] = means[b + 1 :]
            spread = centre(others, scratch) / (n_groups - 1.0)
            elsewhere = others[0] - scratch[0]
            noise = 0.0
            for c in range(n_groups):
                noise += noises[c] / (n_groups - 1.0) if c != b else 0.0
            share = strength * noise / (noise + spread + epsilon) if noise > 0.0 else 0.0
        for g in range(group_size):
            left_out = advantages[b, g] * group_size / (group_size - 1.0)
            # Z - (1 - l) C - l m = (1 - l)(Z - C) + l (Z - m) (docs/derivations.md, section 24.2).  C is the mean of the
            # group's others, m that of the other groups.
            advantages[b, g] = (1.0 - share) * left_out + share * (batch.rewards[b, g] - elsewhere)
