"""Trainers' conventions against the trainers themselves (marker `reference`: `make reference` builds their environments).

Advantages are compared, and gradients of the loss of a causal model whose logits are a token tree's. They are off policy and
clipped, with a KL term in the loss. The trainers run in environments of their own, because their pins conflict; cases and results
pass as JSON.
"""

import json
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from enumeration import tree_case
from test_trainers import fill

import grpo_theory as gt
from grpo_theory.estimation import KL_TERMS
from grpo_theory.estimation.trainers import CONVENTIONS
from grpo_theory.exact.score_moments import token_weights

pytestmark = pytest.mark.reference

HERE = Path(__file__).parent
SIDES = {"trl": HERE / "reference" / "trl_side.py", "verl": HERE / "reference" / "verl_side.py"}
GROUPS, SIZE = 6, 4
STRENGTH = 0.3
NEAR = {"trl": 2e-6, "verl": 1e-7}
"""How near advantages are. TRL takes them in float32, whose unit is 6e-8, in some ten operations. In verl they are in the tests'
float64, but constants are in float32. These are the mean 0 and deviation 1 of a lone response, and the 1e-8 beside a number of
tokens."""
NEAR_GRADIENT = 1e-8
"""Gradients are in float64, but verl adds 1e-8 to a number of tokens; a gradient's largest entry is some 0.02."""

TRL_ADVANTAGES = {
    "trl_grpo": ("grpo", {"scale_rewards": "group"}),
    "trl_grpo_batch": ("grpo", {"scale_rewards": "batch"}),
    "trl_grpo_none": ("grpo", {"scale_rewards": "none"}),
    "trl_rloo": ("rloo", {"normalize_advantages": False}),
    "trl_rloo_whitened": ("rloo", {"normalize_advantages": True}),
}
VERL_ADVANTAGES = {
    "verl_grpo": ("grpo", {}),
    "verl_dr_grpo": ("grpo", {"norm_adv_by_std_in_grpo": False}),
    "verl_rloo": ("rloo", {}),
    "verl_opo": ("opo", {}),
    "verl_grpo_passk": ("grpo_passk", {}),
    "verl_reinforce_plus_plus_baseline": ("reinforce_plus_plus_baseline", {}),
    "verl_gpg": ("gpg", {}),
}
TRL_LOSSES = {
    "trl_dapo_loss": ("grpo", {"loss_type": "dapo"}),
    "trl_grpo_loss": ("grpo", {"loss_type": "grpo"}),
    "trl_dr_grpo_loss": ("grpo", {"loss_type": "dr_grpo", "max_completion_length": 3}),
    "trl_gspo_loss": (
        "grpo",
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4},
    ),
    "trl_cispo_loss": ("grpo", {"loss_type": "cispo", "epsilon_high": 5.0}),
    "trl_rloo_loss": ("rloo", {}),
}
ON_POLICY = "on policy, bias corrected"
"""TRL's default: k3 is multiplied by the ratio, and differentiated with it; where the ratio is 1 that has the slope of k2."""
VERL_LOSSES = {
    "verl_grpo_loss": ("vanilla", "token-mean", {}),
    "verl_dr_grpo_loss": ("vanilla", "seq-mean-token-sum-norm", {}),
    "verl_gspo_loss": ("gspo", "seq-mean-token-mean", {"clip_ratio_low": 3e-4, "clip_ratio_high": 4e-4}),
    "verl_cispo_loss": ("cispo", "token-mean", {}),
    "verl_gpg_loss": ("gpg", "token-mean", {}),
}


def rewards_of(kind):
    """Return rewards (B, G), which float32 holds exactly, and lengths: the last group is uniform, the one before it nearly so."""
    rng = np.random.default_rng(7)
    shape = GROUPS, SIZE
    rewards = rng.integers(0, 2, shape) * 1.0 if kind == "binary" else rng.integers(-512, 512, shape) / 256.0
    rewards[-1] = 0.5
    rewards[-2] = 0.25
    rewards[-2, -1] += 2.0**-10
    return rewards, rng.integers(1, 4, shape)


