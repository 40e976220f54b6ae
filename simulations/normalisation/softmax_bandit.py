"""R6: the softmax bandit, one prompt with a logit for each response: slope, smoothness, and how fast the gap closes, exact."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numba
import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.compiler import F1, compile_function
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import exact, farthest, largest
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.theory import GREATEST_CURVATURE, divided_gap_limit, softmax_gap_bound, softmax_gap_limit
from simulations.claims import claim, unconverted

RESPONSES, QUICK_RESPONSES = (2, 3, 5, 10), (2, 3)
STEP = 0.4
LOGITS = 8.0
"""Bound of the logits in the search."""
WIDE = 10.0
"""The broken bandits of smoothness have rewards of up to this size, not in [0, 1]."""
BANDITS, QUICK_BANDITS = 2000, 200
PATHS, QUICK_PATHS = 20, 5
UPDATES = 10_000
"""Along a path: what is off the limiting law by order (log t)/t is then below the margins."""
SOUGHT_UPDATES = 2000
"""In the search: the worst is reached by t = 5 K, where the best response takes over."""
LEAST_SHORTFALL = 0.1
"""Of random bandits: what is left of the second best decays only after some K/(step shortfall) updates."""
SEARCH, QUICK_SEARCH = {"starts": 64, "climbs": 2}, {"starts": 16, "climbs": 1}
SLOPE_MARGIN = 0.05
"""Of an exponent: 1/t is told from 1/t^0.9, and both from 1/t^2."""
CONSTANT_MARGIN = 0.05
"""Relative: a budget known to 5%."""


def _gaps(rewards: Array, signs: Array, step: float, power: float, found: Array) -> None:
    logits = np.zeros(rewards.size)
    best = rewards.max()
    for t in range(found.size):
        shares = np.exp(logits - logits.max())
        shares /= shares.sum()
        found[t] = (shares * (best - rewards)).sum()
        advantages = rewards - (shares * rewards).sum()
        deviation = np.sqrt((shares * advantages**2).sum())
        logits += signs[t % signs.size] * step / deviation**power * shares * advantages


_ASCEND = compile_function(_gaps, numba.void(F1, F1, numba.float64, numba.float64, F1))


class Rule(NamedTuple):
    """How the parameters move: signs of the steps, in turn, and the power of the standard deviation that divides them."""

    signs: tuple[float, ...]
    power: float

    def gaps(self, rewards: Array, updates: int) -> Array:
        """Return the gap before each of the updates, shape (updates,), from equal logits."""
        found = np.empty(updates)
        _ASCEND(np.ascontiguousarray(rewards), np.array(self.signs), STEP, self.power, found)
        return found


ASCENT, ASTRAY = Rule((1.0,), 0.0), Rule((1.0, -1.0), 0.0)
"""As stated, and broken: every second step has the wrong sign."""
RULES = {
    "undivided": ASCENT,
    "divided": Rule((1.0,), 1.0),
    "undivided, turned": Rule((1.0, 1.0, -1.0), 0.0),
    "divided, turned": Rule((1.0, 1.0, -1.0), 1.0),
}
"""Whose laws are read off long paths; broken, every third step has the wrong sign."""


class Bandit(NamedTuple):
    """A policy's logits (K,) and the rewards (K,)."""

    logits: Array
    rewards: Array

    @property
    def probabilities(self) -> Array:
        """The policy, shape (K,)."""
        grown = np.exp(self.logits - self.logits.max())
        return np.asarray(grown / grown.sum())

    @property
    def lead(self) -> Array:
        """Probability times advantage of each response, shape (K,), from differences of rewards, which are exact."""
        pi = self.probabilities
        return np.asarray(pi * ((self.rewards[:, None] - self.rewards) @ pi))

    @property
    def slope(self) -> float:
        """The length of the gradient."""
        return float(np.linalg.norm(self.lead))

    @property
    def curvature(self) -> float:
        """The spectral norm of the Hessian E[(r - E r) W W'], W the scores."""
        scores = np.eye(self.rewards.size) - self.probabilities
        return float(np.abs(np.linalg.eigvalsh(scores.T @ (self.lead[:, None] * scores))).max())

    @property
    def promise(self) -> float:
        """The best response's probability times the gap."""
        pi, best = self.probabilities, int(self.rewards.argmax())
        return float(pi[best] * (pi @ (self.rewards[best] - self.rewards)))


Sides = Callable[[Bandit, float], tuple[float, float]]


