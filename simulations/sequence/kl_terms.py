"""U17, R5: which gradient each KL term estimates, in the reward and in the loss, on and off policy, exact."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.estimation.kl_term import KL_TERMS, KLTerm
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import exact
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from simulations.claims import claim, unconverted
from simulations.sequence.divergences import STEP, Numbers, at_held_prefixes, between, expected, gradient
from simulations.sequence.parts import composed, cosine

PROBLEMS = ("kl-tabular", "kl-linear", "kl-sequence", "crowd")
AWAY, DRIFT, STRAY = 0.7, 0.5, 0.01
"""How far the policy is from the reference, and the one that sampled from it; the controls' draws come from one that is 1% of a
step of length 1 away from the one that is meant: what it does to a mean shows in the third digit."""
GROUP_SIZE = 2


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem; exact, so quick is no different."""
    return [Cell({"problem": name, "away": AWAY, "drift": DRIFT, "stray": STRAY}) for name in PROBLEMS]


def printed_slope(log_ratios, terms):
    """Fill in 1 - pi/reference, the slope of k3 as the paper prints it; log_ratios are of pi/reference."""
    for t in range(terms.shape[0]):
        for i in range(terms.shape[1]):
            terms[t, i] = 1.0 - np.exp(log_ratios[t, i])


PRINTED = KLTerm("k3 in loss, as printed", "loss", printed_slope)
TERMS = {**KL_TERMS, PRINTED.name: PRINTED}


def penalty_alone(problem: gt.Problem) -> gt.Problem:
    """Return the problem without rewards and with a penalty of strength 1: all that an estimate then shows is the KL term."""
    assert problem.kl is not None
    nothing = gt.Bandit(np.zeros((problem.bandit.n_prompts, problem.bandit.n_responses)), problem.bandit.prompt_weights)
    return gt.Problem(nothing, problem.policy, gt.KL(1.0, problem.kl.reference), problem.theta)


def estimated(problem: gt.Problem, term: KLTerm, theta: Array, behaviour: Array | None) -> Array:
    """Return the exact mean of what a KL term contributes to the estimate, as a gradient to descend, shape (d,).

    In the reward it is multiplied by the trajectory ratio, as the advantage is; in the loss by none, as trainers have it.
    """
    chosen = composed("reinforce", "trajectory" if term.place == "reward" else "none", kl=term)
    return -gt.gradient_mean(problem, theta, chosen, batch_size=1, group_size=GROUP_SIZE, behaviour=behaviour)


def on_policy_targets(problem: gt.Problem, here: gt.Point) -> Mapping[str, Array]:
    """Return what each term is said to estimate of responses of the policy itself (docs/derivations.md, section 19)."""
    log_reference = _reference(problem)
    own = here.token_log_probabilities

    def reverse_term(logs: Numbers) -> Numbers:
        return np.exp(logs) * (logs - log_reference)

    def forward_term(logs: Numbers) -> Numbers:
        return np.exp(log_reference) * (log_reference - logs)

    def k2_term(logs: Numbers) -> Numbers:
        return 0.5 * (logs - log_reference) ** 2

    def moving(logs: Numbers) -> Any:
        paths = problem.policy.paths
        values = np.exp(paths.along(logs)) * paths.along(k2_term(own))
        return problem.bandit.prompt_weights @ values.sum(axis=1)

    def slope(divergence: Any) -> Array:
        return gradient(problem, divergence, here.theta)

    reverse, forward = slope(between(problem, log_reference)), slope(at_held_prefixes(problem, here, forward_term))
    return {
        "k1 in reward": reverse,
        "k2 in reward": slope(moving),
        "k3 in reward": reverse - forward,
        "k1 in loss": np.zeros_like(reverse),
        "k2 in loss": slope(at_held_prefixes(problem, here, reverse_term)),
        "k3 in loss": forward,
        PRINTED.name: forward,
    }


def off_policy_targets(problem: gt.Problem, here: gt.Point, sampler: gt.Point) -> Mapping[str, Array]:
    """Return what the terms are said to estimate of responses of another policy."""
    log_reference, then = _reference(problem), sampler.token_log_probabilities

    def slope(divergence: Any) -> Array:
        return gradient(problem, divergence, here.theta)

    reverse = slope(between(problem, log_reference))
    return {
        "k1 in reward": reverse - slope(between(problem, then)),
        "k1 in loss": slope(expected(problem, sampler, lambda logs: logs)),
        "k2 in loss": slope(expected(problem, sampler, lambda logs: 0.5 * (logs - log_reference) ** 2)),
        "k3 in loss": slope(expected(problem, sampler, lambda logs: np.exp(log_reference - logs) + logs)),
    }


def _reference(problem: gt.Problem) -> Array:
    assert problem.log_reference is not None
    return problem.log_reference