def drawn_tree(name):
    """Return a tabular tree, as a rule far from the policy that sampled, with prompts and responses of a batch, any of them."""
    c = tree_case("tabular", "binary", "kl", vocabulary_size=3, distance=0.0 if name.endswith(ON_POLICY) else 1.5)
    rng = np.random.default_rng(11)
    return c, rng.integers(0, 2, GROUPS), rng.integers(0, c.problem.policy.n_responses, (GROUPS, SIZE))


def estimator_with_loss_term(name):
    """Return a convention with the penalty in the loss where the trainer has it there, and a strength for the trainer."""
    name, _, place = name.partition(", ")
    found = CONVENTIONS[name]
    if name == "trl_rloo_loss":
        return found, 0.0
    kl = KL_TERMS["k2 in loss" if place == ON_POLICY else "k3 in loss"]
    return gt.Estimator(name, found.advantage, found.ratio, found.clip, found.aggregation, kl), STRENGTH


def batch_of_tree(name):
    """Return the advantages (B, G) of a convention, of rewards drawn beforehand."""
    rewards, lengths = rewards_of("binary")
    return fill(name.partition(", ")[0], rewards, lengths)


def our_update(name):
    """Return the convention's estimate of the batch, shape (M, prefixes, V): sums of its tables u and v over the batch."""
    c, prompts, responses = drawn_tree(name)
    found, strength = estimator_with_loss_term(name)
    kl = gt.KL(STRENGTH, c.kl.reference) if strength else None
    problem = gt.Problem(c.problem.bandit, c.problem.policy, kl, c.theta)
    weights = token_weights(problem.at(c.theta), problem.at(c.behaviour), found)
    tables = weights.logit_gradients(np.arange(2))
    advantages = batch_of_tree(name)
    total = np.zeros((2, problem.policy.n_logits))
    for b, m in enumerate(prompts):
        for g, k in enumerate(responses[b]):
            below = weights.depends_on_sign and not advantages[b, g] > 0.0
            total[m] += advantages[b, g] * tables[m, int(below), k]
            if weights.drifting:
                total[m] += tables[m, -1, k]
    tokens = problem.policy.paths.lengths[responses].sum()
    total /= tokens if found.aggregation.pool == "batch" else responses.size
    return total.reshape(2, -1, 3)


def tree_facts(name):
    """Return a loss case in numbers."""
    c, prompts, responses = drawn_tree(name)
    paths = c.problem.policy.paths
    return {
        "logits": c.theta.reshape(2, -1, 3).tolist(),
        "old": c.behaviour.reshape(2, -1, 3).tolist(),
        "reference": c.problem.log_reference.reshape(2, -1, 3).tolist(),
        "prefixes": c.problem.policy.prefixes,
        "prompts": np.repeat(prompts, SIZE).tolist(),
        "responses": [paths.tokens[k] for k in responses.reshape(-1)],
        "advantages": batch_of_tree(name).reshape(-1).tolist(),
    }


def trl_cases():
    """Return everything that TRL is asked."""
    advantages = {
        f"{name}, {kind}": {"trainer": trainer, "settings": settings, "rewards": rewards_of(kind)[0].tolist()}
        for name, (trainer, settings) in TRL_ADVANTAGES.items()
        for kind in ("binary", "graded")
    }
    gradients = {
        name: {
            "trainer": trainer,
            "settings": settings | ({"use_bias_correction_kl": False} if trainer == "grpo" else {}),
            "strength": estimator_with_loss_term(name)[1],
            **tree_facts(name),
        }
        for name, (trainer, settings) in TRL_LOSSES.items()
    }
    corrected = f"trl_grpo_loss, {ON_POLICY}"
    gradients[corrected] = {"trainer": "grpo", "settings": {"loss_type": "grpo"}, "strength": STRENGTH, **tree_facts(corrected)}
    return {"advantages": advantages, "gradients": gradients}


