"""A study is found in its folder: a new file is listed, and no other file has to know of it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from simulations.collection import studies

ROOT = Path(__file__).resolve().parents[1]

STUDY = '''
"""What is new."""

from grpo_theory.evidence import Statement

NEW = Statement("X1", "here", "1 = 1", "identity")


def compare(settings):
    yield NEW.compare("alone", 1.0, 1.0, broken=2.0)
'''
HELPER = '"""What studies share is no study."""\n\nCONSTANT = 1\n'
LIST = """
import sys
from pathlib import Path
import simulations
from simulations.__main__ import main

assert Path(simulations.__file__).is_relative_to(sys.argv[1])
main(["list"])
"""


def test_new_files_are_found_and_nothing_else_is_touched(tmp_path):
    for folder in ("grpo_theory", "simulations"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.nb[ic]"))
    (tmp_path / "simulations" / "gradient" / "brand_new.py").write_text(STUDY)
    (tmp_path / "simulations" / "gradient" / "shared.py").write_text(HELPER)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LIST, str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    listed = {line.split()[0]: line.split(maxsplit=1)[1] for line in done.stdout.splitlines()}
    assert listed == {name: study.title for name, study in studies().items()} | {"brand_new": "What is new"}
