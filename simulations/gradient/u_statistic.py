"""U1, U2: the U-statistic and its Hoeffding projection, exact.

Groups are drawn, and leave-one-out gradients are compared with means over pairs. The projection is a sum over all partners. The
largest discrepancy is reported.

In the control of the pairs, the mean includes the own sample: it is off by 1/G, a fifth at G = 5. In that of the own sample's
factor, the mean does not include it. In that of the projection, one partner in a hundred is the first outcome, whatever the
policy.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.harness import check
from simulations.gradient.groups import estimate
from simulations.statements import stated

U2 = stated("U2")
CASES = [{"problem": name, "groups": 200, "group_size": 5} for name in gt.gallery.names("gradient")]


def u_statistic(scores, rewards):
    """Average (1/2)(W_i - W_j)(Z_i - Z_j) over all pairs i < j; scores (G, D), rewards (G,)."""
    i, j = np.triu_indices(len(rewards), 1)
    return np.mean(0.5 * (scores[i] - scores[j]) * (rewards[i] - rewards[j])[:, None], axis=0)


@check(*stated("U1", "U1/own-mean", "U2/printed", "U2/corrected"), cases=CASES, broken={"stray": 0.01}, setting="{problem}")
def discrepancies(problem, groups, group_size, rng, stray=0.0):
    """The largest discrepancies, relative to the root mean square score; broken, a share of partners is astray."""
    found = gt.gallery.problem(problem)
    point, of_groups, of_partners, broken = found.at(found.theta), [], [], stray > 0.0
    gram = point.tangent.gram() / point.moments.score_squared_norm[:, None, None]

    def largest(prompt, gaps):
        return np.sqrt(np.maximum(np.einsum("...k,kl,...l->...", gaps, gram[prompt], gaps), 0.0)).max()

    for _ in range(groups):
        prompt = int(rng.integers(found.bandit.n_prompts))
        drawn = rng.choice(point.outcome_responses.size, size=group_size, p=point.outcome_probabilities[prompt])
        scores, rewards = point.logit_gradients[prompt, point.outcome_responses[drawn]], point.rewards[prompt, drawn]
        left_out, own = (estimate(name, scores, rewards) for name in ("rloo", "dr_grpo"))
        of_pairs = (own if broken else left_out) - u_statistic(scores, rewards)
        of_means = own - (1.0 if broken else 1.0 - 1.0 / group_size) * left_out
        of_groups.append((largest(prompt, of_pairs), largest(prompt, of_means)))
    for prompt, (p, z) in enumerate(zip(point.outcome_probabilities, point.rewards, strict=True)):
        w = point.logit_gradients[prompt, point.outcome_responses]
        partner = (1.0 - stray) * p + stray * (np.arange(p.size) == 0)
        # 2 h_1(y, z) = E (W - W')(z - z') over the partner
        gap = np.einsum("p,opk->ok", partner, (w[:, None] - w) * (z[:, None] - z)[..., None]) - w * (z - p @ z)[:, None]
        of_partners.append((largest(prompt, gap), largest(prompt, gap - np.einsum("o,ok->k", p * z, w))))
    found_gaps = (*np.transpose(of_groups), *np.transpose(of_partners))
    return {one.id: (gaps, 0.0) for one, gaps in zip(discrepancies.statements, found_gaps, strict=True)}
