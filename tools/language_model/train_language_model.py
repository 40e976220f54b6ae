"""Make grpo_theory/data/trained_model.npz: SmolLM2-135M-Instruct's last block, last norm and head, trained on arithmetic.

The states in front of the last block are computed once, for 40 training questions and 60 held-out ones of the arithmetic set.
Each is behind the 16 solved examples of its category ("few-shot"). The 3,546,432 parameters behind these states are trained. They
are the last block's matrices and gains, the last norm's gains, and the head's rows of the ten digits. These rows are trained as
if not tied to the embedding. The answer is one digit, so that success and its gradient are sums over ten answers; training itself
samples. An update has 128 responses, in groups of 2 to 64, of prompts drawn with replacement. The policy is float32 at
temperature 1.

Of each run, success and held-out success along it are kept, and each prompt's success at its end. So are the shares of groups
without signal and of responses that a clip drops. Of some runs, and of two ascents along exact gradients, more is kept along
their way. It is each prompt's success, the inner products of the prompts' gradients, and the mean squared length of scores by
reward. Every law of a group's gradient estimate is made of these. Of the start, the inner products of all logits' gradients are
kept, of which the linear policy with the features of the start is made.

In balanced coordinates each array is scaled so that, at the start, the prompts' gradients of success have mean squared length 1
in it. In the model's own the head has 97% of the squared length, and plain steps would train little else.

    python tools/language_model/train_language_model.py --work FOLDER [--until HH:MM] [--gather] [--out FILE]

What is finished is kept in FOLDER, from which an interrupted run goes on: it loses one arm at most.  With --gather the file is
written of the batches of arms that are finished.
"""

import argparse
import copy
import time
from pathlib import Path

import numpy as np
import torch
from language_model_arms import LOOKS, RESPONSES, SEED, batches
from last_block import SHARED, Prompts, forward, read_parameters, unit
from make_arithmetic import CATEGORIES, PER_CATEGORY, draw_question, write_prompt
from make_arithmetic import SEED as QUESTIONS_SEED
from question_sets import FOLDER, describe_model, draw_questions, keep, load_model, write_examples, write_file
from score_products import LOGITS, products, score_moments, success_covectors

VERSION = 1
"""Of the form of the records."""
TRAINED, HELD_OUT = 8, 12
"""Questions of each category."""
CLIP, EPSILON = 0.2, 1e-4
ASCENTS, ASCENT_LOOKS, STRIDE = ("plain", "divided"), (0, 10, 20, 40, 80, 160, 320), 0.1
"""Exact ascents: the first update's root mean square change of a prompt's logits."""


def frozen_states():
    """Return the chosen questions' states in front of the last block, their numbers, and the parameters behind."""
    questions, examples = draw_questions(CATEGORIES, PER_CATEGORY, draw_question, QUESTIONS_SEED)
    tokenizer, model = load_model()
    digits = tokenizer.convert_tokens_to_ids([str(digit) for digit in range(LOGITS)])
    numbers = [
        PER_CATEGORY * c + r for span in ((0, TRAINED), (TRAINED, TRAINED + HELD_OUT)) for c in range(5) for r in range(*span)
    ]
    shared, own = {}, {}
    with torch.no_grad():
        for c, name in enumerate(CATEGORIES):
            beginning = tokenizer(write_examples(examples[name]), add_special_tokens=False).input_ids
            begun = model(torch.tensor([beginning]), use_cache=True, output_hidden_states=True, logits_to_keep=1)
            shared[c] = begun.hidden_states[-2][0]
            rests = {}
            for number in numbers:
                if questions[number][0] == c:
                    text = write_prompt("few-shot", questions[number][1], examples[name], tokenizer)
                    tokens = tokenizer(text, add_special_tokens=False).input_ids
                    if tokens[: len(beginning)] != beginning:
                        raise RuntimeError("a question changes the tokens of the examples in front of it")
                    rests[number] = tokens[len(beginning) :]
            for length in sorted(set(map(len, rests.values()))):
                alike = [number for number, rest in rests.items() if len(rest) == length]
                memory = copy.deepcopy(begun.past_key_values)
                memory.batch_repeat_interleave(len(alike))
                asked = torch.tensor([rests[number] for number in alike])
                out = model(asked, past_key_values=memory, use_cache=True, output_hidden_states=True, logits_to_keep=1)
                own |= dict(zip(alike, out.hidden_states[-2], strict=True))
    return pack(shared, [own[n] for n in numbers], [questions[n] for n in numbers]), numbers, read_parameters(model, digits)


