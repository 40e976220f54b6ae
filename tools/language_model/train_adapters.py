"""Make grpo_theory/data/trained_adapters.npz: SmolLM2-135M-Instruct trained on arithmetic with LoRA in all of its blocks.

The questions, prompts, rewards, updates and records are those of train_language_model.py. What is trained are 2,442,240 numbers:
adapters of rank 8 on the seven matrices of each of the 30 blocks. So all hidden states move. Many runs are made at once,
each with adapters of its own, so that a graphics processor is busy. Training uses TF32 products, and measuring scores does not.
Random numbers are keyed by the run, whatever else is in its batch. But a graphics processor rounds sums as it likes, so a run
made again differs in its last digits, and from there on.

Balanced coordinates scale the adapters of each kind of matrix: at the start, the prompts' gradients of success have mean squared
length 1 in them.

    python tools/language_model/train_adapters.py --work FOLDER --prepare

This writes what is needed of the model to FOLDER. The training itself needs only torch and NumPy:

    python tools/language_model/train_adapters.py --work FOLDER [--device cuda] [--seconds N]

It keeps what is finished in FOLDER, and goes on from there. The last command writes the records, of batches that are whole:

    python tools/language_model/train_adapters.py --work FOLDER --gather [--out FILE]
"""

import argparse
import gc
import time
from pathlib import Path

import numpy as np
import torch
from adapter_arms import LONGER, batches, is_measured, longer, pilot_arms, rates_of
from adapters import MATRICES, RANK, SCALE, Asked, Blocks, forward, fresh
from language_model_arms import LOOKS, MEASURED_LOOKS, RESPONSES
from make_arithmetic import CATEGORIES, PER_CATEGORY, draw_question, write_prompt
from make_arithmetic import SEED as QUESTIONS_SEED
from question_sets import FOLDER, describe_model, draw_questions, load_model, write_examples, write_file
from score_products import LOGITS, score_moments, success_covectors
from train_language_model import (
    ASCENT_LOOKS,
    ASCENTS,
    HELD_OUT,
    STRIDE,
    TRAINED,
    VERSION,
    describe_training,
    draw_answers,
    flat,
    gather,
    kept,
    no_signal,
    of_runs,
    slopes,
)

BETAS, TINY = (0.9, 0.999), 1e-8
TRIAL = 1e-3
"""The rate of the step that finds out how far a step moves the logits."""


def prepare(folder):
    """Write the model and the prompts, as train_language_model.py asks them, to the folder."""
    questions, examples = draw_questions(CATEGORIES, PER_CATEGORY, draw_question, QUESTIONS_SEED)
    tokenizer, model = load_model()
    digits = tokenizer.convert_tokens_to_ids([str(digit) for digit in range(LOGITS)])

    def numbers_of(text):
        return tokenizer(text, add_special_tokens=False).input_ids

    begun = [numbers_of(write_examples(examples[name])) for name in CATEGORIES]
    found, tokens = {}, set().union(*begun)
    for name, span in (("trained", range(TRAINED)), ("held_out", range(TRAINED, TRAINED + HELD_OUT))):
        numbers = [[PER_CATEGORY * c + r for r in span] for c in range(len(CATEGORIES))]
        rests = []
        for c, beginning in enumerate(begun):
            texts = [write_prompt("few-shot", questions[n][1], examples[CATEGORIES[c]], tokenizer) for n in numbers[c]]
            asked = [numbers_of(text) for text in texts]
            if any(each[: len(beginning)] != beginning for each in asked):
                raise RuntimeError("a question changes the tokens of the examples in front of it")
            rests.append([each[len(beginning) :] for each in asked])
        tokens = tokens.union(*(rest for some in rests for rest in some))
        answers = [[questions[n][2] for n in some] for some in numbers]
        found[name] = rests, torch.tensor(answers), torch.tensor(numbers)
    place = {token: row for row, token in enumerate(sorted(tokens))}
    prompts = {name: (vars(pack(begun, rests, place)), *rest) for name, (rests, *rest) in found.items()}
    torch.save((vars(read_blocks(model, sorted(tokens), digits)), prompts), folder / "model.pt")


