"""How the documentation is built: `make docs`."""

import sys
from pathlib import Path
from shutil import rmtree

from sphinx.application import Sphinx

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP))

import grpo_theory
from docs.making.derivations import add_notation
from docs.making.evidence import reach_table
from docs.making.gallery import results, write_scripts
from docs.making.places import DOCS, write
from docs.making.reference import add_measured, conventions, escape_docstring, write_reference

NO_FIGURES = "# Figures\n\nNo tables were there when this was built: `make reproduce QUICK=1` first.\n"

project, author, release = "grpo_theory", "The grpo_theory contributors", grpo_theory.__version__
copyright = "2026, the grpo_theory contributors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.viewcode", "numpydoc"]
extensions.append("docs.making.mathml")
exclude_patterns = ["_build", "generated/*.inc.md", "generated/scripts"]
suppress_warnings = ["config.cache"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
html_math_renderer = "mathml"

autosummary_imported_members = True
autodoc_typehints = "none"
numpydoc_show_class_members = False

html_theme, html_title = "furo", f"grpo_theory {release}"
html_static_path, html_css_files = ["_static"], ["site.css"]

write("conventions.inc.md", conventions())
write("reach.inc.md", reach_table())
write_reference()

tables, gallery = results(), DOCS / "generated" / "figures"
if tables is None:
    if (gallery / "index.rst").exists():  # of figures whose tables are gone
        rmtree(gallery)
    write("figures/index.md", NO_FIGURES)
else:
    (gallery / "index.md").unlink(missing_ok=True)  # of a build before there were tables
    extensions.append("sphinx_gallery.gen_gallery")
    sphinx_gallery_conf = {
        "examples_dirs": str(write_scripts(tables)),
        "gallery_dirs": str(gallery),
        "within_subsection_order": "FileNameSortKey",
        "download_all_examples": False,
        "show_memory": False,
        "show_signature": False,
        "abort_on_example_error": True,
        "write_computation_times": False,
    }


def setup(app: Sphinx) -> None:
    """Read docstrings as the plain text that they are, with measured coverages below those of intervals and plans.

    Derivations get a link to their notation.
    """
    app.connect("source-read", add_notation)
    app.connect("autodoc-process-docstring", escape_docstring, priority=100)
    app.connect("autodoc-process-docstring", add_measured, priority=900)