def slope(bandit: Bandit, scale: float) -> tuple[float, float]:
    """pi(a*) gap against ||grad||; the broken gradient has the own sample in the mean of a group of two, so half of it."""
    return bandit.promise, scale * bandit.slope


def sharp_slope(bandit: Bandit, scale: float) -> tuple[float, float]:
    """Sqrt(K/(K-1)) times that against ||grad||."""
    k = bandit.rewards.size
    return np.sqrt(k / (k - 1.0)) * bandit.promise, scale * bandit.slope


def smoothness(bandit: Bandit, scale: float) -> tuple[float, float]:
    """||Hess|| against 5/2."""
    return bandit._replace(rewards=bandit.rewards * scale).curvature, 2.5


def sharp_smoothness(bandit: Bandit, scale: float) -> tuple[float, float]:
    """||Hess|| against 1/(3 sqrt 3)."""
    return bandit._replace(rewards=bandit.rewards * scale).curvature, GREATEST_CURVATURE


POINTWISE: dict[str, tuple[Sides, float]] = {
    "R6/slope": (slope, 0.5),
    "R6/slope, sharp": (sharp_slope, 0.5),
    "R6/smoothness": (smoothness, 2.0 * WIDE),
    "R6/smoothness, sharp": (sharp_smoothness, 2.0 * WIDE),
}
"""The two sides of a bound at a point, and the scale with which they are broken: of the gradient, or of rewards that should be in
[0, 1] and are, up to a constant that no Hessian sees, in [-10, 10]."""


def printed_bound(n_responses: int) -> float:
    """Return 5 K^2."""
    return 5.0 * n_responses**2


def linear_bound(n_responses: int) -> float:
    """Return K/step."""
    return n_responses / STEP


GAPS: dict[str, Callable[[int], float]] = {
    "R6/gap": printed_bound,
    "R6/gap, sharper": partial(softmax_gap_bound, step=STEP),
    "R6/gap, linear": linear_bound,
}
"""What t times the gap is at most, t counted from 1 at the start."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each number of responses, a chunk for each bound that is searched, for paths and for limits."""
    counts: dict[str, Any] = {"bandits": QUICK_BANDITS if quick else BANDITS, "paths": QUICK_PATHS if quick else PATHS}
    counts |= {"updates": UPDATES, "sought_updates": SOUGHT_UPDATES, "logits": LOGITS}
    search = QUICK_SEARCH if quick else SEARCH
    return [Cell({"n_responses": k, **counts, **search}, len(POINTWISE) + 3) for k in (QUICK_RESPONSES if quick else RESPONSES)]


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> list[dict[str, Any]]:
    """Return the worst of the bounds, at points and along paths, and the laws that long paths end in."""
    names = list(POINTWISE)
    if chunk < len(names):
        return _sought_point(names[chunk], settings, seed)
    return (_points, _bounded, _limits)[chunk - len(names)](settings, seed)


def _sought_point(name: str, settings: Settings, seed: np.random.SeedSequence) -> list[dict[str, Any]]:
    """Return the largest left over right side that a search finds."""
    k = settings["n_responses"]
    box = [(-settings["logits"], settings["logits"])] * k + [(0.0, 1.0)] * k
    worst = _sought(partial(_at, POINTWISE[name][0]), box, settings, seed)
    return [{"statement": name, "how": "sought", "estimate": worst, "prediction": 1.0}]


def _points(settings: Settings, seed: np.random.SeedSequence) -> list[dict[str, Any]]:
    """Return the largest left over right side at random points, right and broken."""
    k, found = settings["n_responses"], []
    rng = np.random.default_rng(seed)
    drawn = [Bandit(rng.normal(scale=rng.choice([0.5, 2.0, 5.0]), size=k), _rewards(rng, k)) for _ in range(settings["bandits"])]
    for name, (sides, broken) in POINTWISE.items():
        for how, scale in (("random", 1.0), ("broken", broken)):
            ratio = largest([left / right for left, right in (sides(bandit, scale) for bandit in drawn)])
            found.append({"statement": name, "how": how, "estimate": ratio, "prediction": 1.0})
    return found


def _at(sides: Sides, x: Array) -> tuple[float, float]:
    return sides(Bandit(*np.split(x, 2)), 1.0)


def _rewards(rng: np.random.Generator, k: int) -> Array:
    """Return random rewards whose best is above the others by the least shortfall; every other time they are 0 and 1."""
    rewards = rng.uniform(size=k)
    best = rng.integers(k)
    if rng.uniform() < 0.5:
        return np.asarray(np.eye(k)[best])
    rewards[best] = 0.0
    rewards *= 1.0 - LEAST_SHORTFALL
    rewards[best] = rng.uniform(rewards.max() + LEAST_SHORTFALL, 1.0)
    return np.asarray(rewards)


