"""Tables of rollouts as users log them, made from a problem whose truth is known, and readings of them."""

import gzip
import json

import numpy as np
import pyarrow as pa
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


def write(path, found):
    """Write rows as JSON lines, packed if the name says so; returns the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{json.dumps(row)}\n" for row in found).encode()
    if path.suffix == ".gz":
        text = gzip.compress(text, mtime=0)
    if path.suffix == ".zst":
        text = pa.compress(text, codec="zstd", asbytes=True)
    path.write_bytes(text)
    return path


def said(printed):
    """Return a text with its lines joined."""
    return " ".join(printed.split())
