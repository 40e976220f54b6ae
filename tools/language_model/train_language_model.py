"""Make grpo_theory/data/trained_model.npz and trained_adapters.npz: SmolLM2-135M-Instruct, trained on arithmetic.

There are 40 training questions and 60 held-out ones of the arithmetic set, each behind the 16 solved examples of its category
("few-shot"). Trained is one of two parts. One is the last block, the last norm and the head's rows of the ten digits, 3,546,432
parameters. These rows are as if they were not tied to the embedding. The states in front of that block are computed once. The
other part is adapters of rank 8 on the seven matrices of all 30 blocks: 2,442,240 numbers. With them all hidden states move.

The answer is one digit, so that success and its gradient are sums over ten answers; training itself samples. An update has 128
responses, in groups of 2 to 64, of prompts drawn with replacement. The policy is float32 at temperature 1; a graphics processor
trains with TF32 products and measures scores without. Many runs are made at once. Random numbers are keyed by the run, whatever
else is in its batch. But a graphics processor rounds sums as it likes, so a run made again differs in its last digits.

Of each run, success and held-out success along it are kept, and each prompt's success at its end. So are the shares of groups
without signal and of responses that a clip drops. Of some runs, and of two ascents along exact gradients, more is kept along
their way. It is each prompt's success, the inner products of the prompts' gradients, and the mean squared length of scores by
reward. Every law of a group's gradient estimate is made of these. Of the start, the inner products of all logits' gradients are
kept, of which the linear policy with the features of the start is made.

In balanced coordinates each kind of array is scaled: at the start the prompts' gradients of success have mean squared length 1
in it. In the model's own the head has 97% of the squared length, and plain steps would train little else.

    python tools/language_model/train_language_model.py --work FOLDER --prepare [--adapters]

This writes what is needed of the model to FOLDER. The training itself needs only torch and NumPy:

    python tools/language_model/train_language_model.py --work FOLDER [--adapters] [--device cuda] [--seconds N]

It keeps what is finished in FOLDER, and goes on from there. The last command writes the records, of batches that are whole:

    python tools/language_model/train_language_model.py --work FOLDER [--adapters] --gather [--out FILE]
"""

import argparse
import gc
import time
from pathlib import Path

import numpy as np
import torch
import training_runs as planned
from llama import RANK, SCALE, Questions, forward, fresh, pack, read_blocks
from make_arithmetic import CATEGORIES, PER_CATEGORY, draw_question, write_prompt
from make_arithmetic import SEED as QUESTIONS_SEED
from question_sets import FOLDER, describe_model, draw_questions, keep, load_model, write_examples, write_file

LOGITS = 10
TRAINED, HELD_OUT = 8, 12
"""Questions of each category."""
CLIP, EPSILON = 0.2, 1e-4
ASCENTS, ASCENT_LOOKS = ("plain", "divided"), (0, 10, 20, 40, 80, 160, 320)
STRIDE, TRIAL = 0.1, 1e-3
"""The first update of an ascent changes a prompt's logits by such a root mean square, which a step of such a rate finds out."""


def prepare(folder, adapters):
    """Write the arrays of the model and the prompts to the folder."""
    questions, examples = draw_questions(CATEGORIES, PER_CATEGORY, draw_question, QUESTIONS_SEED)
    tokenizer, model = load_model()

    def numbers_of(text):
        return tokenizer(text, add_special_tokens=False).input_ids

    begun, sets = [numbers_of(write_examples(examples[name])) for name in CATEGORIES], {}
    for part, span in (("trained", range(TRAINED)), ("held_out", range(TRAINED, TRAINED + HELD_OUT))):
        numbers, rests = [PER_CATEGORY * c + r for c in range(len(CATEGORIES)) for r in span], [[] for _ in CATEGORIES]
        for number in numbers:
            kind, text, _ = questions[number]
            tokens = numbers_of(write_prompt("few-shot", text, examples[CATEGORIES[kind]], tokenizer))
            if tokens[: len(begun[kind])] != begun[kind]:
                raise RuntimeError("a question changes the tokens of the examples in front of it")
            rests[kind].append(tokens[len(begun[kind]) :])
        sets[part] = rests, [questions[number][2] for number in numbers], numbers
    digits = tokenizer.convert_tokens_to_ids([str(digit) for digit in range(LOGITS)])
    torch.save(read_model(model, adapters, begun, sets, digits), folder / "model.pt")