def _sought(sides: Callable[[Array], tuple[float, float]], box: Any, settings: Settings, seed: np.random.SeedSequence) -> float:
    return gt.worst_case(sides, box, rng=seed, starts=settings["starts"], climbs=settings["climbs"]).score


def _bounded(settings: Settings, seed: np.random.SeedSequence) -> list[dict[str, Any]]:
    """Return the largest t times gap over its bound, over random rewards and over those that a search finds."""
    k, rng = settings["n_responses"], np.random.default_rng(seed)
    drawn = [_rewards(rng, k) for _ in range(settings["paths"])]
    worst = {
        "random": largest([_largest(ASCENT, rewards, settings["updates"]) for rewards in drawn]),
        "broken": largest([_largest(ASTRAY, rewards, settings["updates"]) for rewards in drawn]),
        "sought": _sought(lambda x: (_largest(ASCENT, x, settings["sought_updates"]), 1.0), [(0.0, 1.0)] * k, settings, seed),
    }
    return [
        {"statement": name, "how": how, "estimate": value / bound(k), "prediction": 1.0}
        for name, bound in GAPS.items()
        for how, value in worst.items()
    ]


def _largest(rule: Rule, rewards: Array, updates: int) -> float:
    """Return the most that t times the gap is along a path."""
    return float((np.arange(1, updates + 1) * rule.gaps(rewards, updates)).max())


def _limits(settings: Settings, seed: np.random.SeedSequence) -> list[dict[str, Any]]:
    """Return the exponents and constants of gap ~ constant/t^power, from the growth of gap^(-1/power) in the second half."""
    k, updates, rng = settings["n_responses"], settings["updates"], np.random.default_rng(seed)
    half, found = updates // 2, []
    for path in range(settings["paths"]):
        rewards = _rewards(rng, k)
        short = np.delete(rewards.max() - rewards, rewards.argmax())
        for how, rule in RULES.items():
            gaps, power = rule.gaps(rewards, updates + 1)[[half, updates]], 1.0 + rule.power
            limit = divided_gap_limit(short, STEP) if rule.power else softmax_gap_limit(k, STEP)
            growth = np.diff(gaps ** (-1.0 / power))[0] / (updates - half)
            exponent = np.diff(np.log(gaps))[0] / np.log(updates / half)
            common = {"how": how, "path": path}
            found.append({"statement": "exponent", "estimate": float(exponent), "prediction": -power, **common})
            found.append({"statement": "constant", "estimate": float(growth**-power / limit), "prediction": 1.0, **common})
    return found


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each bound and how its worst case was sought, left over right side; one for each exponent and constant."""
    k = settings["n_responses"]
    common = {"setting": f"K = {k}", "n_responses": k, "path": -1}
    return [common | row | EXACT for result in results for row in result]


def claims(table: pd.DataFrame) -> list[Claim]:
    """The bounds by the worst of what was drawn and sought; exponents and constants by the path that is farthest off."""
    found = []
    for setting, part in table.groupby("setting", sort=False):
        for statement in (*POINTWISE, *GAPS):
            worst = part[part["statement"] == statement].set_index("how")["estimate"].to_dict()
            broken = worst.pop("broken")
            both = exact(largest(list(worst.values())), 1.0), exact(broken, 1.0)
            found.append(claim(statement, str(setting), *both, facts=worst))
        laws = part[part["path"] >= 0].set_index(["statement", "how", "path"])["estimate"].sort_index()
        for name, power, own, other in (("R6/rate", 1.0, "undivided", "divided"), ("R6/divided", 2.0, "divided", "undivided")):
            exponents = (laws[("exponent", how)] for how in (own, other))
            rates = (exact(one[farthest(one, -power)], -power, SLOPE_MARGIN) for one in exponents)
            found.append(claim(name, str(setting), *rates))
            constants = (laws[("constant", how)] for how in (own, f"{own}, turned"))
            distances = (exact(largest((one - 1.0).abs()), CONSTANT_MARGIN) for one in constants)
            found.append(claim(f"{name}, constant", str(setting), *distances))
    return found


STUDY = unconverted(
    "softmax_bandit",
    "R6: slope, smoothness and convergence of the softmax bandit, exact",
    cells,
    compute,
    rows,
    claims,
    (*POINTWISE, *GAPS, "R6/rate", "R6/rate, constant", "R6/divided", "R6/divided, constant"),
)
