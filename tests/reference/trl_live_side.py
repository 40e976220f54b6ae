"""Runs in an environment with TRL: trains with the callback of gt.live, and says what it logged and what it cost.

Usage: python trl_live_side.py FOLDER, with the package on the path
"""

import contextlib
import json
import logging
import sys
import time
from itertools import product
from pathlib import Path

import torch
import transformers
from trl_side import make_trainer

import grpo_theory as gt
from grpo_theory.live import trainer_callback

TEXTS = [" ".join(one) for size in range(1, 6) for one in product("ab", repeat=size)][:48]
"""More than the fewest prompts with which a group size is named."""
GROUPS, SIZE, STEPS = 8, 4, 200
PAIRS = 3
SETTINGS = {"logging_strategy": "steps", "logging_steps": 5, "max_steps": STEPS, "seed": 5}


class Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


class Timer(transformers.TrainerCallback):
    """Takes the processor's time from the first step to the end: what happens before is the start."""

    def on_step_begin(self, args, state, control, **_):
        if state.global_step == 0:
            self.began = time.process_time()

    def on_train_end(self, args, state, control, **_):
        self.seconds = time.process_time() - self.began


def letters(completions, **_):
    """Reward a second letter b."""
    return [float(one.split()[1:2] == ["b"]) for one in completions]


def check_rows(trainer, callback):
    """Return a list: for each batch of sketched rows, whether their texts, and those of the rows after them, have the rewards."""
    agree, sketch, rewards_of = [], callback._sketch, trainer_callback.trainer_batch

    def checked(output, rows):
        texts = trainer.processing_class.batch_decode(output["completion_ids"][rows], skip_special_tokens=True)
        rewards = rewards_of(trainer, GROUPS * SIZE)[0][rows].tolist()
        agree.append([letters(texts) == rewards, letters(texts[1:] + texts[:1]) == rewards])
        return sketch(output, rows)

    callback._sketch = checked
    return agree


def train(folder, settings=None, kind="grpo", **options):
    """Train a tiny model, with the callback if there are options for it; return what can be said of the run."""
    transformers.set_seed(5)
    log, said = logging.getLogger("grpo_theory.live"), Lines()
    log.addHandler(said)
    with contextlib.redirect_stdout(sys.stderr):
        trainer = make_trainer(kind, SETTINGS | (settings or {}), letters, GROUPS, SIZE, str(folder), TEXTS)
        callback = gt.live.TRLCallback(trainer, **options) if options else None
        if callback is not None:
            # The processor's time, which other processes of the machine do not add to.
            callback.monitor._clock = time.process_time
            trainer.add_callback(callback)
            agree = check_rows(trainer, callback)
        timer = Timer()
        trainer.add_callback(timer)
        trainer.train()
    log.removeHandler(said)
    found = {
        "processor": timer.seconds,
        "steps": trainer.state.global_step,
        "lines": said.lines,
        "history": trainer.state.log_history,
        "weights": float(sum(one.detach().double().abs().sum() for one in trainer.model.parameters())),
    }
    if callback is not None:
        found |= {
            "estimator": callback.monitor.estimator.name,
            "overhead": callback.monitor.overhead,
            "spent": callback.monitor.spent,
            "errors": callback.monitor.errors,
            "rows agree": agree,
        }
    return found


def broken(*_, **__):
    """Stand for a sketch that fails."""
    raise RuntimeError("no gradient today")


def main():
    """Run every case, and write what was found."""
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    found = {"rewards alone": train(folder, every=20)}
    pairs = [(train(folder), train(folder, every=20, sketches=True)) for _ in range(PAIRS)]
    found["none"], found["sketches"] = pairs[-1]
    found["processor"] = [[one["processor"] for one in pair] for pair in pairs]
    found["overheads"] = [pair[1]["overhead"] for pair in pairs]
    found["rloo"] = train(folder, {"max_steps": 60}, "rloo", every=5, sketches=True, overhead=None)
    found["batch"] = train(folder, {"max_steps": 4, "scale_rewards": "batch"}, every=2, sketches=True)
    read, trainer_callback.trainer_batch = trainer_callback.trainer_batch, broken
    found["broken"] = train(folder, {"max_steps": 20}, every=2, sketches=True)
    trainer_callback.trainer_batch = read
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
