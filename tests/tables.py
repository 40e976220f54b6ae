"""Tables of rollouts as users log them, made from a problem whose truth is known, and readings of them."""

import gzip
import json

import numpy as np
import pyarrow as pa
from pilots import draw, gentle_case

import grpo_theory as gt


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
    """Write rows as JSON lines, packed if the name says so; returns the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{json.dumps(row)}\n" for row in found).encode()
    if path.suffix == ".gz":
        text = gzip.compress(text, mtime=0)
    if path.suffix == ".zst":
        text = pa.compress(text, codec="zstd", asbytes=True)
    path.write_bytes(text)
    return path


def same_counts(one, other):
    """Return whether two counts of rewards are the same."""
    return np.array_equal(one.values, other.values) and np.array_equal(one.counts.toarray(), other.counts.toarray())


def read(path, **options):
    """Read a log in both ways, which must agree, and return it."""
    log = gt.read_rollouts(path, **options)
    counts, found = gt.read_reward_counts(path, **{k: v for k, v in options.items() if k not in ("length", "scores")})
    assert same_counts(counts, log.rollouts.counts)
    assert (found.groups, found.kept, found.steps) == (log.findings.groups, log.findings.kept, log.findings.steps)
    return log


def said(printed):
    """Return a text with its lines joined."""
    return " ".join(printed.split())
