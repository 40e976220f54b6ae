"""Runs in an environment with verl: its advantages and loss gradients for the cases of a JSON file, as JSON.

Usage: python verl_side.py CASES RESULTS
"""

import json
import sys
import warnings
from pathlib import Path

warnings.simplefilter("ignore")

import numpy as np
import torch
import verl
from tree_model import TreeModel, padded
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo import core_algos
from verl.workers.config import ActorConfig


def advantages(case):
    """Return the advantages of a registered estimator for rewards (B, G) and lengths (B, G), in float64."""
    rewards = torch.tensor(case["rewards"], dtype=torch.float64)
    lengths = torch.tensor(case["lengths"]).reshape(-1)
    mask = (torch.arange(int(lengths.max())) < lengths[:, None]).to(torch.float64)
    by_token = torch.zeros_like(mask)
    by_token[torch.arange(len(lengths)), lengths - 1] = rewards.reshape(-1)
    index = np.repeat(np.arange(len(rewards)), rewards.shape[1])
    facts = {"config": AlgoConfig(**case["config"])} if "config" in case else {}
    function = core_algos.get_adv_estimator_fn(case["estimator"])
    found, _ = function(token_level_rewards=by_token, response_mask=mask, index=index, **case["settings"], **facts)
    return found[:, 0].reshape(rewards.shape).tolist()


def gradient(case):
    """Return minus the gradient of verl's own loss in the logits of a tree."""
    model, old, reference = (TreeModel(case[name], case["prefixes"]) for name in ("logits", "old", "reference"))
    rows, mask = padded(case["responses"])
    mask = mask.to(torch.float64)
    with torch.no_grad():
        then, known = (one.log_probabilities(case["prompts"], rows) for one in (old, reference))
    now = model.log_probabilities(case["prompts"], rows)
    given = torch.tensor(case["advantages"], dtype=torch.float64)[:, None] * mask
    config = ActorConfig(strategy="fsdp", use_dynamic_bsz=True, rollout_n=1, **case["settings"])
    loss, _ = core_algos.get_policy_loss_fn(case["loss"])(then, now, given, mask, loss_agg_mode=case["mode"], config=config)
    if case["strength"]:
        divergence = core_algos.kl_penalty(now, known, case["divergence"])
        loss = loss + case["strength"] * core_algos.agg_loss(divergence, mask, case["mode"])
    loss.backward()
    return (-model.logits.grad).tolist()


def main():
    """Read the cases and write the results."""
    cases = json.loads(Path(sys.argv[1]).read_text())
    results = {
        "versions": {"verl": verl.__version__, "torch": torch.__version__},
        "advantages": {name: advantages(case) for name, case in cases["advantages"].items()},
        "gradients": {name: gradient(case) for name, case in cases["gradients"].items()},
    }
    Path(sys.argv[2]).write_text(json.dumps(results))


if __name__ == "__main__":
    main()
