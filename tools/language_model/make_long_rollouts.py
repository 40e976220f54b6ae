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

    python tools/language_model/make_long_rollouts.py --work FOLDER [--rounds N] [--prompts N] [--part I N] [--gather]

The work goes by rounds of 16 responses, each through all prompts in turn. Finished rounds are kept in FOLDER, from which an
interrupted run goes on. With --gather the file is written of the prompts that have all these rounds.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from question_sets import FOLDER, describe_model, keep, load_model, sample, write_file

from grpo_theory.language_model.projection import CountSketch
from grpo_theory.language_model.scores import log_likelihood, trained_parameters

KINDS = {"up": (1, 30, 99), "down": (-1, 20, 70), "by twos": (2, 50, 99)}
"""The step, and the range from which the last number is drawn."""
SHORTEST, LONGEST, SHOTS = 17, 22, 2
"""Numbers to write out; the examples and the question have different ones."""
PROMPTS, ROUND, MOST_TOKENS, TEMPERATURE = 64, 16, 128, 0.6
START, END = "<|im_start|>", "\n"
SEED = 20261125
SKETCH = {"width": 1024, "blocks": 4, "seed": SEED}


def draw_prompts():
    """Draw the prompts, one of each kind in turn: kind, text with the examples in front, right answer."""
    rng = np.random.default_rng(SEED)
    found = []
    for number in range(PROMPTS):
        kind = number % len(KINDS)
        step, low, high = list(KINDS.values())[kind]
        last, lines = int(rng.integers(low, high)), []
        for size in rng.permutation(np.arange(SHORTEST, LONGEST + 1))[: SHOTS + 1].tolist():
            first = last - step * (size - 1)
            numbers = ", ".join(str(first + step * i) for i in range(size))
            lines.append((f"From {first} to {last}: ", f"{numbers}. Done"))
        *examples, (question, answer) = lines
        found.append((kind, START + "".join(f"{q}{a}{END}" for q, a in examples) + question, answer))
    return found


def score(model, projection, prompt, answer):
    """Return an answer's log-probability, the squared length of its gradient, and the gradient's sketch."""
    import torch

    with torch.autocast("cpu", torch.bfloat16):
        likelihood = log_likelihood(model, prompt, answer, TEMPERATURE)
    gradients = torch.autograd.grad(likelihood, trained_parameters(model, None))
    power = sum(float(gradient.double().square().sum()) for gradient in gradients)
    return likelihood.item(), power, projection(gradient.numpy() for gradient in gradients)


def read_round(folder, number, turn):
    """Return what was kept of a round of a prompt, or None."""
    path = folder / f"{turn}-{number}.npz"
    if not path.exists():
        return None
    with np.load(path) as file:
        return dict(file)


def kept_answers(folder, number, rounds):
    """Return the different answers of a prompt's first rounds, what belongs to each, and the index (rounds x 16,) among them."""
    found, index = {}, []
    for turn in range(rounds):
        kept = read_round(folder, number, turn)
        tokens = np.split(kept["tokens"], np.cumsum(kept["lengths"])[:-1])
        own = [tuple(answer.tolist()) for answer in tokens]
        rows = zip(kept["likelihoods"], kept["powers"], kept["sketches"], strict=True)
        for answer, row in zip(own, rows, strict=True):
            found.setdefault(answer, row)
        order = {answer: place for place, answer in enumerate(found)}
        index += [order[own[place]] for place in kept["index"]]
    return found, index


def work_out(model, prompt, end, seed, known):
    """Return what is kept of a round of a prompt, given what is known of answers that came in earlier ones."""
    import torch

    projection, found = CountSketch(**SKETCH), {}
    with torch.autocast("cpu", torch.bfloat16):
        answers, likelihoods, _ = sample(model, prompt, end, seed, ROUND, MOST_TOKENS, TEMPERATURE)
    for answer in dict.fromkeys(answers):
        found[answer] = known[answer] if answer in known else score(model, projection, prompt, answer)
    order = {answer: place for place, answer in enumerate(found)}
    gaps = [likelihoods[i] - found[answer][0] for i, answer in enumerate(answers)]
    return {
        "index": np.array([order[answer] for answer in answers]),
        "lengths": np.array([len(answer) for answer in found]),
        "tokens": np.concatenate(list(found)),
        "likelihoods": np.array([row[0] for row in found.values()]),
        "powers": np.array([row[1] for row in found.values()]),
        "sketches": np.stack([row[2] for row in found.values()]),
        "gaps": np.array(gaps),
    }


