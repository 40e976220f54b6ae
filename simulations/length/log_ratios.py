"""The law of the whole response's ratio over long responses, exact, and the normal law that its logarithm is said to have.

After a drift of d nats log R has mean -d. If it were a sum of many small parts that hardly depend on each other, it would be
normal. Its variance would be 2 d, because E R = 1; and d is the drift of the prompt, which differs between prompts. Where the
length is the time the policy takes to stop, it is a normal law mixed over an exponential length. That is an asymmetric Laplace
law. The characteristic function is a power of a matrix, so the share of responses within a clip is an integral. In the control
the drift is 4 nats, and the law is that of 1.
"""

import numpy as np
from scipy.special import ndtr

from grpo_theory.harness import check
from grpo_theory.problem.gallery import KINDS
from simulations.length.drifts import NEAR, SUCCESS, drifted
from simulations.length.grid import point_of, reached
from simulations.statements import stated

NORMAL, MIXED = stated("length/normal ratio", "length/stopped ratio")

STOPPED = "think until sure"
BROKEN = 4.0
LONG, DIRECTIONS = 1024, 2
CASES = [{"kind": kind, "direction": d} for kind in KINDS for d in range(DIRECTIONS)]
WINDOW, MARGIN = (0.8, 1.2), 0.03
"""Where one response in eleven is kept, nobody notices whether it is one in eight or one in sixteen."""
BLUR = 0.02
"""The ends of the clip are blurred by this much in the logarithm, because some chains have responses that share one ratio."""
REACH, STEP, PART = 5.0, 0.1, 64
"""The integral goes up to this number over the blur. Its steps distinguish logarithms that differ by less than 2 pi over the
step.

Of a long response the characteristic function is 0 long before, and the integral ends there."""


@check(NORMAL, MIXED, cases=CASES, broken={"nats": BROKEN}, setting="{kind}, direction {direction}")
def within(kind, direction, nats=NEAR):
    """The share of ratios within the clip, against the limit law's; the law of the control has not drifted as far."""
    one, law = (MIXED, stopped_share) if kind == STOPPED else (NORMAL, normal_share)
    point = point_of(kind, LONG, SUCCESS)
    near, theta = (drifted(point, drift, direction) for drift in (NEAR, nats))
    kept, second = share_within(point, theta), characteristic(point, theta, np.array([-2j])).real[0]
    facts = {"share of responses kept": kept, "second moment of the ratio": second}
    return {one.id: (abs(kept - law(point, near)), MARGIN, facts)}


def normal_share(point, theta):
    """Return the share of normal logarithms of mean -d and variance 2 d within the clip, d the drift of each prompt."""
    nats = drifts(point, theta)
    low, high = (ndtr((np.log(end) + nats) / np.sqrt(2.0 * nats)) for end in WINDOW)
    return point.bandit.prompt_weights @ (high - low)


def stopped_share(point, theta):
    """Return the share within the clip where the length, and the drift with it, is exponential: f(x) = exp(-x/2 - k |x|)/(2 d k).

    The normal law of mean -t and variance 2 t is mixed over an exponential t of mean d. The mixture has the characteristic
    function 1/(1 + d (iu + u^2)); k^2 = 1/4 + 1/d.
    """
    nats = drifts(point, theta)
    k = np.sqrt(0.25 + 1.0 / nats)
    below, above = (-np.expm1(-slope * abs(np.log(end))) / slope for slope, end in zip((k - 0.5, k + 0.5), WINDOW, strict=True))
    return point.bandit.prompt_weights @ ((below + above) / (2.0 * nats * k))


def drifts(point, theta):
    """Return the divergence of each prompt's responses at theta from those at the point, shape (M,)."""
    chain, drawn = point.policy, point.state_probabilities
    own = (drawn * (point.state_log_probabilities - chain.token_log_probabilities(theta))).sum(axis=1)
    to_come = np.zeros(len(drawn))
    for _ in range(chain.horizon):
        to_come = own + (drawn * np.where(chain.ends != 0, 0.0, to_come[chain.transitions])).sum(axis=1)
    return to_come[chain.starts]


def share_within(point, theta):
    """Return the share of a point's responses whose ratio, of theta to the point, is within the clip, whose ends are blurred.

    P(a < X < b) is the integral of Re[phi(u) (exp(-iua) - exp(-iub))/(iu)]/pi over u > 0; a blur multiplies phi by a normal one.
    """
    low, high = np.log(WINDOW)
    share, u = 0.0, (np.arange(int(REACH / BLUR / STEP)) + 0.5) * STEP
    for part in np.split(u, np.arange(PART, u.size, PART)):
        phi = characteristic(point, theta, part)
        if np.abs(phi).max() < 1e-9:
            break
        edges = (np.exp(-1j * part * low) - np.exp(-1j * part * high)) / (1j * part)
        share += (phi * np.exp(-0.5 * (BLUR * part) ** 2) * edges).real.sum() * STEP / np.pi
    return share


def characteristic(point, theta, u):
    """Return E exp(i u log R) of the point's responses at each u, shape (N,): by the T-th power of a matrix for each u.

    At u = -2i it is E R^2. A token weighs p_0 exp(i u log(p/p_0)) and leads to its state, or to one more in which nothing is
    drawn. Prompts that reach the same states have one matrix.
    """
    chain, weights = point.policy, point.bandit.prompt_weights
    logs = chain.token_log_probabilities(theta) - point.state_log_probabilities
    by_states: dict[tuple[int, ...], list[int]] = {}
    for prompt, start in enumerate(chain.starts.tolist()):
        by_states.setdefault(reached(chain, start), []).append(prompt)
    total = np.zeros(u.size, dtype=complex)
    for states, prompts in by_states.items():
        n, place = len(states), {state: i for i, state in enumerate(states)}
        matrices = np.zeros((u.size, n + 1, n + 1), dtype=complex)
        for i, state in enumerate(states):
            for v in range(logs.shape[1]):  # several may lead to the same state
                after = n if chain.ends[state, v] else place[int(chain.transitions[state, v])]
                matrices[:, i, after] += point.state_probabilities[state, v] * np.exp(1j * u * logs[state, v])
        matrices[:, n, n] = 1.0
        ends = np.linalg.matrix_power(matrices, chain.horizon).sum(axis=2)
        for prompt in prompts:
            total += weights[prompt] * ends[:, place[int(chain.starts[prompt])]]
    return total