def pack(begun, rests, place):
    """Return prompts of the tokens of beginnings and of what follows, as rows of the embedding kept."""
    longest, each = max(map(len, begun)), max(len(rest) for some in rests for rest in some)
    first, then = (
        torch.zeros(1, len(begun), longest, dtype=torch.long),
        torch.zeros(1, len(rests), len(rests[0]), each, dtype=torch.long),
    )
    for c, beginning in enumerate(begun):
        first[0, c, : len(beginning)] = torch.tensor([place[token] for token in beginning])
        for p, rest in enumerate(rests[c]):
            then[0, c, p, each - len(rest) :] = torch.tensor([place[token] for token in rest])
    lengths = torch.tensor([[len(beginning) for beginning in begun]])
    return Asked(first, lengths, then, torch.tensor([[[len(rest) for rest in some] for some in rests]]))


def read_blocks(model, tokens, digits):
    """Return what is needed of a model, with the embedding of these tokens and the head of the digits."""
    layers = model.model.layers
    at = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "out": "o_proj"}
    matrices = {name: torch.stack([getattr(layer.self_attn, where).weight for layer in layers]) for name, where in at.items()}
    matrices |= {name: torch.stack([getattr(layer.mlp, f"{name}_proj").weight for layer in layers]) for name in MATRICES[4:]}
    norms = {
        "norm": torch.stack([layer.input_layernorm.weight for layer in layers]),
        "second norm": torch.stack([layer.post_attention_layernorm.weight for layer in layers]),
    }
    head = model.get_output_embeddings().weight[digits]
    parts = (matrices, norms, model.model.norm.weight, model.get_input_embeddings().weight[tokens], head)
    return Blocks(*({k: v.detach() for k, v in p.items()} if isinstance(p, dict) else p.detach() for p in parts))


class Questions:
    """Prompts of a set with their answers, on a device.

    Attributes
    ----------
    asked : Asked
    answers, numbers : ndarray of int, shape (M,)
        Right digits, and rows of the arithmetic set.
    """

    def __init__(self, asked, answers, numbers, device):
        self.asked = Asked(**asked).on(device)
        self.answers, self.numbers = answers.flatten().numpy(), numbers.flatten().numpy()

    def logits(self, blocks, adapters):
        """Return the logits of all runs, (A, M, 10)."""
        return forward(blocks, adapters, self.asked)[0].flatten(1, 2)

    def success(self, blocks, adapters):
        """Return each prompt's success by run, (A, M)."""
        with torch.no_grad():
            probabilities = self.logits(blocks, adapters).double().softmax(-1).cpu().numpy()
        return probabilities[:, np.arange(len(self.answers)), self.answers]


def read_model(folder, device):
    """Return the blocks, and the training and the held-out questions."""
    path = folder / "model.pt"
    if not path.exists():
        raise SystemExit(f"{path} is not there: make it with --prepare where the model's package is installed")
    blocks, prompts = torch.load(path)
    return Blocks(**blocks).on(device), *(Questions(*prompts[name], device) for name in ("trained", "held_out"))


def recorded(blocks, adapters, prompts):
    """Return a function of the adapters' values that returns the logits of all runs, (A, M, 10).

    On a graphics processor its thousands of small operations, and those of its gradient, are recorded once and played back.
    Starting them one by one took three times as long as computing them.
    """

    def logits(*values):
        return prompts.logits(blocks, dict(zip(adapters, values, strict=True)))

    if not blocks.last.is_cuda:
        return logits
    gc.collect()  # what was recorded for the runs before holds most of the memory
    torch.cuda.empty_cache()
    return torch.cuda.make_graphed_callables(logits, tuple(adapters.values()))


