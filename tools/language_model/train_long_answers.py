"""Make grpo_theory/data/trained_long_answers.npz: SmolLM2-135M-Instruct, trained on questions with answers of up to three digits.

There are 500 training questions and 100 held-out ones, a quarter of each category of make_long_answers.py. All are asked behind
the same 16 solved examples, four of each category. Trained are the last block, the last norm, and the head's rows of the digits
and of the newline, which ends an answer. The states in front of that block are computed once, behind every beginning of an
answer. So the law of the 1,111 answers to a question is exact, and so are success and entropy. Training samples: an update has
128 responses, of questions drawn with replacement, in groups of 4, 16 or 64. A run has 2,048 updates with Adam, at one of three
rates, and there are ten seeds. The rates are below those of the last block's runs of 96 updates, because runs are longer. They
were chosen before any of these runs. GRPO is made after Dr. GRPO, if there is time.

    python tools/language_model/train_long_answers.py --work FOLDER --prepare

This writes what is needed of the model to FOLDER. The training itself needs only torch and NumPy, and a graphics processor:

    python tools/language_model/train_long_answers.py --work FOLDER --device cuda [--seconds N]

It keeps what is finished in FOLDER, runs of one estimator and group size at once, and goes on from there. The last command writes
the records of the runs that are there:

    python tools/language_model/train_long_answers.py --work FOLDER --gather [--out FILE]
"""

import time
from dataclasses import replace

import numpy as np
import torch
from llama import Questions, forward, fresh, lines, pack, read_blocks
from make_long_answers import CATEGORIES, PREFIXES, SEED, draw_question
from question_sets import EXAMPLES, FOLDER, describe_model, draw_questions, load_model, write_examples, write_file
from train_language_model import advantages, command_line, kept, stepper
from training_runs import ESTIMATORS, RESPONSES, Arm

TRAINED, HELD_OUT, AT_ONCE = 125, 25, 25
"""Questions of each category, and of a forward pass of a look."""
SIZES, RATES, SEEDS, LOOKS = (4, 16, 64), (5e-5, 1e-4, 2e-4), range(10), (0, *(2**k for k in range(4, 12)))
PARENTS = tuple(PREFIXES.index(prefix[:-1]) for prefix in PREFIXES)