def work_on(model, tokenizer, asked, rounds, folder, part):
    """Work out what is not in the folder, round by round, each prompt's in one go; of every N-th prompt from the I-th on."""
    (end,) = tokenizer(END, add_special_tokens=False).input_ids
    for turn in range(rounds):
        for number in range(part[0], len(asked), part[1]):
            if read_round(folder, number, turn) is not None:
                continue
            text = asked[number][1]
            begun, used = time.perf_counter(), time.process_time()
            prompt = tuple(tokenizer(text, add_special_tokens=False).input_ids)
            known = kept_answers(folder, number, turn)[0] if turn else {}
            found = work_out(model, prompt, end, SEED + number + 1000 * turn, known)
            path = folder / f"{turn}-{number}.npz"
            keep(path, found)
            clocks = f"{time.perf_counter() - begun:.0f} s, {time.process_time() - used:.0f} s of processor"
            print(f"round {turn}, prompt {number}: {len(found['lengths'])} different answers in {clocks}", flush=True)


def gather(tokenizer, asked, rounds, folder):
    """Return the arrays of the data set, with one row a different answer, of the prompts that have all rounds."""
    chosen = [n for n in range(len(asked)) if all(read_round(folder, n, turn) is not None for turn in range(rounds))]
    indices, texts, rows, rewards, first, gaps = [], [], [], [], 0, []
    for number in chosen:
        found, index = kept_answers(folder, number, rounds)
        indices.append(first + np.array(index))
        first += len(found)
        texts += [tokenizer.decode(answer) for answer in found]
        rewards += [tokenizer.decode(answer) == asked[number][2] + END for answer in found]
        rows += [(len(answer), *row) for answer, row in found.items()]
        gaps += [read_round(folder, number, turn)["gaps"] for turn in range(rounds)]
    lengths, likelihoods, powers, sketches = zip(*rows, strict=True)
    arrays = {
        "prompts": np.array([asked[number][1] for number in chosen]),
        "kinds": np.array([asked[number][0] for number in chosen], dtype=np.int8),
        "answers": np.array([asked[number][2] for number in chosen]),
        "index": np.stack(indices).astype(np.int16),
        "texts": np.array(texts),
        "rewards": np.array(rewards, dtype=np.float32),
        "lengths": np.array(lengths, dtype=np.int16),
        "likelihoods": np.array(likelihoods, dtype=np.float32),
        "squared_norms": np.array(powers, dtype=np.float32),
        "sketches": np.array(sketches).astype(np.float16),
    }
    if not np.isfinite(arrays["sketches"]).all():
        raise RuntimeError("sketches do not fit in half precision")
    return arrays, np.concatenate(gaps)


def describe(arrays, gaps):
    """Return what is particular to this set."""
    right = arrays["rewards"][arrays["index"]].mean(axis=1)
    return {
        "made_by": "tools/language_model/make_long_rollouts.py",
        "seed": SEED,
        "kinds": list(KINDS),
        "chosen": "by the probability of the right answer in a pilot with other prompts: .59, .28 and .36 (5 prompts a kind)",
        "success": {name: round(float(right[arrays["kinds"] == kind].mean()), 3) for kind, name in enumerate(KINDS)},
        "prompt": f"the start token, {SHOTS} solved examples with the same last number, then the question",
        "sampling": f"temperature {TEMPERATURE:g}, the whole vocabulary, until the newline, at most {MOST_TOKENS} tokens",
        "arithmetic": "bfloat16 by torch.autocast with float32 weights, for answers and gradients",
        "log_probability_gap": "token by token against at once, root mean square: " + f"{np.sqrt((gaps**2).mean()):.2f}",
        "reward": "1 if the answer is right to the letter and ends with the newline, else 0",
        "parameters": 134515008,
        "sketch": SKETCH,
    }


def main():
    """Work, or write the file."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="the folder in which finished rounds are kept")
    parser.add_argument("--rounds", type=int, default=2, help=f"of {ROUND} responses a prompt")
    parser.add_argument("--prompts", type=int, help="only the first N prompts")
    parser.add_argument("--part", type=int, nargs=2, default=(0, 1), metavar=("I", "N"), help="only prompts I, I + N, ...")
    parser.add_argument("--gather", action="store_true", help="write the file of what is finished, and do no work")
    parser.add_argument("--out", type=Path, default=FOLDER / "long_rollouts.npz")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # threads wait for one another wherever the machine is shared
    tokenizer, model = load_model()
    asked = draw_prompts()[: arguments.prompts]
    if arguments.gather:
        arrays, gaps = gather(tokenizer, asked, arguments.rounds, arguments.work)
        print(f"{len(arrays['prompts'])} prompts, mean reward {arrays['rewards'][arrays['index']].mean():.3f}")
        write_file(arrays, describe_model() | describe(arrays, gaps), arguments.out)
    else:
        work_on(model, tokenizer, asked, arguments.rounds, arguments.work, arguments.part)


if __name__ == "__main__":
    main()
