"""Tables of rollouts as users log them, made from a problem whose truth is known."""

import json

import numpy as np
from pilots import draw, gentle_case


def rows(prompts=48, responses=8, seed=14):
    """Return rows of a log with sketches, one a response."""
    drawn, _ = draw(gentle_case(), 1, prompts, responses, np.random.default_rng(seed))
    return [
        {
            "prompt_id": f"p{b}",
            "completion": f"answer {g}",
            "reward": float(drawn.rewards[0, b, g]),
            "length": 3 + g,
            "sketch": drawn.scores[0, b, g].round(6).tolist(),
        }
        for b in range(prompts)
        for g in range(responses)
    ]


def answer(printed):
    """Return what the command prints without its first section, which says what was taken for what."""
    assert printed.startswith("READ AS")
    return printed.partition("\n\n")[2]


def write(path, found):
    """Write rows as JSON lines; returns the path."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in found), encoding="utf-8")
    return path
