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

    python tools/language_model/make_rollouts.py --work FOLDER [--part I N] [--prompts N] [--out FILE]

Each prompt's work, a minute of one core at most, is kept in FOLDER, from which an interrupted run goes on.  `--part I N` does no
more than every N-th prompt from the I-th on; the run without it does what is left and writes both files.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from question_sets import FOLDER, describe_model, keep, load_model, sample, write_file

from grpo_theory.language_model import sketch
from grpo_theory.language_model.scores import log_likelihood

KINDS = ("small sum", "sum", "larger")
PER_KIND, RESPONSES, SHOTS = 43, 32, 4
MOST_TOKENS = 6
"""An answer that has not ended by then stays as it is."""
END = "\n"
SEED = 20261123
SKETCH = {"width": 1024, "blocks": 4, "seed": SEED}
TOKENS_AT_ONCE = 512
EXAMPLE = FOLDER.parents[1] / "examples" / "rollouts.jsonl"
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
    rng = np.random.default_rng(SEED)
    found = []
    for number in range(PER_KIND * len(KINDS)):
        kind, drawn = number % len(KINDS), {}
        while len(drawn) < SHOTS + 1:
            question, answer = draw_question(KINDS[kind], rng)
            drawn[question] = answer
        *examples, (question, answer) = drawn.items()
        found.append((kind, "".join(f"{q}{a}{END}" for q, a in examples) + question, answer))
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
        covectors = same - chances[:, tokens[part]].T - chances[part][:, tokens] + chances[part] @ chances.T
        products = (covectors * (hidden[part] @ hidden.T)).double().numpy()
        np.add.at(found, (owner[part, None], owner[None]), products)
    return (found + found.T) / 2.0


def coordinates(products, least=1e-6):
    """Return coordinates (D, r) with these inner products, but for directions that have less than such a share of all squares."""
    values, vectors = np.linalg.eigh(products)
    left = np.cumsum(np.maximum(values, 0.0)) / np.maximum(values, 0.0).sum()
    kept = left > least
    return (vectors[:, kept] * np.sqrt(values[kept]))[:, ::-1]


def work_out(model, prompt, end, seed):
    """Return what is kept of a prompt: the number of each response among the different answers, and what belongs to those."""
    distinct, index = {}, []
    for answer, likelihood, state in zip(*sample(model, prompt, end, seed, RESPONSES, MOST_TOKENS), strict=True):
        place, _, _ = distinct.setdefault(answer, (len(distinct), likelihood, state))
        index.append(place)
    answers, kept = list(distinct), list(distinct.values())
    whole = log_likelihood(model, prompt, answers[0], 1.0).item()
    if abs(whole - kept[0][1]) > 1e-2:
        raise RuntimeError(f"token by token the log-probability is {kept[0][1]}, at once it is {whole}")
    return {
        "index": np.array(index),
        "lengths": np.array([len(answer) for answer in answers]),
        "tokens": np.concatenate(answers),
        "likelihoods": np.array([likelihood for _, likelihood, _ in kept]),
        "states": np.concatenate([state for _, _, state in kept]),
        "sketches": sketch(model, [prompt] * len(answers), answers, progress=False, **SKETCH),
    }


def work_on(model, tokenizer, asked, numbers, folder):
    """Work out the prompts of these numbers that are not in the folder, each in one go."""
    (end,) = tokenizer(END, add_special_tokens=False).input_ids
    for number in numbers:
        path = folder / f"{number}.npz"
        if not path.exists():
            prompt = tuple(tokenizer(asked[number][1], add_special_tokens=False).input_ids)
            found = work_out(model, prompt, end, SEED + number)
            keep(path, found)
            print(f"prompt {number}: {len(found['lengths'])} different answers", flush=True)


def gather(model, tokenizer, asked, folder):
    """Return the arrays of the data set, with one row a different answer, and the sketches in double precision."""
    parts = []
    for number in range(len(asked)):
        with np.load(folder / f"{number}.npz") as file:
            parts.append(dict(file))
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0] if name != "index"}
    counts = [len(part["lengths"]) for part in parts]
    firsts = np.cumsum([0, *counts[:-1]])
    answers = [tokens.tolist() for tokens in np.split(joined["tokens"], np.cumsum(joined["lengths"])[:-1])]
    texts = [tokenizer.decode(answer) for answer in answers]
    right = np.repeat([answer + END for _, _, answer in asked], counts)
    head = coordinates(head_products(model, joined["states"], answers))
    arrays = {
        "prompts": np.array([text for _, text, _ in asked]),
        "kinds": np.array([kind for kind, _, _ in asked], dtype=np.int8),
        "answers": np.array([answer for _, _, answer in asked]),
        "index": np.stack([first + part["index"] for first, part in zip(firsts, parts, strict=True)]).astype(np.int16),
        "texts": np.array(texts),
        "rewards": (np.array(texts) == right).astype(np.float32),
        "lengths": joined["lengths"].astype(np.int8),
        "likelihoods": joined["likelihoods"].astype(np.float32),
        "sketches": joined["sketches"].astype(np.float16),
        "head": head.astype(np.float16),
    }
    for name in ("sketches", "head"):
        if not np.isfinite(arrays[name]).all():
            raise RuntimeError(f"{name} do not fit in half precision")
    return arrays, joined["sketches"]


def parse():
    """Return the command line's arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="the folder in which finished prompts are kept")
    parser.add_argument("--part", type=int, nargs=2, metavar=("I", "N"), help="only prompts I, I + N, ..., and no files written")
    parser.add_argument("--prompts", type=int, help="only the first N prompts (a trial)")
    parser.add_argument("--out", type=Path, default=FOLDER / "rollouts.npz")
    parser.add_argument("--example", type=Path, default=EXAMPLE)
    return parser.parse_args()


def main():
    """Work, and write both files."""
    import torch

    arguments = parse()
    arguments.work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # threads wait for one another wherever the machine is shared
    tokenizer, model = load_model()
    asked = draw_prompts()[: arguments.prompts]
    first, step = arguments.part or (0, 1)
    work_on(model, tokenizer, asked, range(first, len(asked), step), arguments.work)
    if arguments.part is None:
        arrays, sketches = gather(model, tokenizer, asked, arguments.work)
        print(f"mean reward {arrays['rewards'][arrays['index']].mean():.3f}")
        write_file(arrays, describe_model() | describe(model, arrays), arguments.out)
        write_example(arrays, sketches, arguments.example)


def describe(model, arrays):
    """Return what is particular to this set."""
    right = arrays["rewards"][arrays["index"]].mean(axis=1)
    return {
        "made_by": "tools/language_model/make_rollouts.py",
        "seed": SEED,
        "kinds": list(KINDS),
        "chosen": "by the success rate in a pilot with other questions: .47, .28 and .55 (8 questions a kind, 12 answers each)",
        "success": {name: round(float(right[arrays["kinds"] == kind].mean()), 3) for kind, name in enumerate(KINDS)},
        "prompt": f"{SHOTS} solved examples of the same kind, drawn anew for each prompt, then the question",
        "sampling": f"temperature 1, the whole vocabulary, until the newline, at most {MOST_TOKENS} tokens",
        "reward": "1 if the answer is right to the letter and ends with the newline, else 0",
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "sketch": SKETCH,
        "head": "coordinates with the inner products of the gradients with respect to the output head as if it were not tied",
    }


def write_example(arrays, sketches, path):
    """Write the rollouts as a user's log has them, one JSON object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
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
    main()