def prepare(folder):
    """Write the arrays of the model and the prompts to the folder."""
    questions, examples = draw_questions(CATEGORIES, TRAINED + HELD_OUT, draw_question, SEED)
    tokenizer, model = load_model()
    tokens = tokenizer.convert_tokens_to_ids([str(digit) for digit in range(10)])
    tokens += tokenizer("\n", add_special_tokens=False).input_ids
    solved = [pair for some in examples.values() for pair in some[: EXAMPLES // len(CATEGORIES)]]
    begun = tokenizer(write_examples(solved), add_special_tokens=False).input_ids
    rests = [tokenizer(f"{text}=", add_special_tokens=False).input_ids for _, text, _ in questions]
    torch.save(read_model(model, begun, rests, [answer for *_, answer in questions], tokens), folder / "model.pt")


def read_model(model, begun, rests, answers, tokens):
    """Return what is needed of a model, and the prompts: rows of a table of the states in front of the last block.

    Prompts are tokens, begun alike; `tokens` are the eleven of an answer.
    """
    longer, within = lines(PARENTS)
    states, first, last = [], len(begun), [tokens[prefix[-1]] for prefix in PREFIXES[1:]]
    for rest in rests:
        asked = [*begun, *rest, *last]
        end, mask = first + len(rest), torch.ones(len(asked), len(asked), dtype=torch.bool).tril()
        mask[end:, end:] = within[1:, 1:]
        where = torch.cat([torch.arange(end), end - 1 + longer[1:]])
        hidden = torch.where(mask, 0.0, torch.finfo(torch.float32).min)[None, None]
        with torch.no_grad():
            out = model(torch.tensor([asked]), attention_mask=hidden, position_ids=where[None], output_hidden_states=True)
        states.append(out.hidden_states[-2][0, first if states else 0 :])
    stops = np.cumsum([len(some) for some in states])
    rows = [[*range(*ends)] for ends in zip((first, *stops[:-1]), stops, strict=True)]
    prompts = pack([[*range(first)]], [rows], answers, range(len(answers)), PARENTS)
    return read_blocks(model.model.layers[-1:], model, torch.cat(states), tokens), vars(prompts)


def answer_logs(blocks, trained, prompts, rows):
    """Return log-probabilities of answers (A, B, 1111) to questions (A, B): those that end with a newline, then the others.

    Rows (1, B) are the questions of all runs.
    """
    asked = replace(prompts, own=prompts.own[0, 0, rows][:, None], own_lengths=prompts.own_lengths[0, 0, rows][:, None])
    logs = forward(blocks, trained, asked)[0][:, 0].double().log_softmax(-1)
    one = logs[..., 0, :10]
    two = (one[..., None] + logs[..., 1:11, :10]).flatten(-2)
    begun = torch.cat([torch.zeros_like(one[..., :1]), one, two], -1)
    return torch.cat([begun + logs[..., 10], (two[..., None] + logs[..., 11:, :10]).flatten(-2)], -1)


def places_of(answers):
    """Return the places of right answers among all."""
    return np.array([PREFIXES.index((*map(int, str(one)),)) if one < 100 else len(PREFIXES) + one for one in answers.tolist()])


@torch.no_grad()
def look(blocks, trained, prompts, right, numbers):
    """Return mean success on questions and mean entropy of their answers, by run, (A, 2), given the places of right answers."""
    found = []
    for rows in np.array_split(numbers, -(-len(numbers) // AT_ONCE)):
        logs = answer_logs(blocks, trained, prompts, rows[None])
        success = logs[:, np.arange(len(rows)), right[rows]].exp()
        found.append(torch.stack([success, -(logs.exp() * logs).sum(-1)], -1).cpu().numpy())
    return np.concatenate(found, axis=1).mean(axis=1)


def train(blocks, prompts, arms, looks=LOOKS):
    """Train runs of one estimator and group size; return success and entropy on training and held-out questions, (A, L, 4)."""
    trained, size = fresh(blocks, False, [arm.seed for arm in arms]), arms[0].group_size
    learned, right = prompts.numbers % (TRAINED + HELD_OUT) < TRAINED, places_of(prompts.answers)
    step, rngs, update, found = stepper(trained, arms, {}), [np.random.default_rng(arm.key) for arm in arms], 0, []
    for until in looks:
        while update < until:
            rows = np.stack([rng.choice(np.flatnonzero(learned), RESPONSES // size) for rng in rngs])
            logs = answer_logs(blocks, trained, prompts, rows)
            chances = np.nan_to_num(logs.detach().exp().cpu().numpy(), nan=1.0)  # a run that has left float32 goes on
            drawn = [rng.multinomial(size, own / own.sum(-1, keepdims=True)) for rng, own in zip(rngs, chances, strict=True)]
            counts = np.stack(drawn)
            gains = advantages(counts.reshape(rows.size, -1), right[rows.ravel()], arms[0].estimator)
            weights = torch.as_tensor(counts * gains.reshape(counts.shape) / RESPONSES, device=logs.device)
            # The sum of A log pi over the responses, by answer; of one that was not drawn nothing is climbed, at -inf neither.
            step(torch.autograd.grad(torch.where(weights == 0.0, 0.0, weights * logs).sum(), list(trained.values())))
            update += 1
        found.append([look(blocks, trained, prompts, right, np.flatnonzero(some)) for some in (learned, ~learned)])
    return np.moveaxis(np.array(found), 2, 0).reshape(len(arms), len(looks), -1)


def main():
    """Prepare, work, or write the file."""
    given, begun = command_line(__doc__).parse_args(), time.perf_counter()
    given.work.mkdir(parents=True, exist_ok=True)
    jobs = {f"{name}, groups of {size}": (name, size) for name in ESTIMATORS for size in SIZES}
    if given.prepare:
        prepare(given.work)
    elif given.gather:
        found = {job: kept(given.work, job)["looks"] for job in jobs if (given.work / f"{job}.npz").exists()}
        made = {"made_by": "tools/language_model/train_long_answers.py", "seed": SEED, "rates": RATES, "updates": LOOKS}
        write_file(found, describe_model() | made, given.out or FOLDER / "trained_long_answers.npz")
    else:
        torch.set_float32_matmul_precision("high")
        blocks, prompts = torch.load(given.work / "model.pt", weights_only=False)
        blocks, prompts = {name: value.to(given.device) for name, value in blocks.items()}, Questions(**prompts).on(given.device)
        for job, (name, size) in jobs.items():
            if not (given.work / f"{job}.npz").exists() and time.perf_counter() - begun < given.seconds:
                arms = [Arm(name, "Adam", size, rate, seed) for rate in RATES for seed in SEEDS]
                kept(given.work, job, lambda arms=arms: {"looks": train(blocks, prompts, arms)})
                print(f"{job}: {time.perf_counter() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