def read_model(model, adapters, begun, sets, digits):
    """Return what is needed of a model, and the prompts of sets of (tokens of what follows, answers, numbers).

    In front of the last block alone, a prompt is the rows of a table of its states.
    """
    layers, rows, states = model.model.layers, {}, []

    def places(beginning, rest=()):
        if adapters:
            return [rows.setdefault(token, len(rows)) for token in rest or beginning]
        with torch.no_grad():
            out = model(torch.tensor([[*beginning, *rest]]), output_hidden_states=True, logits_to_keep=1)
        new = out.hidden_states[-2][0, len(beginning) if rest else 0 :]
        states.extend(new)
        return list(range(len(states) - len(new), len(states)))

    first = [places(beginning) for beginning in begun]
    prompts = {}
    for part, (rests, answers, numbers) in sets.items():
        then = [[places(beginning, rest) for rest in some] for beginning, some in zip(begun, rests, strict=True)]
        prompts[part] = vars(pack(first, then, answers, numbers))
    embedding = model.get_input_embeddings().weight[list(rows)] if adapters else torch.stack(states)
    return read_blocks(layers if adapters else layers[-1:], model, embedding, digits), prompts


def load(folder, device):
    """Return the blocks, and the training and the held-out questions."""
    blocks, prompts = torch.load(folder / "model.pt", weights_only=False)
    blocks = {name: value.to(device) for name, value in blocks.items()}
    return blocks, *(Questions(**prompts[part]).on(device) for part in ("trained", "held_out"))


def success(blocks, trained, questions):
    """Return each prompt's success by run, (A, M), in double precision, and the logits (A, M, 10)."""
    logits = forward(blocks, trained, questions)[0].flatten(1, 3)
    probabilities = logits.double().softmax(-1)
    return probabilities[:, torch.arange(len(questions.answers)), torch.as_tensor(questions.answers)], logits


def advantages(counts, answers, estimator):
    """Return the advantage of each of K answers, (B, K), in groups of counts (B, K), given the numbers of the right ones (B,)."""
    size = counts.sum(axis=1)
    mean = counts[np.arange(len(answers)), answers] / size
    found = np.eye(counts.shape[1])[answers] - mean[:, None]
    if estimator == "grpo":
        deviation = np.sqrt(mean * (1.0 - mean) * size / (size - 1.0))
        found /= deviation[:, None] + EPSILON
    return found


def surrogate(rollout, logits, ratio):
    """Return the surrogate sum A min(rho, ...)/N at the logits (M, 10), and the share of responses that a clip drops.

    A rollout is its groups' rows, counts (B, 10), advantages, and log-probabilities when sampled.
    """
    rows, counts, gains, sampled = rollout
    logs = logits.double().log_softmax(-1)[rows]
    weights = counts / counts.sum()
    if ratio == "none":
        return (weights * gains * logs).sum(), 0.0
    ratios, dropped = (logs - sampled).exp(), torch.zeros_like(counts, dtype=torch.bool)
    if ratio == "by sign":
        dropped = ((gains > 0) & (ratios > 1.0 + CLIP)) | ((gains < 0) & (ratios < 1.0 - CLIP))
    elif ratio == "upper only":
        dropped = ratios > 1.0 + CLIP
    return (weights * torch.where(dropped, 0.0, gains * ratios)).sum(), float((weights * dropped).sum())


