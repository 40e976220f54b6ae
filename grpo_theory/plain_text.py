r"""Words with LaTeX between dollars, as plain text for terminals and tables: $\|\nabla J\|^2\le4X^2$ is ||grad J||^2 <= 4X^2."""

import re

_FORMULA = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$", re.DOTALL)
_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|[^\s\\]")
_OPERATORS = {r"\le": "<=", r"\ge": ">=", r"\ne": "!=", r"\to": "->", r"\mid": "|", r"\in": "in", r"\pm": "+-"}
_OPERATORS |= {one: one for one in "=<>+-"}
_NAMES = {r"\nabla": "grad", r"\varepsilon": "eps", r"\infty": "inf", r"\ell": "l", r"\%": "%"}
"""What has another name than its macro: pi of \\pi, log of \\log."""
_OPEN = {"(": "(", "[": "[", r"\{": "{", r"\lceil": "ceil(", r"\langle": " <"}
_CLOSE = {")": ")", "]": "]", r"\}": "}", r"\rceil": ")", r"\rangle": ">"}
_SPACES = (r"\,", r"\ ", r"\;", r"\quad", r"\qquad", r"\cdot")
_NOTHING = (r"\!", r"\displaystyle")
_ACCENTS = (r"\hat", r"\bar", r"\tilde")
_FONTS = (r"\mathrm", r"\text", r"\operatorname", r"\mathbf")
_BRACKETS = re.compile(r"\([^()]*\)|\[[^][]*\]|\{[^{}]*\}")
_ATOM = re.compile(r"(\w(bar|hat|tilde)?|\d+|mu|pi|nu|xi|[a-z]{3,}|\|\w\|)([_^]\w+|\*)*'*")
_END_OF_SUM = re.compile(r"\b((?:sum|min)_(?:\w|\{[^{}]*\})(?:\^(?:\w|\{[^{}]*\}))?)(?=[(\[|])")


def plain(text: str) -> str:
    r"""Return words that hold $formulae$ as plain text.

    Examples
    --------
    >>> plain(r"The error is $\frac{c_1}{B}+\frac{c_2}{BG}$, at most $\tfrac12\sqrt{\mu}$.")
    'The error is c_1/B + c_2/(BG), at most (1/2) sqrt(mu).'
    """
    sentences = re.sub(r"([^\s.,;:])\$\$(\s+[A-Z])", r"\1.$$\2", text)
    return " ".join(_FORMULA.sub(lambda found: _Formula(found[1] or found[2]).read(), sentences).split())


class _Formula:
    """A formula that is read from left to right; what was last decides where spaces stand."""

    def __init__(self, text: str) -> None:
        # The Hessian by its name, and words as \mathrm and \text have them in braces, with their spaces.
        text = re.sub(r"\\nabla\^2", r"\\Hess ", text)
        text = re.sub(r"(\\text\{)([^{}]*)\}", lambda found: found[1] + found[2].replace(" ", r"\ ") + "}", text)
        self.tokens = _TOKEN.findall(text)
        self.out, self.last = "", "operator"

    def read(self) -> str:
        """Return all of it."""
        while self.tokens:
            self._take(self.tokens.pop(0))
        return _END_OF_SUM.sub(r"\1 ", self.out.strip())

    def _take(self, token: str) -> None:
        if token in _SPACES:
            self.out += " "
        elif token in _OPERATORS:
            unary = self.last in ("operator", "open") and token in ("+", "-", r"\pm")
            self._add(_OPERATORS[token] if unary else f" {_OPERATORS[token]} ", "open" if unary else "operator")
        elif token in "_^":
            script = _script(self._argument())
            self._add(script if script == "*" else token + script, "name")
        elif token in (r"\left", r"\right"):
            bar = self.tokens[0] == "|" and self.tokens.pop(0)
            self._add("|" if bar else "", ("open" if token == r"\left" else "close") if bar else self.last)
        elif token in _OPEN:
            self._add(_OPEN[token], "open")
        elif token in _CLOSE:
            self._add(_CLOSE[token], "close")
        elif token in (r"\|", "|", "'", "/", "*", "."):
            self._add(token.replace("\\", "|"), "letter" if token in "'*." else "open" if token == "/" else "bar")
        elif token in (",", ";", ":"):
            self._add(f"{token} ", "operator")
        elif token not in _NOTHING:
            self._word(token)

    def _add(self, text: str, kind: str) -> None:
        self.out += text
        self.last = kind

    def _word(self, token: str) -> None:
        """Add what may need a space before it."""
        if token == "{":
            self.tokens.insert(0, token)
            word = self._argument()
        elif token in (r"\frac", r"\tfrac", r"\dfrac"):
            word = self._fraction()
        elif token == r"\sqrt":
            word = f"sqrt({self._argument()})"
        elif token in _ACCENTS:
            word = self._argument() + token[1:]
        elif token in _FONTS:
            word = self._argument()
        else:
            word = _NAMES.get(token, token.removeprefix("\\"))
        if token == r"\text" and " " in word:
            self._add(f" {word} ", "operator")
            return
        kind = "letter" if len(word) == 1 else "name"
        apart = word not in (",", "%") and (self.last in ("name", "close") or (self.last == "letter" and kind == "name"))
        self._add(f" {word}" if apart else word, kind)

    def _fraction(self) -> str:
        above, below = self._argument(), self._argument()
        bare = above
        while (less := _BRACKETS.sub("()", bare).replace("()", "")) != bare:
            bare = less
        above = f"({above})" if re.search(" [-+=<>]", bare) else above
        outer = re.sub(r"(?<=^sqrt)\(.*\)$|(?<=^E)\[.*\]$", "", below)
        whole = f"{above}/{below if _ATOM.fullmatch(outer) else f'({below})'}"
        follows = next((one for one in self.tokens if one not in _SPACES + _NOTHING or one == r"\cdot"), "")
        ends = not follows or follows in (*_OPERATORS, *_CLOSE, r"\right", r"\text", *",;:.}")
        return whole if ends else f"({whole})"

    def _argument(self) -> str:
        """Return the next group, or the next token with what belongs to it."""
        while self.tokens[0] in _SPACES:
            self.tokens.pop(0)
        first, depth = self.tokens.pop(0), 1
        if first != "{":
            inner = [first] + [
                self.tokens.pop(0) for _ in range(first in (*_ACCENTS, *_FONTS, r"\sqrt") and len(self.tokens) > 0)
            ]
        else:
            inner = []
            while depth:
                token = self.tokens.pop(0)
                depth += (token == "{") - (token == "}")
                inner.append(token)
            inner.pop()
        part = _Formula("")
        part.tokens = inner
        return part.read()


def _script(text: str) -> str:
    """Return a sub- or superscript without spaces at its operators, in braces where its end would not be seen."""
    text = re.sub(r" ?(->|[-+=<>,:]) ?", r"\1", text)
    return text if re.fullmatch(r"\w+|[-+*]|-\d+", text) else f"{{{text}}}"
