"""Statements in a TOML file, and the plain text that LaTeX becomes."""

import pytest

from grpo_theory.evidence import Margin, Statement, read_statements
from grpo_theory.plain_text import plain

HEAD = """
paper = "notes"
derivations = "proofs.md"
margins.small = {value = 0.02, because = "nobody sees 2%"}
"""
FILE = (
    HEAD
    + r"""
["X1"]
number = "Lemma 2"
kind = "rate"
margin = "small"
says = '''
The error is $c_1/B$,
as printed.'''

["X1/ours"]
section = 7
kind = "upper bound"
whose = "ours"
says = "a text without formulas"

["X2"]
kind = "identity"
says = 'What is $x$?'
text = "what x is"
"""
)
MISTAKES = {
    'says = "a"\nkind = "idea"': "'X': kind must be one of .*, got 'idea'",
    'kind = "rate"\ntitle = "a"': "'X': no statement has the key 'title'; it may have says, kind",
    'says = 3\nkind = "rate"': "'X' has no text 'says'",
    'says = "a"\nkind = "rate"\nmargin = "large"': "'X': margin must be one of small, got 'large'",
    'says = "a"\nkind = "rate"\nmargin = {value = -1, because = "b"}': "'X': a margin must be .*value must be a finite number",
    'says = "a"\nkind = "rate"\nnumber = "1"\nsection = 2': "must have one of number, section, source, got number and section",
    "says = '$\\frac1$'\nkind = \"rate\"": "holds a formula that ends too early",
    "says = ": "is no TOML",
}
FORMULAS = {
    r"\frac{c_3}{BG(G-1)}\qquad\text{for every }G\ge2": "c_3/(BG(G - 1)) for every G >= 2",
    r"\tfrac12\sum_{i<j}(W_i-W_j)": "(1/2) sum_{i<j} (W_i - W_j)",
    r"\left\|\nabla^2J_i\right\|\le4X^2V_i": "||Hess J_i|| <= 4X^2 V_i",
    r"\bar Z_{-i}=-\sqrt2\,b^*": "Zbar_{-i} = -sqrt(2) b*",
    r"\mathrm{KL}(\pi\,\|\,\pi_{\mathrm{ref}})\to0": "KL(pi || pi_ref) -> 0",
    r"1{,}024\,G^{-2}\pm5\%": "1,024 G^-2 +- 5%",
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "notes.toml"


def test_what_a_file_says(path):
    path.write_text(FILE)
    printed = "The error is $c_1/B$, as printed."
    small = Margin(0.02, "nobody sees 2%")
    assert list(read_statements(path).values()) == [
        Statement("X1", "notes, Lemma 2", "the error is c_1/B, as printed", "rate", formula=printed, margin=small),
        Statement("X1/ours", "proofs.md, 7", "a text without formulas", "upper bound", whose="ours"),
        Statement("X2", "notes", "what x is", "identity", formula="What is $x$?"),
    ]


@pytest.mark.parametrize("table", MISTAKES)
def test_a_mistake_is_named_with_its_place(path, table):
    path.write_text(f"{HEAD}[X]\n{table}\n")
    with pytest.raises(ValueError, match=f"notes.toml.*{MISTAKES[table]}"):
        read_statements(path)


def test_a_formula_in_plain_text():
    assert {formula: plain(f"${formula}$") for formula in FORMULAS} == FORMULAS
    assert plain("$$a=b$$ The rest.") == "a = b. The rest."
