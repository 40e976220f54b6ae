"""`grpo-theory verify` of studies that lie outside the checkout, as a user runs it who has only the package."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from own_studies import EXACT, SIMULATED, forget, write
from pages import DOCS, blocks

from grpo_theory.harness import store
from grpo_theory.page.command import main

ROOT = Path(__file__).resolve().parents[1]
PATHS = ("own_squares.py", "own_means.py")
ALONE = """
import sys
from importlib.util import find_spec
from grpo_theory.page.command import main
assert not find_spec("simulations") and not find_spec("paper_figures"), "there is no checkout"
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def verify(tmp_path, monkeypatch, capsys):
    """Return a function that runs the command in a folder, forgetting what earlier runs read, as a new process would."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(*asked):
        forget(sys.modules)
        store._code.cache_clear()
        return main(["verify", *asked]), *capsys.readouterr()

    yield run
    forget(sys.modules)


def test_what_is_claimed_and_what_came_out_is_printed_and_on_a_page_in_one_file(tmp_path):
    """Where only the package can be imported, and what it needs."""
    library, folder = tmp_path / "library", tmp_path / "elsewhere"
    for made in (library, folder):
        made.mkdir()
    (library / "grpo_theory").symlink_to(ROOT / "grpo_theory", target_is_directory=True)
    write(folder)
    asked = ["-W", "error::RuntimeWarning", "-c", ALONE, "verify", *PATHS, "--executor", "threads", "--out", "threads"]
    where = {"cwd": folder, "env": os.environ | {"PYTHONPATH": str(library)}}
    done = subprocess.run([sys.executable, *asked, "--workers", "2"], **where, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for text in (
        "mine/square: the square of x is x times x, for every x\n  identity; my notes, Lemma 1; assumed: x is a number\n",
        "  margin 0.02: a reader of a figure would not see 2%\n  Confirmed in the one setting tried (unit normal).\n",
        "3 claims, 0 without power: threads/claims.csv\n",
    ):
        assert text in done.stdout
    page = (folder / "threads" / "report.html").read_text()
    for text in (
        '<h2 id="study-own_squares">A square is a product</h2>',
        "mine/square is judged as: identity. Near enough is 0: both sides are exact.",
        '<span class="verdict holds">Confirmed in both settings (x = 2; x = 3).</span>',
        "<pre>grpo-theory verify own_squares.py own_means.py --out threads</pre>",
    ):
        assert text in page
    assert (page.count("<math"), page.count('<figure id="figure-own_squares">')) == (2, 1)
    assert not re.search(r'src="(?!data:)|<link|@import|url\((?!%23)', page), "it needs no other file"


def test_what_is_there_is_not_computed_again(verify, tmp_path):
    """An edited file, or one that is imported, costs the study that it is of, and no other; a package beside them costs both."""
    write(tmp_path)
    more = EXACT.replace("import NUMBERS", "import NUMBERS\nfrom own_package import MORE")
    (tmp_path / "own_squares.py").write_text(more.replace("NUMBERS:", "NUMBERS + MORE:"))
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "__init__.py").write_text("MORE = (4,)\n")

    def computed(*edit):
        if edit:
            path, text = tmp_path / edit[0], (tmp_path / edit[0]).read_text()
            path.write_text(text.replace(*edit[1:]))
            assert path.read_text() != text
        status, out, err = verify(*PATHS, "--quick")
        assert status == 0, err
        return {name: int(number) for name, number in re.findall(r"^(own_\w+): (\d+) chunk", out, flags=re.MULTILINE)}

    assert computed() == {"own_squares": 1, "own_means": 6}
    assert computed() == {"own_squares": 0, "own_means": 0}
    assert computed("own_squares.py", "1.01", "1.02") == {"own_squares": 1, "own_means": 0}
    assert computed("own_numbers.py", "(2, 3)", "(2, 5)") == {"own_squares": 1, "own_means": 0}
    assert computed("own_package/__init__.py", "(4,)", "(4, 5)") == {"own_squares": 1, "own_means": 6}
    assert computed("own_means.py", "16", "18") == {"own_squares": 0, "own_means": 6}
    next((tmp_path / "verified-quick" / "chunks" / "own_means").glob("*/0001.json")).unlink()
    assert computed() == {"own_squares": 0, "own_means": 1}


def test_a_control_that_is_its_claim_is_shown_and_fails_the_run(verify, tmp_path):
    write(tmp_path)
    (tmp_path / "own_squares.py").write_text(EXACT.replace("broken=1.01 * x * x", "broken=x * x"))
    status, out, err = verify("own_squares.py", "--quick", "--out", "out")
    assert status == 1
    assert "no power: mine/square on x = 2: its negative control is confirmed (4 against 4, the claim 4 against 4)" in out
    assert err.startswith("2 checks could not have failed, first mine/square on x = 2: mend the control")
    assert "Confirmed" not in out
    page = (tmp_path / "out" / "report.html").read_text()
    assert "the negative control was not refuted in 2 settings, so the check has no power there" in page
    assert page.split('id="uninformative"')[1].count("<td>exact</td></tr>") == 2, "more runs would not help"
    assert "Made from a quick run (fewer replications) of the one study with seed 0." in page
    assert "<td>confirmed</td>" not in page.split('id="uninformative"')[0]


def test_a_weak_control_fails_a_full_run_unless_it_is_said_why(verify, tmp_path):
    weak = SIMULATED.replace("(1.0, 1.1)", "(1.0, 1.0001)")
    (tmp_path / "own_means.py").write_text(weak)
    assert verify("own_means.py")[0] == 1
    (tmp_path / "own_means.py").write_text(weak + '\n\nPOWERLESS = {("mine/mean", "unit *"): "0.01% is too little"}\n')
    status, out, err = verify("own_means.py")
    assert status == 0, err
    assert "no power: mine/mean on unit normal: its negative control is " in out


def test_the_studies_of_the_page_are_verified_as_it_says(verify, tmp_path):
    page = (DOCS / "own_study.md").read_text(encoding="utf-8")
    names = ("own_mean.py", "falls.py")
    for name, text in zip(names, blocks(page)[:2], strict=True):
        assert len(text.splitlines()) < 40
        (tmp_path / name).write_text(text)
    status, out, err = verify(names[0])
    assert status == 0, err
    (said,) = re.findall(r"```text\n(.*?)```", page, flags=re.DOTALL)
    assert out.endswith(said)
    status, out, err = verify(*names, "--quick", "--out", "both")
    assert status == 0, err
    assert "9 claims, 0 without power: both/claims.csv" in out
    del sys.modules["falls"]