def pack(shared, own, questions):
    """Return prompts of the states of beginnings by category, and of what follows by question (category, text, answer)."""
    begun, longest = max(map(len, shared.values())), max(map(len, own))
    first, then = torch.zeros(len(shared), begun, 576), torch.zeros(len(own), longest, 576)
    for c, states in shared.items():
        first[c, : len(states)] = unit(states)
    for row, states in enumerate(own):
        then[row, longest - len(states) :] = unit(states)
    lengths = [torch.tensor([len(each) for each in some]) for some in (shared.values(), own)]
    kinds, answers = (torch.tensor([question[place] for question in questions]) for place in (0, 2))
    return Prompts(first, lengths[0], then, lengths[1], torch.stack([each[-1] for each in own]), kinds, answers)


def success(parameters, prompts):
    """Return each prompt's success, (M,)."""
    with torch.no_grad():
        logits, _ = forward(parameters, prompts)
    return logits.double().softmax(-1).numpy()[np.arange(len(prompts.answers)), prompts.answers.numpy()]


def advantages(counts, answers, estimator):
    """Return each response's advantage, (B, 10), in groups of counts (B, 10), given the right answers (B,)."""
    size = counts.sum(axis=1)
    mean = counts[np.arange(len(answers)), answers] / size
    found = np.eye(LOGITS)[answers] - mean[:, None]
    if estimator == "grpo":
        deviation = np.sqrt(mean * (1.0 - mean) * size / (size - 1.0))
        found /= deviation[:, None] + EPSILON
    return found


def slopes(rollout, logits, ratio):
    """Return the update's covectors at the logits of the prompts, and the share of responses that the clip drops.

    `rollout` has the groups' prompts (B,), counts (B, 10), advantages (B, 10) and log-probabilities when sampled (B, 10).
    """
    rows, counts, gains, sampled = rollout
    logs = logits.log_softmax(-1).double().numpy()[rows]
    weights, dropped = counts * gains / counts.sum(), np.zeros(counts.shape, dtype=bool)
    if ratio != "none":
        ratios = np.exp(logs - sampled)
        if ratio == "by sign":
            dropped = ((gains > 0) & (ratios > 1.0 + CLIP)) | ((gains < 0) & (ratios < 1.0 - CLIP))
        elif ratio == "upper only":
            dropped = ratios > 1.0 + CLIP
        weights = np.where(dropped, 0.0, weights * ratios)
    found = np.zeros(logits.shape)
    np.add.at(found, rows, weights - weights.sum(axis=1, keepdims=True) * np.exp(logs))
    return torch.as_tensor(found, dtype=torch.float32), float((counts * dropped).sum() / counts.sum())


def climb(parameters, seen, logits, covectors, rates):
    """Add to each array its rate times the gradient of which the logits' part is given; gradients are not written out."""
    outputs = torch.autograd.grad(logits, [output for _, output in seen.values()], covectors)
    with torch.no_grad():
        for (key, (inputs, _)), slope in zip(seen.items(), outputs, strict=True):
            name = key.removesuffix(SHARED)
            array, inputs, slope = parameters[name], inputs.detach().flatten(0, -2), slope.flatten(0, -2)
            if array.dim() == 2:
                array.addmm_(slope.T, inputs, alpha=rates[name])
            else:
                array.add_((slope * inputs).sum(0), alpha=rates[name])


def fresh(parameters):
    """Return a copy of the parameters, to be trained."""
    return {name: value.clone().requires_grad_(True) for name, value in parameters.items()}


