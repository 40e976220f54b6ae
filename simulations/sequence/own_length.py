"""T15: where training ends if responses are divided by their own lengths, exact.

The exact mean update is taken at the maximiser, and the mean dynamics are followed from there. In the control there is no
baseline.
"""

import numpy as np
from scipy.integrate import solve_ivp

import grpo_theory as gt
from grpo_theory.evidence.reading import largest
from grpo_theory.harness import check, run
from simulations.seeds import seed_of
from simulations.sequence.parts import composed, features_of, generator_of, mean_update, random_bandit
from simulations.sequence.stopping import stopping
from simulations.statements import stated

T15 = stated("T15")

KINDS = ("tabular, KL", "shared features, KL", "stop or go on")
"""A logit for every prefix and token; features that prefixes and prompts share; and one parameter, without a penalty."""
VOCABULARY_SIZE, HORIZON, END = 3, 3, 0
PROMPTS, QUICK_PROMPTS, EACH = 24, 2, 2
"""Each problem has two of the prompts."""
DIMENSION, STRENGTH = 3, 0.2
LARGEST_LOSS = 0.05
"""A user would notice if a twentieth of what training gains were lost."""
TIME = 4000.0
"""How long training goes on: a few hundred times the reciprocal of a typical curvature."""
RULES = {"own length": ("rloo", "own length"), "constant": ("rloo", "constant"), "no baseline": ("reinforce", "own length")}


def problem_of(kind, rng, prompts=EACH, dimension=DIMENSION, strength=STRENGTH):
    """Return a problem with an interior maximiser."""
    if kind == "stop or go on":
        return stopping(8, False)
    paths = gt.TokenTree(1, VOCABULARY_SIZE, HORIZON, END).paths
    features = features_of(rng, prompts, paths, dimension) if kind.startswith("shared") else None
    tree = gt.TokenTree(prompts, VOCABULARY_SIZE, HORIZON, END, features)
    bandit = random_bandit(rng, prompts, paths.n_responses, one_in=3)
    reference = rng.dirichlet(np.full(paths.n_responses, 3.0), size=prompts)
    return gt.Problem(bandit, tree, gt.KL(strength, reference))


def update_by(problem, theta, rule):
    """Return the mean update by a rule, shape (d,)."""
    advantage, aggregation = RULES[rule]
    return mean_update(problem, theta, composed(advantage, "none", "none", aggregation), baseline=advantage == "rloo")


def end_of_training(problem, theta, rule):
    """Return where the mean dynamics d theta/dt = E update has come to from a parameter by a time that is long, shape (d,)."""
    flow = solve_ivp(lambda _, x: update_by(problem, x, rule), (0.0, TIME), theta, method="LSODA", rtol=1e-7, atol=1e-9)
    return np.asarray(flow.y[:, -1])


def cases(quick):
    """Each kind of problem, on all its prompts."""
    sizes = {"prompts": QUICK_PROMPTS if quick else PROMPTS, "dimension": DIMENSION, "strength": STRENGTH}
    return [{"kind": kind, **sizes} | ({"prompts": EACH} if kind == "stop or go on" else {}) for kind in KINDS]


@run(prompts=EACH, shared=True)
def trained(kind, prompts, dimension, strength, rng, chunk):
    """Return by rule the update at the maximiser over its noise, and the share lost where training from there ends."""
    problem = problem_of(kind, generator_of(chunk, seed_of(rng)), prompts, dimension, strength)
    best = gt.find_optimum(problem, np.ones(1) if problem.policy.dimension == 1 else problem.theta)
    # A group's noise at the maximiser is the unit of the mean update there.
    law = gt.gradient_law(problem, best, composed("rloo", "none", "none", "own length"), batch_size=1, group_size=2)
    scale, top, bottom = np.sqrt(law.trace), gt.objective(problem, best), gt.objective(problem, problem.theta)
    found = {rule: {"update": [np.linalg.norm(update_by(problem, best, rule)) / scale]} for rule in RULES}
    if not kind.startswith("tabular"):
        for rule, measured in found.items():
            measured["loss"] = [(top - gt.objective(problem, end_of_training(problem, best, rule))) / (top - bottom)]
    return found


@check(
    stated("T15/optimum"),
    of=trained,
    cases=lambda quick: [{**one, "seed": seed} for one in cases(quick) for seed in range(one["prompts"] // EACH)],
    broken={"rule": "no baseline"},
    setting=lambda kind, seed, **case: kind if kind == "stop or go on" else f"{kind}, {seed + 1}",
)
def optimum(found, seed, rule="own length"):
    """The mean update at the maximiser is zero, on every problem."""
    return found[rule]["update"][seed], 0.0


@check(stated("T15/cost"), of=trained, cases=lambda quick: cases(quick)[1:], broken={"rule": "no baseline"}, setting="{kind}")
def cost(found, rule="own length"):
    """The loss where the maximiser moves, at worst."""
    return largest(found[rule]["loss"]), LARGEST_LOSS
