"""Make grpo_theory/data/long_rollouts.npz: SmolLM2-135M-Instruct's answers of about 80 tokens, their rewards and their scores.

A prompt asks to count from one number to another, up by ones, down by ones or up by twos. Two solved examples that end at the
same number come before. The model writes out 17 to 22 numbers, step by step, and "Done". An answer that is right to the letter
has reward 1, any other 0. Of each answer its reward, tokens and log-probability are kept. So are a sketch of the gradient of the
log-probability with respect to all 134,515,008 parameters, and the exact squared length of this gradient.

The policy is the model at temperature 0.6 in bfloat16 arithmetic with float32 weights (torch.autocast), as trainers run it.
Answers and gradients are of the same policy. In a pilot three gradients differed from those in float32 by 3 to 6% of their
length.

The task was chosen in a pilot with 5 other prompts per kind, by the probability of the right answer: .59, .28 and .36. At
temperature 1 these are .18, .07 and .10. Other tasks were too hard, with less than .2 at every temperature from 0.4 to 1. They
were sums and running maxima of lists, copying and counting words or digits, spelling, months, days and letters, and twos
downwards. Counting was too hard with examples that end elsewhere or that are shorter than the answer.

    python tools/language_model/make_long_rollouts.py --work FOLDER [--part I N] [--prompts N] [--gather] [--out FILE]

Each prompt's work is kept in FOLDER, from which an interrupted run goes on. With --gather the file is written of the prompts that
are finished.
"""

import numpy as np
from sampled_answers import Setting, draw_lines, run

KINDS = {"up": (1, 30, 99), "down": (-1, 20, 70), "by twos": (2, 50, 99)}
"""The step, and the range from which the last number is drawn."""
SHORTEST, LONGEST, SHOTS, PROMPTS = 17, 22, 2, 64
"""Numbers to write out; the examples and the question have different ones."""
SETTING = Setting(20261125, rounds=2, count=16, most_tokens=128, temperature=0.6, half=True)


def draw_prompts():
    """Draw the prompts, one of each kind in turn: kind, text with the examples in front, right answer."""
    rng = np.random.default_rng(SETTING.seed)
    found = []
    for number in range(PROMPTS):
        kind = number % len(KINDS)
        step, low, high = list(KINDS.values())[kind]
        last, lines = int(rng.integers(low, high)), []
        for size in rng.permutation(np.arange(SHORTEST, LONGEST + 1))[: SHOTS + 1].tolist():
            first = last - step * (size - 1)
            numbers = ", ".join(str(first + step * i) for i in range(size))
            lines.append((f"From {first} to {last}: ", f"{numbers}. Done"))
        text, answer = draw_lines(lines)
        found.append((kind, f"<|im_start|>{text}", answer))
    return found


def finish(model, arrays, kept, out):
    """Return what else is to be said of the set."""
    return {
        "chosen": "by the probability of the right answer in a pilot with other prompts: .59, .28 and .36 (5 prompts a kind)",
        "prompt": f"the start token, {SHOTS} solved examples with the same last number, then the question",
        "arithmetic": "bfloat16 by torch.autocast with float32 weights, for answers and gradients",
    }


if __name__ == "__main__":
    run("long_rollouts", __doc__, draw_prompts(), SETTING, KINDS, finish)
