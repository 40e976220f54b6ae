"""A study is found in its folder: a new file is listed, and no other file has to know of it."""

import sys

from grpo_theory.harness.study_file import collection_of
from simulations import __main__ as command
from simulations import collection, gradient

STUDY = '''
"""What is new."""

from grpo_theory.evidence import Statement

NEW = Statement("X1", "here", "1 = 1", "identity")


def compare(settings):
    yield NEW.compare("alone", 1.0, 1.0, broken=2.0)
'''
FILES = {"brand_new": STUDY, "new_and_shared": '"""What studies share is no study."""\n\nCONSTANT = 1\n'}


def test_new_files_are_found_and_nothing_else_is_touched(tmp_path, monkeypatch, capsys):
    """The files of a second folder are taken for those of a subject."""
    expected = {name: study.title for name, study in collection.studies().items()} | {"brand_new": "What is new"}
    monkeypatch.setattr(gradient, "__path__", [*gradient.__path__, str(tmp_path)])
    monkeypatch.setattr(collection, "collection_of", collection_of.__wrapped__)
    for name, text in FILES.items():
        (tmp_path / f"{name}.py").write_text(text)
    assert command.main(["list"]) == 0
    for name in FILES:
        del sys.modules[f"simulations.gradient.{name}"]
    assert dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()) == expected
