"""What the documentation makes of docstrings and figures, before Sphinx reads it."""

import ast

import pytest

from docs.making import gallery, places
from docs.making.reference import escape
from paper_figures.discovery import figures


def test_docstrings_are_read_as_the_plain_text_that_they_are():
    assert escape("E[Z | x], a*b and sketch_, sketch_0") == r"E[Z \| x], a\*b and sketch\_, sketch_0"
    assert escape("`a*b | c_` all stays, and **bold** too") == "`a*b | c_` all stays, and **bold** too"


def test_the_gallery_has_a_program_for_every_figure_whose_tables_are_there(tmp_path, monkeypatch):
    for module in (places, gallery):
        monkeypatch.setattr(module, "GENERATED", tmp_path / "generated")
    monkeypatch.setattr(gallery, "read_table", lambda folder, name: (name, {}))
    monkeypatch.setattr(gallery, "caption_of", lambda figure, tables: f"Read off {', '.join(tables)}.")
    tables = tmp_path / "results"
    tables.mkdir()
    for module in figures().values():
        for name in module.TABLES:
            (tables / f"{name}.parquet").touch()
    lost = next(iter(figures().values())).TABLES[0]
    (tables / f"{lost}.parquet").unlink()
    scripts = sorted(gallery.write_scripts(tables).glob("plot_*.py"))
    there = {f"plot_{module.PLACE:04g}_{name}.py" for name, module in figures().items() if lost not in module.TABLES}
    assert {script.name for script in scripts} == there
    assert 0 < len(there) < len(figures())
    for script in scripts:
        tree = ast.parse(script.read_text(encoding="utf-8"))
        assert "Read off " in ast.get_docstring(tree)
        assert "draw" in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_names_of_functions_keep_a_distance_from_their_arguments():
    """Docutils, which this needs, comes with `make docs` and not with `make oldest`."""
    mathml = pytest.importorskip("docs.making.mathml").mathml
    for formula, name, after in (
        (r"s \log p", "log", "0.17em"),
        (r"\log(p)", "log", "0"),
        (r"\operatorname{tr} A", "tr", "0.17em"),
    ):
        assert f'<mo lspace="0.17em" rspace="{after}">{name}</mo>' in mathml(formula)
        assert "ApplyFunction" not in mathml(formula)