class Run:
    """What samples a run's rollouts, and what is noted of it."""

    def __init__(self, arm, answers):
        self.arm, self.answers, self.rng = arm, answers, np.random.default_rng(arm.key)
        self.rollout, self.turn, self.lost = None, 0, False
        self.quiet, self.dropped, self.looks = [], [], []

    def draw(self, logits):
        """Draw a rollout at the logits (M, 10): prompts with replacement, and answers."""
        rows = self.rng.integers(0, len(self.answers), planned.RESPONSES // self.arm.group_size)
        logs = logits.detach().double().log_softmax(-1).cpu().numpy()[rows]
        probabilities = np.exp(logs)
        counts = self.rng.multinomial(self.arm.group_size, probabilities / probabilities.sum(axis=1, keepdims=True))
        right = counts[np.arange(len(rows)), self.answers[rows]]
        self.quiet.append(((right == 0) | (right == self.arm.group_size)).mean())
        drawn = (rows, counts, advantages(counts, self.answers[rows], self.arm.estimator), logs)
        self.rollout = [torch.as_tensor(each, device=logits.device) for each in drawn]

    def loss(self, logits):
        """Return what the update climbs at the logits, or None once the run has left float32."""
        self.lost = self.lost or not torch.isfinite(logits).all()
        if self.lost:
            return None
        if self.turn == 0:
            self.draw(logits)
        self.turn = (self.turn + 1) % self.arm.reuse
        found, share = surrogate(self.rollout, logits, self.arm.ratio)
        self.dropped.append(share)
        return found

    def look(self, ends):
        """Note mean success on both sets, and shares since the last look; 0 once the run has left float32."""
        self.lost = self.lost or not all(np.isfinite(each).all() for each in ends)
        row = [each.mean() for each in ends] + [np.mean(self.quiet or [0.0]), np.mean(self.dropped or [0.0])]
        self.looks.append([0.0] * 4 if self.lost else row)
        self.quiet, self.dropped = [], []


def stepper(trained, arms, scales):
    """Return what moves the runs' arrays along gradients: torch's optimiser of rate 1, its way times each run's own rate."""
    plain, values = arms[0].optimiser == "SGD", list(trained.values())
    start, way = [value.detach().clone() for value in values], [torch.zeros_like(value) for value in values]
    optimiser = (torch.optim.SGD if plain else torch.optim.Adam)(way, lr=1.0, maximize=True)
    rates = torch.tensor([arm.rate for arm in arms], device=values[0].device)[:, None, None]
    weights = [rates / scales[name.partition(",")[0]] if plain else rates for name in trained]

    @torch.no_grad()
    def step(gradients):
        for move, gradient in zip(way, gradients, strict=True):
            move.grad = gradient
        optimiser.step()
        for value, first, move, weight in zip(values, start, way, weights, strict=True):
            value.copy_(first + weight * move)

    return step


def train(model, adapters, arms, scales, measured=None, looks=planned.LOOKS):
    """Train runs at once, and return their records; success is noted after so many updates as `looks` has.

    Scores are measured along runs that have the rate `measured`.
    """
    blocks, prompts, held_out = model
    trained = fresh(blocks, adapters, [arm.seed for arm in arms])
    step, runs, notes, update = stepper(trained, arms, scales), [Run(arm, prompts.answers) for arm in arms], [{} for _ in arms], 0

    def logits_of(*values):
        return success(blocks, dict(zip(trained, values, strict=True)), prompts)[1]

    if blocks["head"].is_cuda:
        # Thousands of small operations are recorded once and played back: to start them one by one takes three times as long.
        gc.collect()  # what was recorded for the runs before holds most of the memory
        torch.cuda.empty_cache()
        logits_of = torch.cuda.make_graphed_callables(logits_of, tuple(trained.values()))
    for until in looks:
        while update < until:
            losses = [run.loss(own) for run, own in zip(runs, logits_of(*trained.values()), strict=True)]
            losses = [loss for loss in losses if loss is not None]
            if losses:
                step(torch.autograd.grad(sum(losses), list(trained.values())))
            update += 1
        with torch.no_grad():
            ends = [success(blocks, trained, some)[0].cpu().numpy() for some in (prompts, held_out)]
        for place, (run, *own) in enumerate(zip(runs, *ends, strict=True)):
            run.look(own)
            if until in planned.MEASURED_LOOKS and run.arm.is_measured(measured):
                alone = {name: value[:, place : place + 1] for name, value in trained.items()}
                notes[place][until] = measure(blocks, alone, prompts, scales)
    return [
        {"looks": np.array(run.looks), "ends": np.zeros(sum(map(len, end))) if run.lost else np.concatenate(end)} | flat(note)
        for run, note, *end in zip(runs, notes, *ends, strict=True)
    ]


def products(blocks, trained, questions):
    """Return by kind of array the inner products of the logits' gradients, (M, 10, M, 10), probabilities (M, 10), and states.

    Every prompt gets a copy of the arrays, so that one gradient of the sum over copies has the gradients of all prompts.
    """
    count, found = len(questions.answers), {}
    copies = {name: value.detach().repeat(1, count, 1, 1).requires_grad_(True) for name, value in trained.items()}
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    logits, ends = forward(blocks, copies, questions.apart())
    logits = logits.flatten(1)
    for name, value in copies.items():
        rows = [torch.autograd.grad(logits[:, a].sum(), value, retain_graph=True)[0] for a in range(LOGITS)]
        written = torch.stack([row.transpose(0, 1).flatten(1) for row in rows], 1).flatten(0, 1).double()
        kind, inner = name.partition(",")[0], (written @ written.T).cpu().numpy().reshape(count, LOGITS, count, LOGITS)
        found[kind] = found.get(kind, 0.0) + inner
    torch.set_float32_matmul_precision(precision)
    return found, logits.detach().double().softmax(-1).cpu().numpy(), ends.detach().flatten(0, 3).double().cpu().numpy()


def score_moments(inner, probabilities, answers):
    """Return inner products of the prompts' gradients of success (M, M), and E ||score||^2 given a wrong and a right answer.

    `inner` are the logits' inner products (M, 10, M, 10).
    """
    right = np.eye(LOGITS)[answers]
    # Success is pi_a, and its gradient in the logits pi_a (e_a - pi).
    logit_gradients = (probabilities * right).sum(axis=1, keepdims=True) * (right - probabilities)
    gram = np.einsum("ma,manb,nb->mn", logit_gradients, inner, logit_gradients)
    scores = np.eye(LOGITS) - probabilities[:, None]
    powers = np.einsum("mka,mamb,mkb->mk", scores, inner, scores)
    wrong = probabilities * (1.0 - right)
    return gram, np.stack([(wrong * powers).sum(axis=1) / wrong.sum(axis=1), (powers * right).sum(axis=1)], axis=1)


def measure(blocks, trained, questions, scales):
    """Return each prompt's success, and in balanced coordinates and in the model's own the moments of scores."""
    inner, probabilities, states = products(blocks, trained, questions)
    found = {"success": probabilities[np.arange(len(questions.answers)), questions.answers]}
    for name, weights in (("balanced", scales), ("own", dict.fromkeys(scales, 1.0))):
        total = sum(inner[array] / weight for array, weight in weights.items())
        found[f"{name} gram"], found[f"{name} powers"] = score_moments(total, probabilities, questions.answers)
    states /= np.linalg.norm(states, axis=1, keepdims=True)
    return found | {"states": states @ states.T}


def flat(measured):
    """Return what was measured at several numbers of updates, stacked by name, and these numbers."""
    names = next(iter(measured.values()), {})
    stacked = {name: np.stack([at[name] for at in measured.values()]) for name in names}
    return stacked | ({"measured": np.array(list(measured))} if measured else {})


def at_start(model, adapters):
    """Return the scales of balanced coordinates, and in them the inner products of all logits' gradients."""
    blocks, prompts, _ = model
    inner, probabilities, _ = products(blocks, fresh(blocks, adapters, [0]), prompts)
    moments = {name: score_moments(each, probabilities, prompts.answers)[0] for name, each in inner.items()}
    scales = {name: np.trace(gram) / len(gram) for name, gram in moments.items()}
    return {
        "names": np.array(list(scales)),
        "scales": np.array(list(scales.values())),
        "kernel": sum(inner[name] / scale for name, scale in scales.items()),
        "probabilities": probabilities,
        "torch": np.array(torch.__version__),
    }


def ascend(model, adapters, divided, scales):
    """Ascend along exact gradients in balanced coordinates, and return what was measured on the way."""
    blocks, prompts, _ = model
    trained, measured, rate = fresh(blocks, adapters, [0]), {}, None
    weights = {name: 1.0 / scales[name.partition(",")[0]] for name in trained}
    for update in range(ASCENT_LOOKS[-1] + 1):
        if update in ASCENT_LOOKS:
            measured[update] = measure(blocks, trained, prompts, scales)
        value, logits = success(blocks, trained, prompts)
        own = value.detach()
        objective = (value / (own * (1.0 - own)).sqrt() if divided else value).mean()
        gradients = dict(zip(trained, torch.autograd.grad(objective, list(trained.values())), strict=True))
        with torch.no_grad():
            if rate is None:
                small = {name: array + TRIAL * weights[name] * gradients[name] for name, array in trained.items()}
                change = (success(blocks, small, prompts)[1] - logits).double()
                rate = TRIAL * STRIDE / float(change.square().sum(-1).mean().sqrt())
            for name, array in trained.items():
                array += rate * weights[name] * gradients[name]
    return flat(measured) | {"rate": np.array(rate)}


def kept(folder, name, make=None):
    """Return what the folder has by that name, made now if it has it not."""
    path = folder / f"{name}.npz"
    if make is not None and not path.exists():
        keep(path, make())
    with np.load(path) as file:
        return dict(file)


def rates_in(folder):
    """Return the learning rates that the pilot of the adapters chose."""
    return planned.rates_of([kept(folder, arm.name)["looks"][-1, 0] for arm in planned.pilot()])


def work_on(folder, adapters, device, seconds):
    """Make what is not in the folder, batch after batch, and begin none after so many seconds."""
    begun, model = time.perf_counter(), load(folder, device)
    start = kept(folder, "start", lambda: at_start(model, adapters))
    scales = dict(zip(start["names"].tolist(), start["scales"].tolist(), strict=True))

    def make(arms, measured=None, looks=planned.LOOKS):
        missing = [arm for arm in arms if not (folder / f"{arm.name}.npz").exists()]
        if missing and time.perf_counter() - begun < seconds:
            for arm, found in zip(missing, train(model, adapters, missing, scales, measured, looks), strict=True):
                keep(folder / f"{arm.name}.npz", found)
                print(f"{arm.name}: {found['looks'][-1, :2].round(3).tolist()}, {time.perf_counter() - begun:.0f} s", flush=True)

    jobs = [(arms, planned.LAST_BLOCK_MEASURED, planned.LOOKS) for arms in planned.last_block_batches()]
    if adapters:
        make(planned.pilot())
        rates = rates_in(folder)
        jobs = [(arms, rates[1], planned.LOOKS) for arms in planned.adapter_batches(rates)]
        jobs += [(arms, rates[1], planned.LONGER) for arms in planned.longer_batches(rates)]
    for name in ASCENTS:
        kept(folder, f"ascent-{name}", lambda name=name: ascend(model, adapters, name == "divided", scales))
    for job in jobs:
        make(*job)


def half(matrices):
    """Return the entries on and above the diagonals of symmetric matrices (..., M, M)."""
    return matrices[..., *np.triu_indices(matrices.shape[-1])]


def of_runs(read, looks):
    """Return the arrays of runs, given by arm what was kept of each, which were looked at after so many updates."""
    return {
        "updates": np.array(looks, dtype=np.int16),
        "arms": np.array([(a.estimator, a.optimiser, f"{a.group_size}", f"{a.rate:g}", a.ratio, f"{a.reuse}") for a in read]),
        "seeds": np.array([arm.seed for arm in read], dtype=np.int8),
        "looks": np.stack([found["looks"] for found in read.values()]).astype(np.float32),
        "ends": np.stack([found["ends"] for found in read.values()]).astype(np.float16),
    }


def gather(folder, adapters):
    """Return the arrays of the records, of the batches of which all runs are there."""

    def read(batches):
        whole = [arms for arms in batches if all((folder / f"{arm.name}.npz").exists() for arm in arms)]
        return {arm: kept(folder, arm.name) for arms in whole for arm in arms}

    runs = read(planned.adapter_batches(rates_in(folder)) if adapters else planned.last_block_batches())
    longer = read(planned.longer_batches(rates_in(folder))) if adapters else {}
    start, courses = kept(folder, "start"), {name: kept(folder, f"ascent-{name}") for name in ASCENTS}
    courses |= {f"{arm.estimator}, G = {arm.group_size}": found for arm, found in runs.items() if "measured" in found}
    names = ("measured", "success", "balanced gram", "balanced powers", "own gram", "own powers", "states")
    stacked = {name: np.concatenate([course[name] for course in courses.values()]) for name in names}
    _, *sets = load(folder, "cpu")
    return of_runs(runs, planned.LOOKS) | {
        **({f"longer_{name}": array for name, array in of_runs(longer, planned.LONGER).items()} if longer else {}),
        "questions": np.concatenate([some.numbers for some in sets]).astype(np.int16),
        "course_names": np.array(list(courses)),
        "course": np.repeat(np.arange(len(courses)), [len(course["measured"]) for course in courses.values()]).astype(np.int8),
        "course_updates": stacked["measured"].astype(np.int16),
        "success": stacked["success"].astype(np.float32),
        "gram": half(stacked["balanced gram"]).astype(np.float32),
        "powers": stacked["balanced powers"].astype(np.float32),
        "own_gram": half(stacked["own gram"]).astype(np.float32),
        "own_powers": stacked["own powers"].astype(np.float32),
        "states": half(stacked["states"]).astype(np.float16),
        "kernel": half(start["kernel"].reshape(start["probabilities"].size, -1)).astype(np.float32),
        "probabilities": start["probabilities"].astype(np.float64),
    }


def describe(folder, adapters, arrays):
    """Return what is particular to these records."""
    start = kept(folder, "start")
    last_block = "the last block, the last norm and the head's rows of the ten digits, untied: 3,546,432 parameters"
    lora = f"LoRA in all blocks, rank {RANK}, product times {SCALE:g}: 2,442,240 parameters"
    products = "TF32 products" if adapters else "float32"
    own = {"rates": [float(rate) for rate in rates_in(folder)]} if adapters else {}
    return own | {
        "version": 1,
        "made_by": "tools/language_model/train_language_model.py" + " --adapters" * adapters,
        "trained_with_torch": str(start["torch"]),
        "trained": lora if adapters else last_block,
        "update": f"{planned.RESPONSES} responses, {products}, temperature 1, the ten digits as vocabulary",
        "seed": planned.SEED,
        "questions": "of tools/language_model/make_arithmetic.py, "
        f"each category's first {TRAINED} to train on and the next {HELD_OUT} held out",
        "prompt": "16 solved examples of the same category, one a line, then <question>=",
        "scales": dict(zip(start["names"].tolist(), start["scales"].tolist(), strict=True)),
        "runs": len(arrays["seeds"]),
        "longer_runs": len(arrays.get("longer_seeds", ())),
        "Adam": "beta 0.9 and 0.999, epsilon 1e-8, a constant learning rate, as torch.optim.Adam",
        "clip": CLIP,
        "ascent": f"first update: root mean square change of a question's logits {STRIDE:g}",
    }


def command_line(description):
    """Return the parser of a script that trains."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="the folder in which finished runs are kept")
    parser.add_argument("--prepare", action="store_true", help="write what is needed of the model, and train nothing")
    parser.add_argument("--device", default="cpu", help='where torch computes, "cpu" or "cuda"')
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no batch after so many seconds")
    parser.add_argument("--gather", action="store_true", help="write the file of what is finished, and train nothing")
    parser.add_argument("--out", type=Path, help="the file, if not that of the package")
    return parser


def main():
    """Prepare, work, or write the file."""
    parser = command_line(__doc__)
    parser.add_argument("--adapters", action="store_true", help="train adapters in all blocks, and not the last block")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    if given.prepare:
        prepare(given.work, given.adapters)
    elif given.gather:
        arrays = gather(given.work, given.adapters)
        print(f"{len(arrays['seeds'])} runs, {len(arrays['course_names'])} courses")
        out = given.out or FOLDER / ("trained_adapters.npz" if given.adapters else "trained_model.npz")
        write_file(arrays, describe_model() | describe(given.work, given.adapters, arrays), out)
    else:
        torch.set_float32_matmul_precision("high")
        torch.set_num_threads(1)
        work_on(given.work, given.adapters, given.device, given.seconds)


if __name__ == "__main__":
    main()
