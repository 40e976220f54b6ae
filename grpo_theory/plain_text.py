r"""Words with LaTeX between dollars, as plain text for terminals and tables: $\|\nabla J\|^2\le4X^2$ is ||grad J||^2 <= 4X^2."""

import re

_FORMULA = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$", re.DOTALL)
_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|[^\s\\]")
_OPERATORS = {r"\le": "<=", r"\ge": ">=", r"\ne": "!=", r"\to": "->", r"\mid": "|", r"\in": "in", r"\pm": "+-"}
_OPERATORS |= {one: one for one in "=<>+-"}
_READ = {token: (f" {text} ", "operator") for token, text in _OPERATORS.items()} | {one: (f"{one} ", "operator") for one in ",;:"}
_READ |= {"(": ("(", "open"), "[": ("[", "open"), r"\{": ("{", "open"), r"\lceil": ("ceil(", "open"), r"\langle": (" <", "open")}
_READ |= {")": (")", "close"), "]": ("]", "close"), r"\}": ("}", "close"), r"\rceil": (")", "close"), r"\rangle": (">", "close")}
_READ |= {"/": ("/", "open"), r"\|": ("||", "bar"), "|": ("|", "bar")} | {one: (one, "letter") for one in "'*."}
"""What tokens are read as, and the kind of what they are, on which the spaces around depend."""
_NAMES = {r"\nabla": "grad", r"\varepsilon": "eps", r"\infty": "inf", r"\ell": "l", r"\%": "%"}
"""What has another name than its macro: pi of \\pi, log of \\log."""
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
    >>> plain(r"$1-\binom{n-c}k/\binom nk$")
    '1 - C(n - c, k)/C(n, k)'
    """
    text = re.sub(r"([^\s.,;:])\$\$(\s+[A-Z])", r"\1.$$\2", text)
    return " ".join(_FORMULA.sub(lambda found: _Formula(found[1] or found[2]).read(), text).split())


class _Formula:
    """A formula that is read from left to right; what was last decides where spaces stand."""

    def __init__(self, formula: str | list[str]) -> None:
        if isinstance(formula, str):  # the Hessian by its name, and words as they stand in braces, with their spaces
            formula = re.sub(r"\\nabla\^2", r"\\Hess ", formula)
            formula = re.sub(r"(\\text\{)([^{}]*)\}", lambda found: found[1] + found[2].replace(" ", r"\ ") + "}", formula)
        self.tokens = _TOKEN.findall(formula) if isinstance(formula, str) else formula
        self.out, self.last = "", "operator"

    def read(self) -> str:
        """Return all of it."""
        while self.tokens:
            self._take(self.tokens.pop(0))
        return _END_OF_SUM.sub(r"\1 ", self.out.strip())

    def _take(self, token: str) -> None:
        if token in _SPACES:
            self.out += " "
        elif token in "_^":
            script = re.sub(r" ?(->|[-+=<>,:]) ?", r"\1", self._argument())
            if not re.fullmatch(r"\w+|[-+*]|-\d+", script):  # its end would not be seen
                script = f"{{{script}}}"
            self._add(script if script == "*" else token + script, "name")
        elif token in (r"\left", r"\right"):
            if self.tokens[0] == "|":
                self._add(self.tokens.pop(0), "open" if token == r"\left" else "close")
        elif token in _READ:
            text, kind = _READ[token]
            unary = self.last in ("operator", "open") and text in (" + ", " - ", " +- ")
            self._add(text.strip() if unary else text, "open" if unary else kind)
        elif token not in _NOTHING:
            self._word(token)

    def _add(self, text: str, kind: str) -> None:
        self.out += text
        self.last = kind

    def _word(self, token: str) -> None:
        """Add what may need a space before it."""
        if token == "{":
            word = self._argument(token)
        elif token in (r"\frac", r"\tfrac", r"\dfrac"):
            word = self._fraction()
        elif token == r"\binom":
            word = f"C({self._argument()}, {self._argument()})"
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
        ends = follows in ("", r"\right", r"\text", ".", "}") or _READ.get(follows, ("", ""))[1] in ("operator", "close")
        return whole if ends else f"({whole})"

    def _argument(self, first: str = "") -> str:
        """Return the group that has begun or comes next, or the next token with what belongs to it."""
        depth = 1
        while not first or first in _SPACES:
            first = self.tokens.pop(0)
        inner = [first]
        if first in (*_ACCENTS, *_FONTS, r"\sqrt"):
            inner += self.tokens[:1]
            del self.tokens[:1]
        elif first == "{":
            inner = []
            while depth:
                inner.append(self.tokens.pop(0))
                depth += (inner[-1] == "{") - (inner[-1] == "}")
            inner.pop()
        return _Formula(inner).read()