def draw_prompts(rng, prompts, arm):
    """Draw the prompts of a rollout, with replacement: those that came, and the groups' rows among them."""
    chosen = rng.integers(0, len(prompts.answers), RESPONSES // arm.group_size)
    kept, rows = np.unique(chosen, return_inverse=True)
    return prompts.take(torch.as_tensor(kept)), rows


def draw_answers(rng, logits, answers, rows, arm):
    """Draw a rollout's groups at the logits of its prompts: rows, counts, advantages and log-probabilities when sampled."""
    logs = logits.double().log_softmax(-1).numpy()
    if not np.isfinite(logs).all():
        raise FloatingPointError
    probabilities = np.exp(logs)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    counts = rng.multinomial(arm.group_size, probabilities[rows])
    return rows, counts, advantages(counts, answers[rows], arm.estimator), logs[rows]


def train(start, prompts, held_out, arm, scales):
    """Train an arm, and return its records; a run that leaves float32 has success 0 from there on."""
    parameters, rng = fresh(start), np.random.default_rng(arm.key)
    adam = torch.optim.Adam(parameters.values(), lr=arm.rate, maximize=True, fused=True) if arm.optimiser == "Adam" else None
    rates = {name: arm.rate / scale for name, scale in scales.items()}
    quiet, dropped, update = [], [], 0
    looks, ends, measured = [], [np.zeros(len(some.answers)) for some in (prompts, held_out)], {}
    try:
        for until in LOOKS:
            while update < until:
                some, rows = draw_prompts(rng, prompts, arm)
                logits, seen = forward(parameters, some)
                rollout = draw_answers(rng, logits.detach(), some.answers.numpy(), rows, arm)
                quiet.append(no_signal(rollout[1], some.answers.numpy()[rows]))
                for turn in range(arm.reuse):
                    if turn > 0:
                        logits, seen = forward(parameters, some)
                    covectors, share = slopes(rollout, logits.detach(), arm.ratio)
                    dropped.append(share)
                    if adam is None:
                        climb(parameters, seen, logits, covectors, rates)
                    else:
                        adam.zero_grad()
                        logits.backward(covectors)
                        adam.step()
                    update += 1
            ends = [success(parameters, some) for some in (prompts, held_out)]
            if not all(np.isfinite(each).all() for each in ends):
                raise FloatingPointError
            looks.append([each.mean() for each in ends] + [np.mean(quiet or [0.0]), np.mean(dropped or [0.0])])
            quiet, dropped = [], []
            if until in arm.measured:
                measured[until] = measure(parameters, prompts, scales)
    except FloatingPointError:
        looks += [[0.0, 0.0, 0.0, 0.0]] * (len(LOOKS) - len(looks))
        ends = [np.zeros(len(some.answers)) for some in (prompts, held_out)]
    return {"looks": np.array(looks), "ends": np.concatenate(ends)} | flat(measured)


def no_signal(counts, answers):
    """Return the share of groups whose rewards are all equal."""
    right = counts[np.arange(len(answers)), answers]
    return float(((right == 0) | (right == counts.sum(axis=1))).mean())


def measure(parameters, prompts, scales):
    """Return each prompt's success, and in balanced coordinates and in the model's own the moments of scores."""
    inner, probabilities = products(fresh(parameters), prompts)
    answers = prompts.answers.numpy()
    found = {"success": probabilities[np.arange(len(answers)), answers]}
    for name, weights in (("balanced", scales), ("own", dict.fromkeys(scales, 1.0))):
        total = sum(inner[array] / weight for array, weight in weights.items())
        found[f"{name} gram"], found[f"{name} powers"] = score_moments(total, probabilities, answers)
    with torch.no_grad():
        states = forward(parameters, prompts)[1]["head"][0].double().numpy()
    unit_states = states / np.linalg.norm(states, axis=1, keepdims=True)
    return found | {"states": unit_states @ unit_states.T}


def flat(measured):
    """Return what was measured at several numbers of updates, stacked by name, and these numbers."""
    if not measured:
        return {}
    names = next(iter(measured.values()))
    return {"measured": np.array(list(measured))} | {name: np.stack([at[name] for at in measured.values()]) for name in names}


def ascend(start, prompts, divided, scales):
    """Ascend along exact gradients in balanced coordinates, and return what was measured on the way."""
    parameters, measured, rate = fresh(start), {}, None
    answers = prompts.answers.numpy()
    for update in range(ASCENT_LOOKS[-1] + 1):
        if update in ASCENT_LOOKS:
            measured[update] = measure(parameters, prompts, scales)
        logits, seen = forward(parameters, prompts)
        pi = logits.detach().double().softmax(-1).numpy()
        covectors = success_covectors(pi, answers) / len(answers)
        if divided:
            value = pi[np.arange(len(answers)), answers]
            covectors /= np.sqrt(value * (1.0 - value))[:, None]
        covectors = torch.as_tensor(covectors, dtype=torch.float32)
        if rate is None:
            small = fresh(start)
            again, passed = forward(small, prompts)
            climb(small, passed, again, covectors, {name: 1e-3 / scale for name, scale in scales.items()})
            with torch.no_grad():
                change = (forward(small, prompts)[0] - again).double()
            rate = 1e-3 * STRIDE / float(change.square().sum(1).mean().sqrt())
        climb(parameters, seen, logits, covectors, {name: rate / scale for name, scale in scales.items()})
    return flat(measured) | {"rate": np.array(rate)}


def kept(folder, name, make):
    """Return what the folder has by that name, made now if it has it not, and whether it was there."""
    path = folder / f"{name}.npz"
    there = path.exists()
    if not there:
        keep(path, make())
    with np.load(path) as file:
        return dict(file), there


def read_states(folder):
    """Return training prompts, held-out prompts, their numbers and the parameters at the start, made once."""
    path = folder / "states.pt"
    if not path.exists():
        prompts, numbers, parameters = frozen_states()
        torch.save((vars(prompts), numbers, parameters), path)
    arrays, numbers, parameters = torch.load(path)
    prompts, split = Prompts(**arrays), TRAINED * len(CATEGORIES)
    rows = torch.arange(len(numbers))
    return prompts.take(rows[:split]), prompts.take(rows[split:]), np.array(numbers), parameters


def at_start(parameters, prompts):
    """Return the scales of balanced coordinates, and in them the inner products of all logits' gradients."""
    inner, probabilities = products(fresh(parameters), prompts)
    answers = prompts.answers.numpy()
    scales = {name: np.trace(score_moments(each, probabilities, answers)[0]) / len(answers) for name, each in inner.items()}
    total = sum(inner[name] / scale for name, scale in scales.items())
    return {
        "names": np.array(list(scales)),
        "scales": np.array(list(scales.values())),
        "kernel": total,
        "probabilities": probabilities,
    }


def work_on(folder, until):
    """Make what is not in the folder, arm after arm, until a time of day."""
    prompts, held_out, _, parameters = read_states(folder)
    start, _ = kept(folder, "start", lambda: at_start(parameters, prompts))
    scales = dict(zip(start["names"].tolist(), start["scales"].tolist(), strict=True))
    jobs = [(f"ascent-{name}", lambda name=name: ascend(parameters, prompts, name == "divided", scales)) for name in ASCENTS]
    jobs += [(arm.name, lambda arm=arm: train(parameters, prompts, held_out, arm, scales)) for arms in batches() for arm in arms]
    for place, (name, make) in enumerate(jobs):
        if until is not None and time.strftime("%H:%M") >= until:
            print(f"stopped at {until}: {place} of {len(jobs)} are done", flush=True)
            return
        begun = time.perf_counter()
        found, there = kept(folder, name, make)
        if not there:
            end = (
                found["looks"][-1, :2].round(3).tolist() if "looks" in found else found["success"].mean(axis=1).round(3).tolist()
            )
            print(f"{place + 1} of {len(jobs)}, {name}: {end} in {time.perf_counter() - begun:.0f} s", flush=True)


def finished(folder):
    """Return the arms of the batches of which all arms are there."""
    return [arm for arms in batches() if all((folder / f"{arm.name}.npz").exists() for arm in arms) for arm in arms]


def half(matrices):
    """Return the entries on and above the diagonals of symmetric matrices (..., M, M)."""
    return matrices[..., *np.triu_indices(matrices.shape[-1])]


def gather(folder, arms, numbers):
    """Return the arrays of the records of runs, given the numbers of the questions."""
    read = {arm: dict(np.load(folder / f"{arm.name}.npz")) for arm in arms}
    courses = {name: dict(np.load(folder / f"ascent-{name}.npz")) for name in ASCENTS}
    courses |= {f"{arm.estimator}, G = {arm.group_size}": found for arm, found in read.items() if "measured" in found}
    start = dict(np.load(folder / "start.npz"))
    count = len(start["probabilities"])

    def stacked(name):
        return np.concatenate([course[name] for course in courses.values()])

    return of_runs(read, LOOKS) | {
        "questions": numbers.astype(np.int16),
        "course_names": np.array(list(courses)),
        "course": np.repeat(np.arange(len(courses)), [len(course["measured"]) for course in courses.values()]).astype(np.int8),
        "course_updates": stacked("measured").astype(np.int16),
        "success": stacked("success").astype(np.float32),
        "gram": half(stacked("balanced gram")).astype(np.float32),
        "powers": stacked("balanced powers").astype(np.float32),
        "own_gram": half(stacked("own gram")).astype(np.float32),
        "own_powers": stacked("own powers").astype(np.float32),
        "states": half(stacked("states")).astype(np.float16),
        "kernel": half(start["kernel"].reshape(count * LOGITS, -1)).astype(np.float32),
        "probabilities": start["probabilities"].astype(np.float64),
    }


def of_runs(read, looks):
    """Return the arrays of runs, given by arm what was kept of each, which were looked at after so many updates."""
    return {
        "updates": np.array(looks, dtype=np.int16),
        "arms": np.array([(a.estimator, a.optimiser, f"{a.group_size}", f"{a.rate:g}", a.ratio, f"{a.reuse}") for a in read]),
        "seeds": np.array([arm.seed for arm in read], dtype=np.int8),
        "looks": np.stack([found["looks"] for found in read.values()]).astype(np.float32),
        "ends": np.stack([found["ends"] for found in read.values()]).astype(np.float16),
    }


def describe_training(start, arrays):
    """Return what records of training are made of, whichever parameters are trained."""
    return {
        "seed": SEED,
        "questions": "of tools/language_model/make_arithmetic.py, "
        f"each category's first {TRAINED} to train on and the next {HELD_OUT} held out",
        "prompt": "16 solved examples of the same category, one a line, then <question>=",
        "scales": dict(zip(start["names"].tolist(), start["scales"].tolist(), strict=True)),
        "runs": len(arrays["seeds"]),
        "Adam": "beta 0.9 and 0.999, epsilon 1e-8, a constant learning rate, as torch.optim.Adam",
        "clip": CLIP,
        "ascent": f"first update: root mean square change of a question's logits {STRIDE:g}",
    }


def describe(folder, arrays):
    """Return what is particular to these records."""
    return describe_training(dict(np.load(folder / "start.npz")), arrays) | {
        "version": VERSION,
        "made_by": "tools/language_model/train_language_model.py",
        "trained": "the last block, the last norm and the head's rows of the ten digits, untied: 3,546,432 parameters",
        "update": f"{RESPONSES} responses, float32, temperature 1, the ten digits as vocabulary",
    }


def main():
    """Work, or write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="the folder in which finished arms are kept")
    parser.add_argument("--until", metavar="HH:MM", help="begin no arm after this time of day")
    parser.add_argument("--gather", action="store_true", help="write the file of what is finished, and train nothing")
    parser.add_argument("--out", type=Path, default=FOLDER / "trained_model.npz")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    if arguments.gather:
        arrays = gather(arguments.work, finished(arguments.work), read_states(arguments.work)[2])
        print(f"{len(arrays['seeds'])} runs, {len(arrays['course_names'])} courses")
        write_file(arrays, describe_model() | describe(arguments.work, arrays), arguments.out)
    else:
        work_on(arguments.work, arguments.until)


if __name__ == "__main__":
    main()
