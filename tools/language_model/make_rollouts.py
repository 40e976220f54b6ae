"""Make grpo_theory/data/rollouts.npz and examples/rollouts.jsonl: sampled answers of SmolLM2-135M-Instruct, rewards, scores.

The model is asked 129 questions of three kinds, each after four solved examples of its own. It answers each 32 times at
temperature 1, until it ends the line. An answer that is right to the letter has reward 1, any other 0. Of each answer its reward,
tokens and log-probability are kept. So is a sketch of the gradient of the log-probability with respect to all 134,515,008
parameters. The gradient with respect to the output head alone is kept in coordinates that keep inner products, exactly but for
rounding.

The kinds were chosen by their rate of success in a pilot with other questions (8 of each kind, 12 answers to each). The rates
were to be between .2 and .8, and were .47, .28 and .55. Too hard were sums of two digits (.08), successors (.18), doubles (.01),
and sorting and reversing three numbers (.04, .09). As for max(a, b) and min(a, b) (.49, .45), they are near copies of the third
kind.

    python tools/language_model/make_rollouts.py --work FOLDER [--part I N] [--prompts N] [--gather] [--out FILE]

Each prompt's work, a minute of one core at most, is kept in FOLDER, from which an interrupted run goes on. With --gather both
files are written of the prompts that are finished.
"""

import json

import numpy as np
from question_sets import FOLDER
from sampled_answers import Setting, draw_lines, run

KINDS = ("small sum", "sum", "larger")
PER_KIND, SHOTS = 43, 4
SETTING = Setting(20261123, rounds=1, count=32, most_tokens=6)
TOKENS_AT_ONCE = 512
EXAMPLE_PROMPTS = 66
"""The first of them make the example."""
SHORT = 64
"""The length of the sketches in the example: the first quarter of the first block, which by itself is such a sketch."""


def draw_question(kind, rng):
    """Draw one question of the kind, and its answer."""
    low, high = {"small sum": (0, 5), "sum": (10, 20), "larger": (10, 100)}[kind]
    a, b = (int(x) for x in rng.integers(low, high, 2))
    return (f"larger of {a} and {b}: ", str(max(a, b))) if kind == "larger" else (f"{a}+{b}=", str(a + b))


def draw_prompts():
    """Draw the prompts, one of each kind in turn: kind, text with the examples in front, right answer."""
    rng = np.random.default_rng(SETTING.seed)
    found = []
    for number in range(PER_KIND * len(KINDS)):
        kind, drawn = number % len(KINDS), {}
        while len(drawn) < SHOTS + 1:
            question, answer = draw_question(KINDS[kind], rng)
            drawn[question] = answer
        found.append((kind, *draw_lines(drawn.items())))
    return found


def head_products(model, states, answers):
    """Return the inner products (D, D) of the head's gradients sum_t (e_t - pi_t) h_t' of responses, in double precision.

    (e_s - pi_s) . (e_t - pi_t) times h_s . h_t, summed over the tokens s of the one and t of the other.
    """
    import torch

    owner = np.repeat(np.arange(len(answers)), [len(answer) for answer in answers])
    hidden, tokens = torch.tensor(states), torch.tensor([token for answer in answers for token in answer])
    with torch.no_grad():
        chances = model.lm_head(hidden).softmax(-1)
    found = np.zeros((len(answers), len(answers)))
    for start in range(0, len(owner), TOKENS_AT_ONCE):
        part = slice(start, start + TOKENS_AT_ONCE)
        same = (tokens[part, None] == tokens).float()
        logit_gradients = same - chances[:, tokens[part]].T - chances[part][:, tokens] + chances[part] @ chances.T
        products = (logit_gradients * (hidden[part] @ hidden.T)).double().numpy()
        np.add.at(found, (owner[part, None], owner[None]), products)
    return (found + found.T) / 2.0


def coordinates(products, least=1e-6):
    """Return coordinates (D, r) with these inner products, but for directions that have less than such a share of all squares."""
    values, vectors = np.linalg.eigh(products)
    left = np.cumsum(np.maximum(values, 0.0)) / np.maximum(values, 0.0).sum()
    kept = left > least
    return (vectors[:, kept] * np.sqrt(values[kept]))[:, ::-1]


def finish(model, arrays, kept, out):
    """Add the head's gradients in coordinates, write the example, and return what else is to be said of the set."""
    del arrays["squared_norms"]
    arrays["lengths"] = arrays["lengths"].astype(np.int8)
    arrays["head"] = coordinates(head_products(model, kept["states"], kept["tokens"])).astype(np.float16)
    example = FOLDER.parents[1] / "examples" / "rollouts.jsonl" if out.parent == FOLDER else out.with_suffix(".jsonl")
    write_example(arrays, kept["sketches"], example)
    return {
        "chosen": "by the success rate in a pilot with other questions: .47, .28 and .55 (8 questions a kind, 12 answers each)",
        "prompt": f"{SHOTS} solved examples of the same kind, drawn anew for each prompt, then the question",
        "head": "coordinates with the inner products of the gradients with respect to the output head as if it were not tied",
    }


def write_example(arrays, sketches, path):
    """Write the rollouts as a user's log has them, one JSON object a line."""
    short = sketches[:, :SHORT] * np.sqrt(sketches.shape[1] / SHORT)
    texts, rows = (arrays[name][:EXAMPLE_PROMPTS].tolist() for name in ("prompts", "index"))
    with path.open("w", encoding="utf-8") as file:
        for prompt, (text, row) in enumerate(zip(texts, rows, strict=True)):
            for number, i in enumerate(row):
                line = {
                    "prompt_id": prompt,
                    "response_id": number,
                    "prompt": text,
                    "completion": arrays["texts"][i].item(),
                    "reward": float(arrays["rewards"][i]),
                    "length": int(arrays["lengths"][i]),
                    "sketch": [float(f"{x:.4g}") for x in short[i]],
                }
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    run("rollouts", __doc__, draw_prompts(), SETTING, KINDS, finish)
