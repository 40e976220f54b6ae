"""Statements of the catalogue in typeset mathematics, for the report.

Each is words with LaTeX between dollars, $ within the line and $$ on a line of its own; the plain text of the catalogue is
what tables and terminals show. They stand here and not in `Statement`, on whose code all results depend: mending a formula's
looks must not make a table stale.
"""

from collections.abc import Mapping
from types import MappingProxyType

from simulations.claims.typeset import n, r, t, u

TYPESET: Mapping[str, str] = MappingProxyType(u.FORMS | t.FORMS | n.FORMS | r.FORMS)
"""Words and LaTeX, by the statement's id."""