def verl_cases():
    """Return everything that verl is asked."""
    advantages = {}
    for name, (estimator, settings) in VERL_ADVANTAGES.items():
        facts = {"estimator": estimator, "settings": settings} | ({"config": {}} if name == "verl_grpo_passk" else {})
        for kind in ("binary", "graded"):
            rewards, lengths = rewards_of(kind)
            advantages[f"{name}, {kind}"] = {**facts, "rewards": rewards.tolist(), "lengths": lengths.tolist()}
        if name != "verl_grpo_passk":
            lone = {"rewards": rewards[:, :1].tolist(), "lengths": lengths[:, :1].tolist()}
            advantages[f"{name}, lone"] = {**facts, **lone}
    gradients = {
        name: {"loss": loss, "mode": mode, "settings": settings, "strength": STRENGTH, "divergence": "k3", **tree_facts(name)}
        for name, (loss, mode, settings) in VERL_LOSSES.items()
    }
    return {"advantages": advantages, "gradients": gradients}


@cache
def answers(library):
    """Run a trainer's side in its environment, and return its answers; skip if that cannot be had."""
    python = HERE.parent / f".venv-{library}" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{library} has no environment here: make reference builds it")
    probe = subprocess.run([python, "-c", f"import torch, {library}"], capture_output=True, text=True)
    if probe.returncode:
        pytest.skip(f"{library} cannot be imported in its environment: {probe.stderr.strip().splitlines()[-1]}")
    folder = python.parents[1]
    cases, results = folder / "cases.json", folder / "results.json"
    cases.write_text(json.dumps({"trl": trl_cases, "verl": verl_cases}[library]()))
    subprocess.run([python, SIDES[library], cases, results], check=True, capture_output=True, text=True)
    return json.loads(results.read_text())


def ours(label):
    """Return our advantages for a case's label."""
    name, kind = label.split(", ")
    rewards, lengths = rewards_of("graded" if kind == "lone" else kind)
    return fill(name, rewards[:, :1], lengths[:, :1]) if kind == "lone" else fill(name, rewards, lengths)


def gap(one, other):
    """Return the largest difference, relative to the largest entry or 1."""
    return float(np.abs(np.asarray(one) - np.asarray(other)).max() / max(1.0, np.abs(other).max()))


@pytest.mark.parametrize("library", SIDES)
def test_advantages(library):
    found = answers(library)
    gaps = {label: gap(values, ours(label)) for label, values in found["advantages"].items()}
    print(found["versions"], {label: f"{value:.1e}" for label, value in gaps.items()})
    names = TRL_ADVANTAGES if library == "trl" else VERL_ADVANTAGES
    assert {label.split(", ")[0] for label in gaps} == set(names)
    assert {name for name in CONVENTIONS if name.startswith(f"{library}_") and not name.endswith("_loss")} == set(names)
    assert all(value < NEAR[library] for value in gaps.values()), gaps
    # Power: another convention of the same library is refuted.
    for label, values in found["advantages"].items():
        if label.startswith((f"{library}_grpo,", f"{library}_rloo,")) and "lone" not in label:
            other = label.replace("grpo", "rloo") if "grpo" in label else label.replace("rloo", "grpo")
            assert gap(values, ours(other)) > 0.1, label


@pytest.mark.parametrize("library", SIDES)
def test_gradients_of_the_loss(library):
    found = answers(library)
    gaps = {name: gap(values, our_update(name)) for name, values in found["gradients"].items()}
    print(found["versions"], {name: f"{value:.1e}" for name, value in gaps.items()})
    losses = {name for name in CONVENTIONS if name.startswith(f"{library}_") and name.endswith("_loss")}
    assert {name.partition(", ")[0] for name in gaps} == losses
    assert all(value < NEAR_GRADIENT for value in gaps.values()), gaps
    # Power: every other loss of the library is refuted, and so is the other slope of the penalty.
    for one in gaps:
        for other in gaps:
            if one != other:
                assert gap(found["gradients"][one], our_update(other)) > 1e-3, (one, other)
