"""P3, P4: responses shared out among prompts, in one step, exact.

The printed variances are compared with the true ones, and each rule's sizes with equal ones. The study also shows what is left of
the gain if success rates are guessed from a few earlier responses. Problems of the gallery are judged one by one. Of a world the
mean over draws is judged, with limits that count draws. That variances are near is said of every prompt of every draw. In the
controls variances are divided by n, or sizes are upside down, or equal where a share of the gain is missed.
"""

from dataclasses import replace

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence.reading import mean_of
from grpo_theory.harness import check, rows, run
from simulations.runs.worlds import WORLDS
from simulations.seeds import child_seed, seed_of
from simulations.statements import stated

GALLERY = ("mixed", "two-speeds", "lm-zero-shot", "lm-few-shot", "lm-instruct", "lm-answers")
LARGE = ("shared", "tabular", "hard")
"""Of the worlds of whole runs, at their start."""
MEAN, HIGH = 8, 32
RULES = ("uniform", "neyman", "vip", "dynamo", "sgpo")
NEAR, HALF = 0.1, 0.5
"""A tenth of the error is a tenth of the responses; who gets less than half of a gain has made the wrong choice."""
WORTH = 0.02
"""A gain of less than 2% of the error is one that nobody would build anything for."""
DRAWS, POLICIES, SEEN_BEFORE = 48, 24, 8
"""Draws of a world, numbers 0 to 47, random policies, and earlier responses to a prompt. A first run had 24 draws."""
SEEN_DRAWS, SEEN_PROMPTS, SEEN_OF_A_DRAW = 32, 8000, 2
"""How often earlier responses are drawn: on one problem so often, or for so many prompts; on each draw of a world twice."""
VALUE, VARIANCE, START = 0, 1, 4
"""Columns of what is known of a prompt."""
LEAST = 1e-12


def fill_printed_at_start(known, costs):
    """The printed error with the success rate at the start: what is known without estimating anything anew."""
    for b in range(known.shape[0]):
        variance = known[b, START] * (1.0 - known[b, START])
        costs[b, 0], costs[b, 1] = variance, variance


def fill_inverse_now(known, costs):
    """Sizes as 1/p with the success rate of the policy that samples."""
    for b in range(known.shape[0]):
        costs[b, 0], costs[b, 1] = 1.0 / max(known[b, VALUE], LEAST) ** 2, 0.0


def fill_upside_down(known, costs):
    """Broken: most responses go to the prompts whose rewards vary least."""
    for b in range(known.shape[0]):
        costs[b, 0], costs[b, 1] = 1.0 / max(known[b, VARIANCE], LEAST), 0.0


VIP_AT_START = gt.AllocationRule("vip, start", fill_printed_at_start, wants_success=True)
SGPO_NOW = gt.AllocationRule("sgpo, now", fill_inverse_now, wants_success=True, weighted=False)
UPSIDE_DOWN = gt.AllocationRule("upside down", fill_upside_down)


def printed(point, sizes):
    """Return the printed trace of the leave-one-out estimate with each prompt's own s^2, shape (sizes, M), rewards 0 and 1."""
    return point.moments.reward_variance * point.moments.score_squared_norm / (np.asarray(sizes, dtype=float)[:, None] - 1.0)


def lucky():
    """Return a problem at whose prompts every answer is right equally often, and 24 policies."""
    policy = gt.TabularSoftmax(4, 5)
    problem = gt.Problem(gt.Bandit(np.tile([[0.05], [0.3], [0.5], [0.9]], 5)), policy)
    return problem, np.random.default_rng(7).normal(size=(POLICIES, policy.dimension))


@check(
    stated("P3/printed variance"),
    cases=[{"estimator": "rloo"}, {"estimator": "dr_grpo"}],
    broken={"by": 0.0},
    setting="rewards that are luck ({estimator})",
)
def printed_variance(estimator, by=1.0):
    """The largest relative deviation; in the broken case variances are divided by n in place of n - 1."""
    (problem, thetas), sizes = lucky(), np.arange(2, HIGH + 1)
    factor = ((1.0 - 1.0 / sizes) ** 2 if estimator == "dr_grpo" else 1.0) * (sizes - 1.0) / (sizes - by)
    laws = [gt.allocation_law(problem, theta, estimator, high=HIGH) for theta in thetas]
    return [np.abs(factor[:, None] * printed(law.point, sizes) / law.traces - 1.0).max() for law in laws], 0.0


@check(stated("P3/no gradient"), broken={"luck": False}, setting="rewards that are luck")
def no_gradient(luck=True):
    """In the broken case rewards are those of a problem of the gallery."""
    problem, thetas = lucky()
    if not luck:
        problem = gt.gallery.problem("tabular")
        thetas = [problem.theta]
    return [np.sqrt(problem.at(theta).moments.gradient_squared_norm) for theta in thetas], 0.0


def cases(quick):
    """Each problem or world; a quick run has the cheapest, and few draws."""
    names = [f"gallery/{name}" for name in GALLERY[: 3 if quick else None]]
    names += [f"world/{name}" for name in LARGE[: 1 if quick else None]]
    return [{"problem": name, "draws": 4 if quick else DRAWS} for name in names]