class Adam:
    """Adam on adapters, upwards, each run with its own rate; as torch.optim.Adam, which has one rate for all."""

    def __init__(self, adapters, rates):
        device = next(iter(adapters.values())).device
        self.values, self.count = list(adapters.values()), 0
        self.rates = torch.tensor(rates, dtype=torch.float32, device=device)[:, None, None]
        self.means, self.squares = ([torch.zeros_like(value) for value in self.values] for _ in range(2))

    @torch.no_grad()
    def step(self, gradients):
        """Move all adapters."""
        self.count += 1
        first, second = (1.0 - beta**self.count for beta in BETAS)
        for value, gradient, mean, square in zip(self.values, gradients, self.means, self.squares, strict=True):
            mean.lerp_(gradient, 1.0 - BETAS[0])
            square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1.0 - BETAS[1])
            value.add_(self.rates * (mean / first) / ((square / second).sqrt() + TINY))


class Run:
    """What samples a run's rollouts and turns its logits into covectors, and what is noted of it."""

    def __init__(self, arm, answers):
        self.arm, self.answers, self.rng = arm, answers, np.random.default_rng(arm.key)
        self.rollout, self.turn, self.lost = None, 0, False
        self.quiet, self.dropped, self.looks = [], [], []

    def covectors(self, logits):
        """Return the update's covectors (M, 10) at the logits; 0 once the run has left float32."""
        try:
            if self.turn == 0:
                rows = self.rng.integers(0, len(self.answers), RESPONSES // self.arm.group_size)
                self.rollout = draw_answers(self.rng, logits, self.answers, rows, self.arm)
                self.quiet.append(no_signal(self.rollout[1], self.answers[rows]))
            if not torch.isfinite(logits).all():
                raise FloatingPointError
        except FloatingPointError:
            self.lost = True
            return torch.zeros(logits.shape)
        self.turn = (self.turn + 1) % self.arm.reuse
        found, share = slopes(self.rollout, logits, self.arm.ratio)
        self.dropped.append(share)
        return found

    def look(self, ends):
        """Note mean success on both sets, and shares since the last look."""
        self.lost = self.lost or not all(np.isfinite(each).all() for each in ends)
        row = [each.mean() for each in ends] + [np.mean(self.quiet or [0.0]), np.mean(self.dropped or [0.0])]
        self.looks.append([0.0] * 4 if self.lost else row)
        self.quiet, self.dropped = [], []


def train(model, arms, measured, scales, looks=LOOKS):
    """Train runs at once, and return their records; a run that leaves float32 has success 0 from there on.

    `measured` has the places of the runs along which scores are measured; success is noted after so many updates as `looks` has.
    """
    blocks, prompts, held_out = model
    adapters = fresh(blocks, [arm.seed for arm in arms])
    adam, runs = Adam(adapters, [arm.rate for arm in arms]), [Run(arm, prompts.answers) for arm in arms]
    notes, update, logits_of = [{} for _ in arms], 0, recorded(blocks, adapters, prompts)
    for until in looks:
        while update < until:
            logits = logits_of(*adam.values)
            seen = logits.detach().cpu()
            covectors = torch.stack([run.covectors(own) for run, own in zip(runs, seen, strict=True)]).to(logits.device)
            adam.step(torch.autograd.grad(logits, adam.values, covectors))
            update += 1
        ends = list(zip(*(some.success(blocks, adapters) for some in (prompts, held_out)), strict=True))
        for run, own in zip(runs, ends, strict=True):
            run.look(own)
        for place in measured if until in MEASURED_LOOKS else ():
            own = {name: value[:, place : place + 1] for name, value in adapters.items()}
            notes[place][until] = measure(blocks, own, prompts, scales)
    return [
        {"looks": np.array(run.looks), "ends": np.zeros(sum(map(len, end))) if run.lost else np.concatenate(end)} | flat(note)
        for run, end, note in zip(runs, ends, notes, strict=True)
    ]


def products(blocks, adapters, prompts):
    """Return by kind of matrix the inner products of the logits' gradients, (M, 10, M, 10), probabilities (M, 10), and states.

    Every prompt gets a copy of the adapters, so that one gradient of the sum over copies has the gradients of all prompts.
    """
    count = len(prompts.answers)
    copies = {name: value.detach().repeat(1, count, 1, 1).requires_grad_(True) for name, value in adapters.items()}
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    logits, ends = forward(blocks, copies, prompts.asked.apart())
    logits = logits.flatten(1)
    found = dict.fromkeys(MATRICES, 0.0)
    rows = [torch.autograd.grad(logits[:, a].sum(), list(copies.values()), retain_graph=a + 1 < LOGITS) for a in range(LOGITS)]
    torch.set_float32_matmul_precision(precision)
    for place, name in enumerate(copies):
        flat_rows = torch.stack([row[place].transpose(0, 1).flatten(1) for row in rows], 1).flatten(0, 1).double()
        found[name.partition(",")[0]] += (flat_rows @ flat_rows.T).cpu().numpy().reshape(count, LOGITS, count, LOGITS)
    return found, logits.detach().double().softmax(-1).cpu().numpy(), ends.detach().flatten(0, 2).double().cpu().numpy()


def measure(blocks, adapters, prompts, scales):
    """Return each prompt's success, and in balanced coordinates and in the model's own the moments of scores."""
    inner, probabilities, states = products(blocks, adapters, prompts)
    answers = prompts.answers
    found = {"success": probabilities[np.arange(len(answers)), answers]}
    for name, weights in (("balanced", scales), ("own", dict.fromkeys(scales, 1.0))):
        total = sum(inner[array] / weight for array, weight in weights.items())
        found[f"{name} gram"], found[f"{name} powers"] = score_moments(total, probabilities, answers)
    states /= np.linalg.norm(states, axis=1, keepdims=True)
    return found | {"states": states @ states.T}


def at_start(model):
    """Return the scales of balanced coordinates, and in them the inner products of all logits' gradients."""
    blocks, prompts, _ = model
    inner, probabilities, _ = products(blocks, fresh(blocks, [0]), prompts)
    scales = {
        name: np.trace(score_moments(each, probabilities, prompts.answers)[0]) / len(prompts.answers)
        for name, each in inner.items()
    }
    total = sum(inner[name] / scale for name, scale in scales.items())
    return {
        "names": np.array(list(scales)),
        "scales": np.array(list(scales.values())),
        "kernel": total,
        "probabilities": probabilities,
        "torch": np.array(torch.__version__),
    }


def ascend(model, divided, scales):
    """Ascend along exact gradients in balanced coordinates, and return what was measured on the way."""
    blocks, prompts, _ = model
    adapters, measured, rate = fresh(blocks, [0]), {}, None
    answers = prompts.answers
    weights = [1.0 / scales[name.partition(",")[0]] for name in adapters]
    for update in range(ASCENT_LOOKS[-1] + 1):
        if update in ASCENT_LOOKS:
            measured[update] = measure(blocks, adapters, prompts, scales)
        logits = prompts.logits(blocks, adapters)
        pi = logits.detach()[0].double().softmax(-1).cpu().numpy()
        covectors = success_covectors(pi, answers) / len(answers)
        if divided:
            value = pi[np.arange(len(answers)), answers]
            covectors /= np.sqrt(value * (1.0 - value))[:, None]
        covectors = torch.as_tensor(covectors, dtype=torch.float32, device=logits.device)[None]
        gradients = torch.autograd.grad(logits, list(adapters.values()), covectors)
        with torch.no_grad():
            if rate is None:
                small = {n: v + TRIAL * w * g for (n, v), w, g in zip(adapters.items(), weights, gradients, strict=True)}
                change = (prompts.logits(blocks, small) - logits).double()[0]
                rate = TRIAL * STRIDE / float(change.square().sum(1).mean().sqrt())
            for value, weight, gradient in zip(adapters.values(), weights, gradients, strict=True):
                value += rate * weight * gradient
    return flat(measured) | {"rate": np.array(rate)}


def learning_rates(folder):
    """Return the learning rates that the pilot chose."""
    return rates_of([np.load(folder / f"{arm.name}.npz")["looks"][-1, 0] for arm in pilot_arms()])


def work_on(folder, device, seconds):
    """Make what is not in the folder, batch after batch, and begin none after so many seconds."""
    begun = time.perf_counter()
    model = read_model(folder, device)
    start, _ = kept(folder, "start", lambda: at_start(model))
    scales = dict(zip(start["names"].tolist(), start["scales"].tolist(), strict=True))
    make_batch(folder, model, pilot_arms(), (), scales)
    rates = learning_rates(folder)
    print("learning rates", rates, flush=True)
    for name in ASCENTS:
        found, _ = kept(folder, f"ascent-{name}", lambda name=name: ascend(model, name == "divided", scales))
        print(name, found["success"].mean(axis=1).round(3).tolist(), f"{time.perf_counter() - begun:.0f} s", flush=True)
    jobs = [(arms, LOOKS) for arms in batches(rates)] + [(arms, LONGER) for arms in longer(rates)]
    for place, (arms, looks) in enumerate(jobs):
        if time.perf_counter() - begun > seconds:
            print(f"stopped after {seconds} s: {place} of {len(jobs)} batches are done", flush=True)
            return
        make_batch(folder, model, arms, [row for row, arm in enumerate(arms) if is_measured(arm, rates)], scales, looks)
        print(f"{place + 1} of {len(jobs)} batches, {time.perf_counter() - begun:.0f} s", flush=True)


def make_batch(folder, model, arms, measured, scales, looks=LOOKS):
    """Train the runs of a batch unless all of its files are there."""
    if all((folder / f"{arm.name}.npz").exists() for arm in arms):
        return
    for arm, found in zip(arms, train(model, arms, measured, scales, looks), strict=True):
        kept(folder, arm.name, lambda found=found: found)
        print(arm.name, found["looks"][-1, :2].round(3).tolist(), flush=True)


def describe(folder, arrays):
    """Return what is particular to these records."""
    start = dict(np.load(folder / "start.npz"))
    return describe_training(start, arrays) | {
        "version": VERSION,
        "made_by": "tools/language_model/train_adapters.py",
        "trained_with_torch": str(start["torch"]),
        "trained": f"LoRA in all blocks, rank {RANK}, product times {SCALE:g}: 2,442,240 parameters",
        "update": f"{RESPONSES} responses, TF32 products, temperature 1, the ten digits as vocabulary",
        "rates": [float(rate) for rate in learning_rates(folder)],
    }


def write(folder, out):
    """Write the records of the batches that are whole; those of longer runs have names that begin with it."""
    rates = learning_rates(folder)
    usual, longest = (
        [arm for arms in some if all((folder / f"{arm.name}.npz").exists() for arm in arms) for arm in arms]
        for some in (batches(rates), longer(rates))
    )
    _, *sets = read_model(folder, "cpu")
    arrays = gather(folder, usual, np.concatenate([some.numbers for some in sets]))
    read = {arm: dict(np.load(folder / f"{arm.name}.npz")) for arm in longest}
    kept_longer = of_runs(read, LONGER) if read else {}
    print(f"{len(arrays['seeds'])} runs, {len(longest)} longer ones, {len(arrays['course_names'])} courses")
    provenance = describe_model() | describe(folder, arrays) | {"longer_runs": len(longest)}
    write_file(arrays | {f"longer_{name}": array for name, array in kept_longer.items()}, provenance, out)


def main():
    """Prepare, work, or write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="the folder in which finished runs are kept")
    parser.add_argument(
        "--prepare", action="store_true", help="write what is needed of the model to the folder, and train nothing"
    )
    parser.add_argument("--device", default="cpu", help='where torch computes, "cpu" or "cuda"')
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no batch after so many seconds")
    parser.add_argument("--gather", action="store_true", help="write the file of what is finished, and train nothing")
    parser.add_argument("--out", type=Path, default=FOLDER / "trained_adapters.npz")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    if arguments.prepare:
        prepare(arguments.work)
    elif arguments.gather:
        write(arguments.work, arguments.out)
    else:
        torch.set_float32_matmul_precision("high")
        torch.set_num_threads(1)
        work_on(arguments.work, arguments.device, arguments.seconds)


if __name__ == "__main__":
    main()
