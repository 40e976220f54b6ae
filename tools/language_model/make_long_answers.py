"""Make grpo_theory/data/long_answers.npz from SmolLM2-135M-Instruct: answers of up to three digits, token by token.

The model is asked 32 arithmetic questions in four categories, after 16 solved examples of their category. Their answers have one
to three digits. Of each question, the last hidden state in front of every answer's next token is kept. There are 111 of these,
one for each prefix of no, one or two digits. The probability that the model gives there to the ten digit tokens and the newline,
which ends an answer, is kept too. Of the model, the head rows of these eleven tokens are kept.

The hidden states are those of all prefixes less their mean, in half precision. The reason is that one direction, which all share,
carries nearly all of their length.

    python tools/language_model/make_long_answers.py [--rows N] [--out FILE]
"""

import copy
from itertools import product

import numpy as np
from question_sets import EXAMPLES, draw_questions, load_model, run, write_examples

CATEGORIES = ("sum", "long sum", "difference", "product")
PER_CATEGORY = 8
END = "\n"
SEED = 20261122
PREFIXES = [digits for length in range(3) for digits in product(range(10), repeat=length)]


def draw_question(category, rng):
    """Draw one question of the category, and its answer."""
    match category:
        case "sum":
            a, b = (int(x) for x in rng.integers(10, 50, 2))
            return f"{a}+{b}", a + b
        case "long sum":
            a, b = (int(x) for x in rng.integers(50, 100, 2))
            return f"{a}+{b}", a + b
        case "difference":
            b, a = sorted(int(x) for x in rng.integers(10, 100, 2))
            return f"{a}-{b}", a - b
        case "product":
            a, b = int(rng.integers(10, 100)), int(rng.integers(2, 10))
            return f"{a}*{b}", a * b
    raise ValueError(f"category must be one of {CATEGORIES}, got {category!r}")


def read(model, tokens, cache, copies):
    """Return the last hidden state behind each of some tokens (n,), and the model's memory of all of them.

    Each token follows on one of the sequences that the cache remembers, which are taken so many times each, in turn.
    """
    import torch

    memory = copy.deepcopy(cache)
    memory.batch_repeat_interleave(copies)
    with torch.no_grad():
        after = model.model(torch.tensor(tokens)[:, None], past_key_values=memory)
    return after.last_hidden_state[:, 0], after.past_key_values


def states_of(model, question, context, digits):
    """Return the hidden states behind every prefix of an answer, (111, H).

    The question is given by its tokens, what precedes it by the model's memory of it.
    """
    import torch

    with torch.no_grad():
        asked = model.model(torch.tensor([question]), past_key_values=copy.deepcopy(context))
    first, remembered = read(model, digits, asked.past_key_values, 10)
    second, _ = read(model, digits * 10, remembered, 10)
    return torch.cat([asked.last_hidden_state[:, -1], first, second])


def check(model, tokenizer, question, examples, states, tokens):
    """Raise unless the logits in front of an answer's tokens are those of the whole text, read at once."""
    import torch

    number, text, _ = question
    whole = tokenizer(f"{write_examples(examples[CATEGORIES[number]])}{text}=47", add_special_tokens=False).input_ids
    with torch.no_grad():
        logits = model(torch.tensor([whole]), logits_to_keep=3).logits[0][:, tokens]
    head = model.get_output_embeddings().weight.detach()[tokens]
    found = torch.tensor(states[[PREFIXES.index(()), PREFIXES.index((4,)), PREFIXES.index((4, 7))]]) @ head.T
    if not torch.allclose(found, logits, atol=2e-2):
        raise RuntimeError(f"the logits are not head @ hidden: they differ by up to {(found - logits).abs().max():.3g}")


def make(rows=None, progress=lambda iterable, **_: iterable):
    """Return the arrays of the data set; with `rows`, only those question numbers."""
    import torch

    questions, examples = draw_questions(CATEGORIES, PER_CATEGORY, draw_question, SEED)
    if rows is not None:
        questions = [questions[row] for row in rows]

    tokenizer, model = load_model()
    digits = tokenizer.convert_tokens_to_ids([str(digit) for digit in range(10)])
    (end,) = tokenizer(END, add_special_tokens=False).input_ids
    tokens = [*digits, end]
    head = model.get_output_embeddings().weight.detach()
    contexts = {}
    for number, category in enumerate(CATEGORIES):
        solved = tokenizer(write_examples(examples[category]), add_special_tokens=False).input_ids
        with torch.no_grad():
            contexts[number] = model.model(torch.tensor([solved]), use_cache=True).past_key_values
    hidden, mass = [], []
    for number, text, _ in progress(questions):
        question = tokenizer(f"{text}=", add_special_tokens=False).input_ids
        states = states_of(model, question, contexts[number], digits)
        hidden.append(states.numpy())
        mass.append((states @ head.T).softmax(-1)[:, tokens].sum(-1).numpy())
    check(model, tokenizer, questions[-1], examples, hidden[-1], tokens)
    states = np.stack(hidden)
    centre = states.mean(axis=(0, 1))
    return {
        "centre": centre,
        "hidden": (states - centre).astype(np.float16),
        "head": head[tokens].numpy(),
        "mass": np.stack(mass).astype(np.float32),
        "answers": np.array([answer for _, _, answer in questions], dtype=np.int16),
        "categories": np.array([number for number, _, _ in questions], dtype=np.int8),
        "questions": np.array([text for _, text, _ in questions]),
    }


def describe():
    """Return what is particular to this set."""
    return {
        "made_by": "tools/language_model/make_long_answers.py",
        "seed": SEED,
        "categories": list(CATEGORIES),
        "prompt": f"{EXAMPLES} solved examples of the same category, one a line, then <question>=",
        "tokens": "the digits 0 to 9, and the newline, which ends an answer",
        "prefixes": "none, one or two digits, in order of their length and then of their digits",
        "hidden": "float16, less `centre`, their mean",
    }


if __name__ == "__main__":
    run("long_answers", __doc__, make, describe(), PER_CATEGORY)
