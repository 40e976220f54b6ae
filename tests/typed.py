"""What counts as a typed result: a number, or a word that says how something came out, outside definitions."""

import inspect
import re

DEFINITIONS = (
    # where something stands
    r"arXiv \d{4}\.\d{5}",
    r"docs/derivations\.md(, \d+)?",
    r"(Theorem|Lemma|Corollary|Corollarie|Assumption|Proposition|Figure|Table)s? \d+(\.\d+)?((, | to | and )\d+(\.\d+)?)*",
    r"[A-Z][a-z]+ (and [A-Z][a-z]+ )?(19|20)\d\d",
    r"SmolLM2(-135M)?(-Instruct)?",
    # levels of intervals, which are the same in every run
    r"(?<!\d)95% (intervals?|limits|band|confidence set|of points)",
    r"probability 99\.9%",
    # names and formulae
    r"\bc[123]\b|\bpi_0\b|\bi_0\b|\bddof 1\b|\bK3\b",
    r"\^-?\d|\(G-1\)|\b1 \+ sqrt|\b1/\(?\w|4\(G-1\)",
    # 0 and 1 where they mean no difference, nothing or all
    r"(?<![\d.,])[01](?![\d%]|[.,]\d)",
    # what is drawn and what is left out
    r"no baseline|gives no answer|of no width|have no width|has no (line|least loss)|(is|are|do) not (covered|drawn|divide)",
    r"where (that|that law|noise) (is not|improves the policy)|it finds none in|and orange ones do not",
    # what a law, a bound or a measure is
    r"at most twice the drift|makes the policy worse|does not depend on N|mean update vanishes|as (groups|B) grows?",
    r"holds? (by itself|together)|assumption holds on|where +holds|prompts never succeed, some always",
    r"loses no more than|lower with no|longer than it need be|in the loss by none|that never gets there",
)
"""Numbers, and words of results, that a caption may hold: they explain how to read the figure, in whatever run."""

NUMBERS = re.compile(r"\d|\b(two|three|four|five|six|seven|eight|nine|ten|twice|both|half)\b", re.IGNORECASE)
RESULTS = re.compile(
    r"\b(helps?|hurts?|harms?|hardly|barely|beats?|wins?|gains? (little|more|nothing)|outperforms?|dominates?|improves?|worsens?"
    r"|shrinks?|vanish(es)?|grows?|falls?|falling|rises?|tends?|converges?|coincides?|nearly|almost|mostly|mainly|always|never"
    r"|as (good|well|bad|much|many|fast|soon) as|(better|worse|faster|slower|sooner|more|less|fewer|closer|nearer) than"
    r"|better|worse|no|none|not|nothing|cannot|without bound|fails?|holds?|confirm\w*|refut\w*|serves?|suffic\w+|costs"
    r"|is the (first|last)|false|true that)\b",
    re.IGNORECASE,
)


def results_in(text):
    """Return the typed numbers and words of results of a text, without its definitions; fields stand as braces."""
    for definition in DEFINITIONS:
        text = re.sub(definition, " ", text)
    return [found.group() for pattern in (NUMBERS, RESULTS) for found in pattern.finditer(text)]


def caption_in(figure):
    """Return what is typed into a figure's caption, its docstring after the first line, with {} for its fields."""
    return re.sub(r"\{[^}]*\}", "{}", " ".join(inspect.cleandoc(figure.__doc__).partition("\n\n")[2].split()))