def slope_error(here: gt.Point, term: KLTerm) -> float:
    """Return the largest difference, over tokens, of a term's slope from the derivative of k3 in the token's log probability."""
    log_ratios = here.log_ratios_to_reference
    slopes = np.empty_like(log_ratios)
    term.fill(np.ascontiguousarray(log_ratios), slopes)
    stepped = log_ratios + 1j * STEP
    return float(np.abs(slopes - (np.exp(-stepped) + stepped).imag / STEP).max())


def value_error(problem: gt.Problem, here: gt.Point, sampler: gt.Point) -> float:
    """Return how far, in nats, the mean of k3 over responses of `sampler` is from KL(pi || reference)."""
    terms = np.empty_like(here.log_ratios_to_reference)
    KL_TERMS["k3 in reward"].fill(np.ascontiguousarray(here.log_ratios_to_reference), terms)
    mean = expected(problem, sampler, lambda logs: terms)(here.token_log_probabilities)
    return float(abs(mean - between(problem, _reference(problem))(here.token_log_probabilities)))


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> dict[str, Any]:
    """Return discrepancies relative to the gradient of KL(pi || reference), and how near to it each mean is."""
    problem = penalty_alone(gt.gallery.problem(settings["problem"]))
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(3, problem.policy.dimension))
    away, drift, stray = (
        settings[name] * step / np.linalg.norm(step) for name, step in zip(("away", "drift", "stray"), steps, strict=True)
    )
    here, then = problem.at(away), problem.at(away + drift)
    wanted = gradient(problem, between(problem, _reference(problem)), away)
    places = {
        "on": (None, away + stray, on_policy_targets(problem, here)),
        "off": (then.theta, then.theta + stray, off_policy_targets(problem, here, then)),
    }
    found = []
    for place, (behaviour, astray, targets) in places.items():
        for name, target in targets.items():
            mean, wrong = (estimated(problem, TERMS[name], away, sampled) for sampled in (behaviour, astray))
            found.append({"term": name, "policy": place} | _compare(mean, wrong, target, wanted))
    alone = {"term": "k3", "policy": "on", "from_reverse": np.nan, "cosine": np.nan}
    at_stray = problem.at(away + stray)
    found += [
        alone | {"quantity": "value", "gap": value_error(problem, here, here), "astray": value_error(problem, here, at_stray)},
        alone | {"quantity": "slope", "gap": slope_error(here, TERMS["k3 in loss"]), "astray": slope_error(at_stray, PRINTED)},
        alone | {"quantity": "printed slope", "gap": slope_error(here, PRINTED), "astray": slope_error(at_stray, PRINTED)},
    ]
    return {"rows": found}


def _compare(mean: Array, wrong: Array, target: Array, wanted: Array) -> dict[str, Any]:
    scale = float(np.linalg.norm(wanted))
    size = float(np.linalg.norm(mean))
    return {
        "quantity": "gradient",
        "gap": float(np.linalg.norm(mean - target)) / scale,
        "astray": float(np.linalg.norm(wrong - target)) / scale,
        "from_reverse": float(np.linalg.norm(mean - wanted)) / scale,
        "cosine": cosine(mean, wanted) if size > 1e-10 * scale else 0.0,
    }


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each term, in the reward and in the loss, on and off policy; `astray` is the control's discrepancy."""
    zero = {"prediction": 0.0, **EXACT}
    return [
        {"problem": settings["problem"]}
        | {name: value for name, value in row.items() if name != "gap"}
        | zero
        | {"estimate": row["gap"]}
        for row in results[0]["rows"]
    ]


IDS = {("value", "k3"): "U17/value", ("slope", "k3"): "U17/corrected", ("printed slope", "k3"): "U17/printed"}


def statement_of(row: Mapping[Any, Any]) -> str | None:
    """Return the id of the statement that a row is evidence for; None for what is shown only."""
    if row["quantity"] != "gradient":
        return IDS[row["quantity"], row["term"]]
    if row["term"] == PRINTED.name:
        return "U17/printed mean"
    return f"R5/{row['term']}" + ("/off policy" if row["policy"] == "off" else "")


def claims(table: pd.DataFrame) -> list[Claim]:
    """Each mean is what it is said to be; the control draws from another policy, or has the printed slope."""
    found = []
    for row in table.to_dict("records"):
        facts = {"distance from the gradient of KL(pi || reference)": row["from_reverse"], "cosine with it": row["cosine"]}
        facts = {} if np.isnan(row["cosine"]) else facts
        pair = exact(row["estimate"], 0.0), exact(row["astray"], 0.0)
        found.append(claim(str(statement_of(row)), str(row["problem"]), *pair, facts=facts))
    return found


STUDY = unconverted(
    "kl_terms",
    "U17, R5: which gradient each KL term estimates, exact",
    cells,
    compute,
    rows,
    claims,
    (
        *IDS.values(),
        "U17/printed mean",
        *(f"R5/{name}" for name in KL_TERMS),
        *(f"R5/{name}/off policy" for name in ("k1 in reward", "k1 in loss", "k2 in loss", "k3 in loss")),
    ),
)
