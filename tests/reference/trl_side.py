"""Runs in an environment with TRL: its advantages and loss gradients for the cases of a JSON file, as JSON.

Usage: python trl_side.py CASES RESULTS
"""

import contextlib
import json
import os
import sys
import tempfile
import warnings
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
warnings.simplefilter("ignore")

import datasets
import torch
import transformers
import trl
from tokenizers import Tokenizer, models, pre_tokenizers
from tree_model import TreeModel, padded

TRAINERS = {"grpo": (trl.GRPOTrainer, trl.GRPOConfig), "rloo": (trl.RLOOTrainer, trl.RLOOConfig)}
WORDS = {"<pad>": 0, "<eos>": 1, "a": 2, "b": 3}


def make_trainer(kind, settings, reward, n_groups, group_size, folder, prompts=None):
    """Return a trainer of a random one-layer GPT-2."""
    words = Tokenizer(models.WordLevel(WORDS, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<pad>"
    )
    tokenizer.chat_template = "{% for message in messages %}{{ message.content + ' ' }}{% endfor %}"
    shape = {"n_positions": 16, "n_embd": 8, "n_layer": 1, "n_head": 1}
    ends = {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=len(WORDS), **shape, **ends))
    trainer, config = TRAINERS[kind]
    usual = {
        "per_device_train_batch_size": n_groups * group_size,
        "num_generations": group_size,
        "max_steps": 1,
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "save_strategy": "no",
        "logging_strategy": "no",
        "disable_tqdm": True,
        "beta": 0.0,
        "max_completion_length": 4,
    }
    data = datasets.Dataset.from_dict({"prompt": prompts or ["a b"] * n_groups})
    arguments = config(output_dir=folder, **usual | settings)
    return trainer(model=model, reward_funcs=reward, args=arguments, train_dataset=data, processing_class=tokenizer)


def advantages(case, folder):
    """Train one step with given rewards (B, G), and return the advantages that the trainer logged."""
    rewards = case["rewards"]

    def reward(completions, **_):
        return [z for row in rewards for z in row]

    trainer = make_trainer(case["trainer"], case["settings"], reward, len(rewards), len(rewards[0]), folder)
    trainer.train()
    return torch.tensor(list(trainer._logs["advantages"])).reshape(len(rewards), -1).tolist()


def gradient(case, folder):
    """Return minus the gradient of the trainer's own loss in the logits of a tree."""
    trainer = make_trainer(case["trainer"], case["settings"], lambda completions, **_: [0.0] * len(completions), 1, 2, folder)
    trainer.model.eval()
    trainer.beta = case["strength"]  # not in the configuration, because it would have the trainer load a reference model
    model, old, reference = (TreeModel(case[name], case["prefixes"]) for name in ("logits", "old", "reference"))
    prompts = case["prompts"]
    rows, mask = padded(case["responses"])
    with torch.no_grad():
        then, known = (one.log_probabilities(prompts, rows) for one in (old, reference))
    inputs = {
        "prompt_ids": torch.tensor([[model.vocabulary_size + m] for m in prompts]),
        "prompt_mask": torch.ones(len(prompts), 1, dtype=torch.long),
        "completion_ids": torch.tensor(rows),
        "completion_mask": mask,
        "advantages": torch.tensor(case["advantages"], dtype=torch.float64),
        "old_per_token_logps": then,
        "old_logps": (then * mask).sum(1),
        "ref_per_token_logps": known,
        "num_items_in_batch": mask.sum(),
    }
    trainer._compute_loss(model, inputs).backward()
    return (-model.logits.grad).tolist()


def main():
    """Read the cases and write the results."""
    cases = json.loads(Path(sys.argv[1]).read_text())
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        results = {
            "versions": {"trl": trl.__version__, "torch": torch.__version__, "transformers": transformers.__version__},
            "advantages": {name: advantages(case, folder) for name, case in cases["advantages"].items()},
            "gradients": {name: gradient(case, folder) for name, case in cases["gradients"].items()},
        }
    Path(sys.argv[2]).write_text(json.dumps(results))


if __name__ == "__main__":
    main()
