"""Runs in an environment with TRL: trains with its log of completions, and says what its reward functions returned.

Usage: python trl_log_side.py FOLDER
"""

import contextlib
import json
import sys
from pathlib import Path

import transformers
from trl_side import make_trainer

TEXTS = ["a", "b", "a b", "b a", "a a", "b b"]
GROUPS, SIZE, STEPS = 3, 4, 4


def conversation(text):
    """Return a prompt as the messages of a conversation."""
    return [{"role": "system", "content": "b"}, {"role": "user", "content": text}]


def text_of(message):
    """Return a completion's text."""
    return message if isinstance(message, str) else message[0]["content"]


def letters(completions, **_):
    """Reward a second letter b."""
    return [float(text_of(one).split()[1:2] == ["b"]) for one in completions]


def brevity(completions, **_):
    """Reward short completions; none for those with an a in front, as where a function does not apply."""
    return [None if text_of(one).startswith("a") else 1.0 / (1 + len(text_of(one))) for one in completions]


CASES = {
    "plain": (letters, TEXTS, {}),
    "conversation": (letters, [conversation(text) for text in TEXTS], {}),
    "two rewards": ([letters, brevity], TEXTS, {"reward_weights": [1.0, 0.5]}),
    "two updates": (letters, TEXTS, {"num_iterations": 2}),
}


def main():
    """Run every case, each in its folder, and write what the trainer made of the last batch's rewards."""
    found = {}
    for name, (reward, prompts, settings) in CASES.items():
        transformers.set_seed(5)
        folder = Path(sys.argv[1]) / name
        logged = {"log_completions": True, "logging_strategy": "steps", "logging_steps": 1, "max_steps": STEPS, "seed": 5}
        with contextlib.redirect_stdout(sys.stderr):
            trainer = make_trainer("grpo", logged | settings, reward, GROUPS, SIZE, str(folder), prompts)
            trainer.train()
        history = [row for row in trainer.state.log_history if "reward" in row]
        found[name] = {"rewards": [row["reward"] for row in history], "uniform": [row["frac_reward_zero_std"] for row in history]}
    (Path(sys.argv[1]) / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
