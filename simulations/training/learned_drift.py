"""T6 to T8, T14: where updates off policy point, and where runs end, if features are learned.  Networks of two layers on trees.

Minibatch training is as in `trained_drift`, with the drifts that it makes: one run on each of many random problems, which are the
sample. Each arm has the best of the constant steps tried, one for all problems, and its updates are examined along the run. The
gradients are those of both layers. In the controls advantages have lost their sign, or an arm stays at its start.
"""

import numpy as np

from grpo_theory.harness import check, run
from simulations.sequence.off_policy import Pairs
from simulations.statements import stated
from simulations.training.looks import ARMS, NEARER, POINTED, ends, of_arm, where_updates_point
from simulations.training.worlds import NETWORKS

LEARNED = ", learned features"
DRIFTS = stated(*(f"{name}{LEARNED}" for name in (*list(POINTED)[:-1], NEARER)))
ENDS = {
    "T8/dropped, trained, learned features": ("clip", "none", 0),
    "T8/clip, trained, learned features": ("none", "clip", 0),
    "T14/ends, learned features": ("clip", "trajectory", 0),
    "T14/clip ends, learned features": ("trajectory", "clip", 0),
}
"""By how little the first arm is ahead of the second at the end."""
SIZES = {"batch_size": 16, "group_size": 8, "rollouts": 16, "inner_steps": 16, "runs": 1}
PROBLEMS, QUICK_PROBLEMS = 320, 32
"""At the level of a statement 200 can show a share of at most 5%."""


class LearnedPairs(Pairs):
    """Pairs of policies of one problem whose features are learned: each current policy has derivatives of its own."""

    def __init__(self, problem, theta, behaviour):
        logits, self.paths = problem.policy.logit_map.logits, problem.policy.paths
        self.tangents = [problem.policy.tangent(one) for one in theta]
        self.prompt_weights, self.success = problem.bandit.prompt_weights, problem.bandit.mean_reward
        self.now, self.old = (self.paths.log_probabilities(logits(vectors)) for vectors in (theta, behaviour))

    def _add_up(self, weights):
        logit_gradients = self.paths.centre(self.paths.add_up(weights), np.exp(self.now))
        return np.stack([tangent.adjoint(one) for tangent, one in zip(self.tangents, logit_gradients, strict=True)])


def cases(quick):
    """The kinds of networks; quick has one."""
    number = QUICK_PROBLEMS if quick else PROBLEMS
    listed = [{"network": name, "optimiser": kind.optimiser, "problems": number} for name, kind in NETWORKS.items()]
    return listed[:1] if quick else listed


def asked(network, **case):
    """Return the settings of the runs, a chunk for each arm."""
    steps = list(NETWORKS[network].steps)
    return SIZES | case | {"network": network, "arms": list(ARMS), "steps": steps, "tried": len(steps)}, len(ARMS)


@run(dealt=asked, shared=True)
def trained(rng, chunk, **settings):
    """Train an arm at each step of the grid, on problems and draws that all arms share, and look at updates on the way."""
    return of_arm(settings, NETWORKS[settings["network"]].problem, settings["problems"], LearnedPairs, rng, chunk)


@check(*DRIFTS, of=trained, cases=cases, broken={"looked": "broken"}, setting="{network}, {optimiser}")
def pointing(found, looked=""):
    """Shares of updates that point away, and who points nearer to the gradient; broken: advantages that lost their sign."""
    return where_updates_point(found, looked, LEARNED)


@check(*stated(*ENDS), of=trained, cases=cases, broken={"rival": "start"}, setting="{network}, {optimiser}")
def ending(found, network, rival=""):
    """By how much one arm is ahead at the end; broken: of runs that stay at the start."""
    steps = NETWORKS[network].steps
    return ends(found, steps, len(steps), ENDS, rival)