@run()
def shared_out(problem, draws, rng):
    """Return what `measured` does on a problem of the gallery, or by draw of a world."""
    (kind, name), seed = problem.split("/"), seed_of(rng)
    if kind == "gallery":
        one = gt.gallery.problem(name)
        return measured(one, seed, max(SEEN_DRAWS, SEEN_PROMPTS // one.policy.n_prompts))
    found = [measured(WORLDS[name].problem(draw), child_seed(seed, draw), SEEN_OF_A_DRAW) for draw in range(draws)]
    return {about: [np.mean(one[about]) for one in found] for about in found[0]}


def measured(problem, seed, seen):
    """Return the error with each rule's sizes and by how much printed variances are off; earlier responses are drawn so often."""
    law, budget = gt.allocation_law(problem, problem.theta, high=HIGH), MEAN * problem.policy.n_prompts
    of = {rule if isinstance(rule, str) else rule.name: rule for rule in (*RULES, VIP_AT_START, SGPO_NOW, UPSIDE_DOWN)}
    found = {name: law.mse(law.sizes(rule, budget)) for name, rule in of.items()}
    at = law.known[:, 1] > 0.0
    true, said = law.traces[MEAN - law.low, at], printed(law.point, [MEAN])[0, at]
    ratios = said / true
    found |= {"least ratio": ratios.min(), "greatest ratio": ratios.max(), "median ratio": np.median(ratios)}
    # As the printed law with the largest variance that rewards have, at all prompts: it knows nothing of p.
    found |= {"off": np.abs(ratios - 1.0).max(), "off without p": np.abs(said / (4.0 * law.known[at, 1]) / true - 1.0).max()}
    found["choice"] = float(np.ptp(law.known[:, 1]) > 1e-9)
    if found["choice"] and np.isin(law.point.bandit.values, (0.0, 1.0)).all():
        for name, more in (("seen rates, raw", 0.0), ("seen rates", 1.0)):
            found[name] = by_seen_rates(law, more, budget, np.random.default_rng(seed), seen)
    return found


def by_seen_rates(law, more, budget, rng, seen):
    """Return errors with rates that earlier responses gave: sizes do not depend on the responses that they are of."""
    rights = rng.binomial(SEEN_BEFORE, np.clip(law.known[:, 0], 0.0, 1.0), size=(seen, len(law.known)))
    rates = (rights + more) / (SEEN_BEFORE + 2.0 * more)
    known = (np.stack([own, own * (1.0 - own), *law.known[:, 2:].T], axis=1) for own in rates)
    return np.array([law.mse(replace(law, known=one).sizes("vip", budget)) for one in known])


def named(problem, **_):
    """Return what a problem is called."""
    return problem.removeprefix("gallery/").replace("/", " ")


@check(
    *stated("P3/printed variance, elsewhere", "P3/one step", "P3/share of the gain", "P3/seen rates, raw", "P3/seen rates"),
    *stated("P4/DynaMO, one step", "P4/sGPO, one step"),
    of=shared_out,
    cases=cases,
    broken={"wrong": True},
    setting=named,
)
def one_step(found, wrong=False):
    """Errors over that of equal sizes; in the broken case the law knows nothing of p, and sizes are upside down or equal."""
    equal, least = found["uniform"], found["neyman"]  # of leave-one-out estimates Neyman's sizes are the best
    vip = found["upside down" if wrong else "vip"]
    facts = {name: found[name].mean() for name in ("least ratio", "greatest ratio", "median ratio")}
    facts |= {f"error, {rule}": (found[rule] / least).mean() for rule in RULES} | {
        "gain of the best": (1.0 - least / equal).mean()
    }
    left = {}
    if found["choice"][0]:  # else these rules have nothing to choose by
        left = {"P3/one step": vip, "P4/DynaMO, one step": vip if wrong else found["dynamo"]}
        left["P4/sGPO, one step"] = vip if wrong else found["sgpo"]
        left |= {f"P3/{name}": vip if wrong else found[name] for name in ("seen rates, raw", "seen rates") if name in found}
    sides = {name: (sampled(error / equal), 1.0, facts) for name, error in left.items()}
    sides["P3/printed variance, elsewhere"] = found["off without p" if wrong else "off"], NEAR, facts
    if equal[0] - least[0] >= WORTH * equal[0]:
        sides["P3/share of the gain"] = sampled(((equal if wrong else vip) - least) / (equal - least)), HALF, facts
    return sides


def sampled(values):
    """Return values over draws as a side; a single one is exact."""
    return mean_of(values) if len(values) > 1 else values


@rows(of=shared_out, cases=cases)
def errors(found, problem):
    """The mean error of each rule over the least, for the figure."""
    for rule in (*RULES, VIP_AT_START.name, SGPO_NOW.name):
        error = (found[rule] / found["neyman"]).mean()
        yield {"problem": named(problem), "quantity": "error", "rule": rule, "estimate": error}
