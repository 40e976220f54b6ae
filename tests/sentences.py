"""Sentences of pages and docstrings that are too long to be read once."""

import ast
import inspect
import re

LONGEST = 25
"""Words of the longest sentence."""
FENCED = re.compile(r"^(`{3,}|\$\$).*?^\1$|<!--.*?-->", flags=re.DOTALL | re.MULTILINE)
ONE_WORD = re.compile(r"!\[[^\]]*\]\([^)]*\)|`[^`]+`|\$[^$]+\$")
"""A picture, code or a formula: each counts as one word."""
ITEM = re.compile(r"\n(?= *(?:[-*+]|\d+\.) |[|#<:])")
"""Where an item of a list, a row of a table, a heading or a directive begins."""
END = re.compile(r"(?<=[.!?])(?<!\bal\.)(?<!e\.g\.)(?<!i\.e\.)(?<!\b[Ff]ig\.)(?<!\bcf\.)[\"')*_]*\s+(?=[\"'(*_\[]*[A-Z0-9])")
"""An end of a sentence: what follows begins with a capital, and "et al. 2004" and "e.g. This" are no ends."""

DOCTEST = re.compile(r"^ *>>> .*?(?=\n\s*\n|\Z)", flags=re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^.*\n-{3,}$", flags=re.MULTILINE)
FIELD = re.compile(r"^[\w*`, .()-]+ : .*$|^[\w.]+$", flags=re.MULTILINE)
"""The line of numpydoc that names a parameter and its type, or an error."""


def paragraphs(page):
    """Return the paragraphs and the items of lists of a page, without programs, tables and headings."""
    blocks = (block for block in re.split(r"\n\s*\n", FENCED.sub("", page)) if not block.startswith("    "))
    parts = (part.strip() for block in blocks for part in ITEM.split(block))
    return [re.sub(r"^(?:[-*+]|\d+\.) +", "", part) for part in parts if not part.startswith(("|", "#", "<", ":::"))]


def long_sentences(page):
    """Return the sentences of a page that have more words than are allowed."""
    found = []
    for paragraph in paragraphs(page):
        text = re.sub(r"\]\([^)]*\)", "]", ONE_WORD.sub("Code", paragraph))
        found += [sentence for sentence in END.split(text) if len(re.findall(r"\S*\w\S*", sentence)) > LONGEST]
    return found


def docstrings(path):
    """Yield the docstrings of a file, of constants too, each with its line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        body = getattr(node, "body", None)
        for one in body if isinstance(body, list) else []:
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
                yield one.lineno, inspect.cleandoc(one.value.value)


def as_page(docstring):
    """Return the sentences of a docstring as a page has them, without examples, headings and the names of parameters."""
    text = FIELD.sub("\n\n", HEADING.sub("\n\n", DOCTEST.sub("", docstring)))
    text = re.sub(r"``[^`]+``", "Code", text)
    return "\n\n".join(inspect.cleandoc(block) for block in re.split(r"\n\s*\n", text))
