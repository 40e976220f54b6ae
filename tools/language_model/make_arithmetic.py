"""Make grpo_theory/data/arithmetic.npz from SmolLM2-135M-Instruct.

The model is asked 500 arithmetic questions in five categories, in three ways. Every answer is a single digit. Of each forward
pass, the last hidden state in front of the answer is kept, which is the input of the model's output head. The probability that
the model gives to the ten digit tokens together is kept too. Of the model, the ten head rows of the digits are kept.

    python tools/language_model/make_arithmetic.py [--out FILE]
"""

import numpy as np
from question_sets import EXAMPLES, draw_questions, load_model, run, write_examples

CATEGORIES = ("two-step", "three-step", "multiplication", "division", "parentheses")
POLICIES = ("zero-shot", "few-shot", "instruct")
PER_CATEGORY = 100
SEED = 20260301
SYSTEM = "You are a calculator. Reply with a single digit and nothing else."


def draw_expression(category, rng):
    """Draw an expression of the category: operands 0 to 5, in a division a divisor 1 to 15 and a quotient 0 to 9."""

    def operand():
        return str(rng.integers(0, 6))

    def sign():
        return "+-"[rng.integers(2)]

    if category == "division":
        divisor = rng.integers(1, 16)
        return f"{divisor * rng.integers(0, 10)}/{divisor}"
    if category in ("two-step", "three-step"):
        text = operand()
        for _ in range(2 if category == "two-step" else 3):
            text += sign() + operand()
        return text
    inner = f"{operand()}*{operand()}" if category == "multiplication" else f"({operand()}{sign()}{operand()})"
    outer = operand()
    return inner + sign() + outer if rng.integers(2) else outer + sign() + inner


def draw_question(category, rng):
    """Draw expressions of the category until the value of one is 0 to 9; return it and its value."""
    while True:
        question = draw_expression(category, rng)
        answer = eval(question.replace("/", "//"), {"__builtins__": {}})
        if 0 <= answer <= 9:
            return question, answer


def write_prompt(policy, question, examples, tokenizer):
    """Return the text that stands in front of the answer."""
    if policy == "instruct":
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"What is {question}?"}]
        chat = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return chat + f"The answer is {question}="
    return (write_examples(examples) if policy == "few-shot" else "") + f"{question}="


def make(questions, examples):
    """Return the arrays of the data set that are the model's."""
    import torch

    tokenizer, model = load_model()
    digits = tokenizer.convert_tokens_to_ids([str(digit) for digit in range(10)])
    head = model.get_output_embeddings().weight.detach()
    hidden = np.empty((len(POLICIES), len(questions), head.shape[1]), dtype=np.float32)
    digit_mass = np.empty(hidden.shape[:2], dtype=np.float32)
    for p, policy in enumerate(POLICIES):
        for q, (number, text, _) in enumerate(questions):
            prompt = write_prompt(policy, text, examples[CATEGORIES[number]], tokenizer)
            tokens = torch.tensor([tokenizer(prompt, add_special_tokens=False).input_ids])
            with torch.no_grad():
                out = model(tokens, output_hidden_states=True, logits_to_keep=1)
            state, logits = out.hidden_states[-1][0, -1], out.logits[0, -1]
            if not torch.allclose(head @ state, logits, atol=1e-3):
                raise RuntimeError("the logits are not head @ hidden: the last hidden state is not the head's input")
            hidden[p, q] = state.numpy()
            digit_mass[p, q] = logits.softmax(-1)[digits].sum().item()
    return {"hidden": hidden, "head": head[digits].numpy(), "digit_mass": digit_mass}


PROVENANCE = {
    "policies": list(POLICIES),
    "prompts": {
        "zero-shot": "<question>=",
        "few-shot": f"{EXAMPLES} solved examples of the same category, one a line, then <question>=",
        "instruct": f"chat template; system: {SYSTEM!r}; user: 'What is <question>?'; reply begins 'The answer is <question>='",
    },
}

if __name__ == "__main__":
    run("arithmetic", __doc__, draw_questions(CATEGORIES, PER_CATEGORY, draw_question, SEED), make, SEED, PROVENANCE)
