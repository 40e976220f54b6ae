"""Make grpo_theory/data/long_answers.npz from SmolLM2-135M-Instruct: answers of up to three digits, token by token.

The model is asked 32 arithmetic questions in four categories, after 16 solved examples of their category. Their answers have one
to three digits. Of each question, the last hidden state in front of every answer's next token is kept. There are 111 of these,
one for each prefix of no, one or two digits. The probability that the model gives there to the ten digit tokens and the newline,
which ends an answer, is kept too. Of the model, the head rows of these eleven tokens are kept.

The hidden states are those of all prefixes less their mean, in half precision. The reason is that one direction, which all share,
carries nearly all of their length.

    python tools/language_model/make_long_answers.py [--out FILE]
"""

from itertools import product

import numpy as np
from question_sets import EXAMPLES, draw_questions, load_model, run, write_examples

CATEGORIES = ("sum", "long sum", "difference", "product")
PER_CATEGORY = 8
SEED = 20261122
PREFIXES = [digits for length in range(3) for digits in product(range(10), repeat=length)]


def draw_question(category, rng):
    """Draw one question of the category, and its answer."""
    if category == "product":
        a, b = int(rng.integers(10, 100)), int(rng.integers(2, 10))
        return f"{a}*{b}", a * b
    low, high = {"sum": (10, 50), "long sum": (50, 100), "difference": (10, 100)}[category]
    a, b = (int(x) for x in rng.integers(low, high, 2))
    if category == "difference":
        a, b = max(a, b), min(a, b)
        return f"{a}-{b}", a - b
    return f"{a}+{b}", a + b


def states_of(model, question, digits):
    """Return the hidden states behind every prefix of an answer, (111, H), given the tokens of all that stands in front of it."""
    import torch

    found = []
    for length in range(3):
        texts = [[*question, *(digits[digit] for digit in prefix)] for prefix in PREFIXES if len(prefix) == length]
        with torch.no_grad():
            found.append(model.model(torch.tensor(texts)).last_hidden_state[:, -1])
    return torch.cat(found)


def make(questions, examples):
    """Return the arrays of the data set that are the model's."""
    tokenizer, model = load_model()
    digits = tokenizer.convert_tokens_to_ids([str(digit) for digit in range(10)])
    tokens = digits + tokenizer("\n", add_special_tokens=False).input_ids
    head = model.get_output_embeddings().weight.detach()
    hidden, mass = [], []
    for number, text, _ in questions:
        asked = write_examples(examples[CATEGORIES[number]]) + f"{text}="
        states = states_of(model, tokenizer(asked, add_special_tokens=False).input_ids, digits)
        hidden.append(states.numpy())
        mass.append((states @ head.T).softmax(-1)[:, tokens].sum(-1).numpy())
    states = np.stack(hidden)
    centre = states.mean(axis=(0, 1))
    kept, mass = (states - centre).astype(np.float16), np.stack(mass).astype(np.float32)
    return {"centre": centre, "hidden": kept, "head": head[tokens].numpy(), "mass": mass}


PROVENANCE = {
    "prompt": f"{EXAMPLES} solved examples of the same category, one a line, then <question>=",
    "tokens": "the digits 0 to 9, and the newline, which ends an answer",
    "prefixes": "none, one or two digits, in order of their length and then of their digits",
    "hidden": "float16, less `centre`, their mean",
}

if __name__ == "__main__":
    run("long_answers", __doc__, draw_questions(CATEGORIES, PER_CATEGORY, draw_question, SEED), make, SEED, PROVENANCE)
