"""Formulas as MathML, which browsers draw by themselves: the site needs no network and no fonts."""

from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="formula">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Offer the renderer under the name "mathml"."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
