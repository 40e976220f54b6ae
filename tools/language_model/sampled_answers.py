"""What make_rollouts.py and make_long_rollouts.py share: sampled answers, and the scores of different ones."""

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
from question_sets import FOLDER, describe_model, keep, load_model, sample, write_file

from grpo_theory.language_model.scores import CountSketch, log_likelihood, trained_parameters

END = "\n"
"""What ends an answer."""


class Setting(NamedTuple):
    """How answers are sampled.

    Attributes
    ----------
    seed : int
        Of the sketches; a round of a prompt has this, plus the prompt's number and 1000 times the round's.
    rounds, count : int
        Answers are drawn so many at once.
    most_tokens : int
        An answer that has not ended by then stays as it is.
    temperature : float
    half : bool
        Whether bfloat16 arithmetic is used with float32 weights (torch.autocast), for answers and for gradients.
    """

    seed: int
    rounds: int
    count: int
    most_tokens: int
    temperature: float = 1.0
    half: bool = False

    @property
    def sketch(self):
        """The settings of the sketches."""
        return {"width": 1024, "blocks": 4, "seed": self.seed}


def draw_lines(pairs):
    """Return examples, one a line, with the last pair's question behind them, and its answer."""
    *examples, (question, answer) = pairs
    return "".join(f"{q}{a}{END}" for q, a in examples) + question, answer


def work_out(model, prompt, end, number, setting):
    """Return what is kept of a prompt: the number of each answer among the different ones, and what belongs to these."""
    import torch

    projection, index, gaps, found = CountSketch(**setting.sketch), [], [], {}
    for turn in range(setting.rounds):
        seed = setting.seed + number + 1000 * turn
        with torch.autocast("cpu", torch.bfloat16, enabled=setting.half):
            drawn = sample(model, prompt, end, seed, setting.count, setting.most_tokens, setting.temperature)
        for answer, likelihood, states in zip(*drawn, strict=True):
            if answer not in found:
                with torch.autocast("cpu", torch.bfloat16, enabled=setting.half):
                    whole = log_likelihood(model, prompt, answer, setting.temperature)
                gradients = torch.autograd.grad(whole, trained_parameters(model, None))
                power = sum(float(gradient.double().square().sum()) for gradient in gradients)
                sketch = projection(gradient.numpy() for gradient in gradients)
                found[answer] = (len(found), whole.item(), power, sketch, states)
            index.append(found[answer][0])
            gaps.append(likelihood - found[answer][1])
    _, likelihoods, powers, sketches, states = zip(*found.values(), strict=True)
    return {
        "index": np.array(index),
        "gaps": np.array(gaps),
        "lengths": np.array([len(answer) for answer in found]),
        "tokens": np.concatenate(list(found)),
        "likelihoods": np.array(likelihoods),
        "squared_norms": np.array(powers),
        "sketches": np.stack(sketches),
        "states": np.concatenate(states),
    }


def gather(tokenizer, asked, folder):
    """Return the arrays of finished prompts, with one row a different answer, and what else was kept of these."""
    paths = {number: folder / f"{number}.npz" for number in range(len(asked)) if (folder / f"{number}.npz").exists()}
    parts, chosen = [dict(np.load(path)) for path in paths.values()], [asked[number] for number in paths]
    kept = {name: np.concatenate([part[name] for part in parts]) for name in parts[0] if name != "index"}
    counts = [len(part["lengths"]) for part in parts]
    firsts = np.cumsum([0, *counts[:-1]])
    kept["tokens"] = [tokens.tolist() for tokens in np.split(kept["tokens"], np.cumsum(kept["lengths"])[:-1])]
    texts = np.array([tokenizer.decode(answer) for answer in kept["tokens"]])
    return {
        "prompts": np.array([text for _, text, _ in chosen]),
        "kinds": np.array([kind for kind, _, _ in chosen], dtype=np.int8),
        "answers": np.array([answer for _, _, answer in chosen]),
        "index": np.stack([first + part["index"] for first, part in zip(firsts, parts, strict=True)]).astype(np.int16),
        "texts": texts,
        "rewards": (texts == np.repeat([answer + END for _, _, answer in chosen], counts)).astype(np.float32),
        "lengths": kept["lengths"].astype(np.int16),
        "likelihoods": kept["likelihoods"].astype(np.float32),
        "squared_norms": kept["squared_norms"].astype(np.float32),
        "sketches": kept["sketches"].astype(np.float16),
    }, kept


def describe(setting, kinds, arrays, kept):
    """Return what is particular to a set of sampled answers."""
    right = arrays["rewards"][arrays["index"]].mean(axis=1)
    return {
        "seed": setting.seed,
        "kinds": list(kinds),
        "success": {name: round(float(right[arrays["kinds"] == kind].mean()), 3) for kind, name in enumerate(kinds)},
        "sampling": f"temperature {setting.temperature:g}, the whole vocabulary, until the newline, "
        f"at most {setting.most_tokens} tokens",
        "log_probability_gap": f"token by token against at once, root mean square: {np.sqrt((kept['gaps'] ** 2).mean()):.2g}",
        "reward": "1 if the answer is right to the letter and ends with the newline, else 0",
        "parameters": 134515008,
        "sketch": setting.sketch,
    }


def run(name, description, asked, setting, kinds, finish):
    """Run the command line of the script that makes the set of that name; `finish` adds to arrays and provenance."""
    import torch

    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="the folder in which finished prompts are kept")
    parser.add_argument("--part", type=int, nargs=2, default=(0, 1), metavar=("I", "N"), help="only prompts I, I + N, ...")
    parser.add_argument("--prompts", type=int, help="only the first N prompts (a trial)")
    parser.add_argument("--gather", action="store_true", help="write the file of what is finished, and do no work")
    parser.add_argument("--out", type=Path, default=FOLDER / f"{name}.npz")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # threads wait for one another wherever the machine is shared
    (tokenizer, model), asked = load_model(), asked[: given.prompts]
    if given.gather:
        arrays, kept = gather(tokenizer, asked, given.work)
        own = finish(model, arrays, kept, given.out)
        if not all(np.isfinite(array).all() for array in arrays.values() if array.dtype == np.float16):
            raise RuntimeError("sketches do not fit in half precision")
        made_by = {"made_by": f"tools/language_model/make_{name}.py"}
        write_file(arrays, describe_model() | made_by | describe(setting, kinds, arrays, kept) | own, given.out)
        return
    (end,) = tokenizer(END, add_special_tokens=False).input_ids
    for number in range(given.part[0], len(asked), given.part[1]):
        if not (given.work / f"{number}.npz").exists():
            prompt = tuple(tokenizer(asked[number][1], add_special_tokens=False).input_ids)
            found = work_out(model, prompt, end, number, setting)
            keep(given.work / f"{number}.npz", found)
            print(f"prompt {number}: {len(found['lengths'])} different answers", flush=True)
