"""Davis and Recht (arXiv 2510.13651): with two rewards weights climb a transform of the success rate; with three they may not.

What R1 states of the trainers' conventions is not repeated.  In the broken cases weights count the answer itself, or one draw
fewer, or nothing divides.
"""

import math

import numpy as np
from scipy.special import betainc

import grpo_theory as gt
from grpo_theory.harness import check
from simulations.kernels import unregistered
from simulations.literature.drawn import DIVIDED, POLICIES, climbing, expected_update, over, truncated, worked, world
from simulations.statements import stated

GROUP = 5
TABLE = {f"{name}{s}": 0.0 for name in "ab" for s in range(GROUP)}
TRIPLES = ((0.0, 0.5, 1.0), (0.0, 0.9, 1.0), (-1.0, 2.0, 7.0))


@unregistered("by_count", parameters=TABLE, minimum_group_size=GROUP, exchangeable=True)
def by_count(batch, advantages):
    """A = a_s if wrong and b_s if right, s of the group's other answers being right."""
    n = batch.rewards.shape[1]
    for b in range(batch.rewards.shape[0]):
        right = int(batch.rewards[b].sum())
        for i in range(n):
            advantages[b, i] = batch.parameters[n + right - 1] if batch.rewards[b, i] > 0.5 else batch.parameters[right]


def transform(weights):
    """Return h_M(t) = (1/M) sum_s (b_s - a_s) I_t(s + 1, M - s), from the differences b_s - a_s."""
    from scipy.stats import beta  # slow to import

    size = len(weights)
    terms = [(weight / size, s + 1, size - s) for s, weight in enumerate(weights)]
    return gt.Objective.of_success(
        "transform",
        lambda t: sum(weight * betainc(first, second, t) for weight, first, second in terms),
        lambda t: sum(weight * beta.pdf(t, first, second) for weight, first, second in terms),
    )


@check(
    *stated("davis-recht/weights", "davis-recht/rejection"),
    cases=over(policy=POLICIES),
    broken={"shift": 1},
    setting="{policy}, M = 5",
)
def weighted(policy, rng, shift=0):
    """Random weights, and those of rejection sampling; in the broken case the answer counts as one of the others."""
    problem, found = world(policy, rng, width=None), {}
    for name, a, b in (
        ("davis-recht/weights", *rng.normal(size=(2, GROUP))),
        ("davis-recht/rejection", np.zeros(GROUP), GROUP / (np.arange(GROUP) + 1.0)),
    ):
        one = by_count.with_parameters(**dict(zip(TABLE, [*a, *b], strict=True)))
        told = truncated(GROUP - shift) if name.endswith("rejection") else transform(np.roll(b, shift) - a)
        found[name] = expected_update(problem, one, GROUP), climbing(problem, told)
    return found


@check(
    stated("davis-recht/pass@k"),
    cases=[{"size": 5, "k": 2}, {"size": 8, "k": 5}],
    broken={"less": 1},
    setting="M = {size}, k = {k}",
)
def coefficients(size, k, less=0):
    """The weights that solve sum_s (b_s - a_s) C(M-1, s) t^s (1-t)^(M-1-s) = k (1-t)^(k-1) at M places."""
    places, count = (np.arange(size) + 0.5) / size, np.arange(size)
    from scipy.stats import binom  # slow to import

    basis = binom.pmf(count, size - 1, places[:, None])
    ways = np.array([k * math.comb(size - 1 - less - s, k - 1) if s < size - less else 0.0 for s in count])
    return np.linalg.solve(basis, k * (1.0 - places) ** (k - 1)), ways / math.comb(size - 1 - less, k - 1)


@check(
    stated("davis-recht/three rewards"),
    cases=over(which=range(len(TRIPLES)), size=(2, 3, 8, math.inf)),
    broken={"name": "rloo"},
    setting="rewards {which}, G = {size}",
)
def around(which, size, name=None):
    """The work around the triangle of sure laws, beside what two rewards gain from p = 0 to 1."""
    gained = np.pi
    if size < math.inf:
        climbed = gt.exact.climbed(DIVIDED, [0.0, 1.0], group_size=size)
        gained = float(np.diff(climbed.value(np.array([0.0, 1.0]), np.eye(2)))[0])
    return worked(name or DIVIDED, TRIPLES[which], size), gained
