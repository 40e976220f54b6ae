"""The report that people read: typeset statements, sections, sentences whose numbers are read, links that lead somewhere."""

import re
from contextlib import nullcontext, suppress
from functools import cache, partial
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from grpo_theory.evidence import Statement
from grpo_theory.evidence.verdicts import COLUMNS
from grpo_theory.harness.store import Verdicts
from grpo_theory.page.document import Page, anchor_of, cell, said
from grpo_theory.page.mathematics import FormulaError, typeset
from grpo_theory.page.picture import picture
from grpo_theory.page.printed import printed
from grpo_theory.page.style import LANGUAGE_MODEL
from grpo_theory.page.theorem import add_statement
from grpo_theory.page.wording import in_words, standing
from grpo_theory.theory import GroupSizeLaw
from paper_figures.content.findings import FINDINGS, Found, NotSaidError
from paper_figures.content.report import write_report
from paper_figures.content.sections import section_of, sections
from paper_figures.discovery import figures, subject
from paper_figures.group_law import fine, group_law
from simulations.collection import catalogue, collection
from simulations.sources import PAPERS

CATALOGUE = catalogue()
TYPESET = {one.id: one.formula for one in CATALOGUE.values() if one.formula}


def rows(name, *verdicts, control="refuted", **more):
    """Return rows of claims.csv about one statement."""
    words = {"study": "s", "id": name, "whose": "paper", "kind": "identity", "statement": "", "sound": "", "facts": ""}
    halves = dict.fromkeys(("estimate", "low", "high", "outer_low", "outer_high"), 0.5)
    ones = dict.fromkeys(("control_estimate", "control_low", "control_high"), 1.0)
    noughts = dict.fromkeys(("prediction", "margin", "control_prediction"), 0.0) | {"replications": 0, "needed": 0}
    made = pd.DataFrame({"verdict": verdicts, "problem": [f"p{i}" for i in range(len(verdicts))]})
    return made.assign(control=control, **words | halves | ones | noughts | more)


def test_typeset_forms_are_of_statements_and_leave_no_latex():
    for formula in TYPESET.values():
        made = typeset(formula)
        seen = "".join(ElementTree.fromstring(f"<p>{made}</p>").itertext())
        assert not re.search(r"\\|\$|[_^]\{", seen), seen
        assert made.count("<math") == len(re.findall(r"\$\$.+?\$\$|\$.+?\$", formula, re.DOTALL))


SCRIPT = "<script>alert(1)</script>"
IMAGE = "<img src=x onerror='alert(1)'>"
QUOTED = "\" onclick=\"alert(1)\" style='color:red' href='javascript:alert(1)"


class Seen(HTMLParser):
    """The elements and attributes that a browser finds in a page, and the entries that its search reads."""

    def __init__(self, code):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.entries = [], [], []
        self.feed(code)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.entries += [dict(attrs)] if "data-words" in dict(attrs) else []


def written(page, folder):
    """Return a page in HTML and in Markdown."""
    page.write(folder)
    return [(folder / f"report.{kind}").read_text(encoding="utf-8") for kind in ("html", "md")]


def test_html_in_a_formula_is_text():
    for command in ("text", "mbox", "tag", "textbf", "mathrm", "operatorname", "color"):
        for attack in (SCRIPT, IMAGE, QUOTED, "&lt;script&gt;", "]]><script>alert(1)", "<!--<script>"):
            # Before its version 3.80 the converter does not know \tag.
            with suppress(FormulaError) if command == "tag" else nullcontext():
                seen = Seen(typeset(rf"$\{command}{{{attack}}} x$"))
                assert [tag for tag in seen.tags if tag != "span" and not tag.startswith("m")] == [], (command, attack)
                run = [name for name, _ in seen.attributes if re.match("on|(style|href|src|class|id)$", name)]
                assert run == [], (command, attack)


def test_what_does_more_than_draw_and_a_command_that_the_converter_does_not_know_are_refused(check_refused):
    drawing = r"it makes '(href|style|class)', and a formula may only draw|class is unknown"
    more = (r"\href{javascript:alert(1)}{x}", r"\style{background:url(x)}{x}", r"\frac{\class{a}{x}}{2}")
    others = (r"x \lambada", r"\frac{\text{a \lambada}}{2}", r"\operatorname{\lambada}")
    cases = [*((one, drawing) for one in more), *((one, r"cannot be typeset: \\lambada is unknown$") for one in others)]
    check_refused(*((partial(typeset, f"so ${one}$"), message) for one, message in cases), error=FormulaError)


@pytest.mark.parametrize("attack", [SCRIPT, IMAGE, QUOTED, rf"$\text{{{SCRIPT}}}$", rf"$$\mbox{{{IMAGE}}}$$"])
def test_nothing_that_a_study_says_is_html(attack, tmp_path):
    """Titles, statements, sources, assumptions, settings, facts and captions: the page has its own elements and no others."""

    def seen(words):
        page = Page(words)
        page.section(words, "one", words)
        page.add("heading", text=words)
        page.paragraph(words)
        page.add("fold", summary=words, text=words)
        page.table(pd.DataFrame({words: [words]}), summary=words)
        (tmp_path / "figure.svg").write_text("<svg></svg>")
        page.figure(tmp_path, "figure", words)
        own = rows("mine/1", "confirmed", "refuted", statement=words, problem=words, facts=words)
        for formula in ("", words):
            stated = Statement("mine/1", words, words, "identity", assumptions=words, formula=formula)
            add_statement(page, stated, (), own)
        return Seen(written(page, tmp_path)[0])

    attacked, plain, drawn = seen(attack), seen("words"), {"math", "mrow", "mtext", "mstyle", "span"}
    assert [tag for tag in attacked.tags if tag not in drawn] == [tag for tag in plain.tags if tag != "span"]
    assert not [name for name, _ in attacked.attributes if name.startswith("on")]
    links = [value for name, value in attacked.attributes if name == "href"]
    assert [value for value in links if not value.startswith(("#", "https://"))] == []


def test_a_statement_has_its_verdict_its_correction_and_its_questions(tmp_path):
    whole = Statement("T/1", "arXiv 2603.01162, Theorem 7", "it holds (a; b)", "parts", whose="paper")
    printed = Statement("T/1/printed", "arXiv 2603.01162, Theorem 7", "a | b", "identity", whose="paper")
    elsewhere = Statement("T/1/lemma", "arXiv 2603.01162, Lemma 8", "c", "identity", whose="paper")
    mended = Statement("T/1/mended", "docs/derivations.md, 7", "d", "identity", whose="correction")
    asked = Statement("T/1/asked", "ours", "e", "identity", whose="ours")
    parts = (printed, elsewhere, mended, asked)
    for verdict, title in (("refuted", "Corrected"), ("confirmed", "Made sharp")):
        found = [rows("T/1/printed", verdict), rows("T/1/lemma", "confirmed"), rows("T/1/mended", "confirmed")]
        page = Page("title")
        add_statement(page, whole, parts, pd.concat([*found, rows("T/1/asked", "refuted", "confirmed", "refuted", whose="ours")]))
        code, twin = written(page, tmp_path)
        assert f"<h3>{title}</h3>" in code
        assert f"\n{title}:\n" in twin
        (entry,) = (one for one in Seen(code).entries if one["data-id"] == "T/1")
        assert entry["data-verdict"] == verdict, "what is printed where the whole is decides it"
        assert '<a href="#proof-7">proof: derivations, section 7</a>' in code
        assert "Asked beside it: one question, which holds in part." in twin
        assert '<span class="verdict in-part">Refuted in 2 of 3 settings;</span> confirmed in 1 setting: p1.' in code


def test_tables_and_pictures_are_of_text_in_both_twins(tmp_path):
    """A picture's alternative text is the first sentence of its caption."""
    (tmp_path / "gains.svg").write_text("<svg></svg>")
    page = Page("a < b")
    page.table(pd.DataFrame({"a|b": ["x|y", "<i>"], "n": [1.5, 2.25], "verdict": ["confirmed", "estimate only"]}))
    page.figure(tmp_path, "gains", "The share (g . h) <= 1 of arXiv 2603.01162 is shown. Bars are limits.")
    code, twin = written(page, tmp_path)
    assert '<img alt="The share (g . h) &lt;= 1 of arXiv 2603.01162 is shown." ' in code
    assert "![The share (g . h) <= 1 of arXiv 2603.01162 is shown.](figures/gains.png)" in twin
    assert "<h1>a &lt; b</h1>" in code
    assert "<tr><td>&lt;i&gt;</td><td class=n>2.25</td><td class=estimate-only>estimate only</td></tr>" in code
    assert "| x\\|y | 1.5 | confirmed |" in twin
    assert cell("a*b|c") == "a\\*b\\|c"


def test_every_statement_and_every_figure_has_one_section():
    found = sections()
    assert {name for name in CATALOGUE if sum(section.holds(name) for section in found) != 1} == set()
    shown = [one.id for section in found for whole, parts in section.statements() for one in (whole, *parts)]
    assert sorted(shown) == sorted(CATALOGUE), "each stands in the report, once"
    assert {subject(module) for module in figures().values()} <= {*CATALOGUE, ""}
    anchors = [section.anchor for section in found] + [anchor_of(name) for name in CATALOGUE]
    assert len(set(anchors)) == len(anchors)


@pytest.mark.parametrize(
    ("verdicts", "word", "text"),
    [
        ("confirmed", "holds", "Confirmed in the one setting tried (p0)."),
        ("refuted refuted", "fails", "Refuted in both settings (p0; p1)."),
        ("confirmed confirmed confirmed refuted", "fails", "Confirmed in 3 of 4 settings; refuted in 1 setting: p3."),
        ("inconclusive " * 3, "is inconclusive", "Inconclusive in all 3 settings."),
        ("confirmed " * 9 + "refuted " * 8, "fails", "refuted in 8 settings: p9; p10; p11; p12; p13 and 3 others."),
    ],
)
def test_verdicts_in_words(verdicts, word, text):
    made = rows("U1", *verdicts.split())
    assert standing(made) == word
    assert in_words(made).endswith(text)


def test_what_has_no_power_is_not_counted_and_what_is_open_says_how_many_runs():
    measured = rows("U1", "not reproduced here", "not reproduced here", "reproduced here")
    assert standing(measured) == "is reproduced in part"
    weak = rows("U1", "confirmed", control="inconclusive")
    assert standing(weak) == "is inconclusive"
    unjudged = "Not judged: the negative control was not refuted in 1 setting, so the check has no power there. Without its"
    for verdict, word in (("no power", "confirmed"), ("inconclusive", "inconclusive")):
        made = rows("U1", verdict, control="inconclusive")
        assert in_words(made) == f"{unjudged} control the statement would be {word} in 1 setting.", "what claims.csv has is said"
    for judged, where in ((2, "both settings of 3 that could tell (p0; p1)"), (6, "all 6 settings that could tell (of 7)")):
        made = pd.concat([rows("U1", *["confirmed"] * judged), weak])
        assert in_words(made).startswith(f"Confirmed in {where}. In 1 setting the check had no power: ")
    made = pd.concat([rows("U1", "confirmed"), rows("U1", "refuted", control="confirmed")])
    assert standing(made.assign(whose="ours")) == "holds in part", "a question of ours may be answered setting by setting"
    assert standing(made) == "fails", "a refutation needs no control that is refuted"
    assert "As many as 1,234 replications would decide it." in in_words(rows("U1", "inconclusive", needed=1234))
    assert in_words(rows("U1", "confirmed").iloc[:0]) == "Not judged in this run."
    assert said("tally", standings=["fails", "fails"], noun="question") == "2 questions, which all fail"
    made = said("tally", standings=["is not reproduced", "holds", "is not reproduced"], noun="printed statement")
    assert made == "3 printed statements, of which 1 holds and 2 are not reproduced"


class Made(Found):
    """A run that is made up, from which every finding can be said."""

    def __init__(self):
        at = {"estimate": 0.11, "low": 0.0, "high": 1.0}
        alone = "with groups of this size alone = 0.45; with the penalty that is descended alone = 0.48"
        facts = f"success at the printed maximiser = 0.5; {alone}; success at the corrected one = 0.4"
        refuted = ("U9/best/printed", "U16/printed", "U17/printed", "T6/printed", "division/pays")
        claims = [rows(name, "refuted") for name in refuted]
        claims += [rows(name, "confirmed") for name in ("U9/best/corrected", "T6/corrected", "N6/weighted")]
        claims += [rows("U6/assumption", "refuted", problem=name) for name in LANGUAGE_MODEL]
        for name in ("T1", "T2"):
            claims += [rows(f"{name}/printed", "refuted", estimate=40), rows(f"{name}/corrected", "confirmed", estimate=1e-15)]
        claims += [
            rows("U6/assumption", "refuted", "refuted", "confirmed"),
            rows("efficiency/larger groups", "confirmed", problem="lm-few-shot"),
            rows("U6/near, G=8", "reproduced here", problem="lm-zero-shot, success 0.15", **at),
            rows("U6/near, G=8", "inconclusive", problem="SmolLM2, sampled answers", **at | {"estimate": 0.9}),
            rows("U6/same, G=32", "reproduced here", problem="lm-zero-shot, success 0.15", **at),
            rows("U11/printed", "refuted", **at),
            rows("U11/corrected", "confirmed", "inconclusive", **at),
            rows("U16/corrected", "confirmed", facts=facts),
            rows("U17/printed mean", "refuted", "refuted", facts="cosine with it = -0.4"),
            rows("T6/most", "refuted", problem="T = 2, learning, drift 1", estimate=0.3),
            rows("T6/most", "inconclusive", problem="T = 8, learning, drift 1", estimate=0.1),
            rows("N6/printed", "refuted", estimate=2.5),
        ]
        policies = {"problem": list(LANGUAGE_MODEL)}
        best = pd.DataFrame({"quantity": ["printed", "remainder", "corrected"], "optimum": [2.1, 6.0, 3.1]})
        names = {"problem": "lm-few-shot", "estimator": ["rloo"] * 2 + ["grpo"] * 2, "quantity": "efficiency"}
        efficiencies = pd.DataFrame(names | {"group_size": [3, 5] * 2, "estimate": [0.1, 0.05, 0.1, 0.12]})
        settings = pd.DataFrame({"contest": ["SGD"] * 3 + ["Adam"] * 3, "family": ["head", "random", "made up"] * 2})
        tables = {
            "best_group": pd.DataFrame(policies).merge(best, "cross"),
            "efficiency": efficiencies,
            "baselines": pd.DataFrame(policies | {"correlation_mean": 0.3, "break_even": 8.6}),
            "race": settings.assign(estimate=-0.03, quantity="plain less", arm="divided"),
        }
        super().__init__(Verdicts(pd.concat(claims, ignore_index=True), 0, True, {}, tuple(tables)), None)
        object.__setattr__(self, "table", tables.__getitem__)


def test_findings_say_what_the_tables_have():
    text = {finding.reads.__name__: finding.says(Made()) for finding in FINDINGS}
    assert all(section_of(finding.about) for finding in FINDINGS)
    assert "On three heads of SmolLM2 that is 3.1, 3.1 and 3.1 responses." in text["_best_group_size"]
    assert "formula has 2.1, 2.1 and 2.1 with this $c_3$, and 6.0, 6.0 and 6.0 with" in text["_best_group_size"]
    assert "the leave-one-out mean is best with 3 responses per prompt. GRPO, which" in text["_efficiency"]
    assert "is best with 5. Each at its best, GRPO's efficiency is higher by 20%." in text["_efficiency"]
    assert "fails on 5 of 6 problems. On three policies of SmolLM2 the mean |correlation| is 0.30" in text["_assumption"]
    assert "up to groups of 8, 8 and 8." in text["_assumption"]
    assert "as baseline has 11% more error with 8 responses" in text["_near_the_oracle"]
    assert "That alone leaves success up to 10.0% below" in text["_finite_groups"]
    assert "That alone leaves success up to 4.0% below, and both together 20.0%." in text["_finite_groups"]
    assert "changes by 3.0 points of a hundred." in text["_division"]
    assert "by a point or more in 3 of 3 settings, and falls by as much in 0." in text["_division"]
    assert "cosine is \u22120.40 or less on both problems" in text["_kl_gradient"]
    assert r"up to 40 times the update apart. Corrected, they agree to $1\times10^{-15}$ of it." in text["_signs"]
    assert "for 30% of random problems of 2 tokens, by setting." in text["_whose_gradient"]
    assert "Of problems of 8 tokens it is so for 10%." in text["_whose_gradient"]


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.reads.__name__)
def test_a_finding_is_not_said_where_the_verdicts_are_the_other_way_round(finding):
    """But for division and efficiency, of which the sentences say by how much, whether that be much or little."""
    other = {"confirmed": "refuted", "refuted": "confirmed", "inconclusive": "inconclusive"}
    other |= {"reproduced here": "not reproduced here", "not reproduced here": "reproduced here"}
    turned = Made()
    turned.verdicts.claims["verdict"] = turned.verdicts.claims["verdict"].map(other)
    if finding.about in ("division", "efficiency"):
        assert finding.says(turned) == finding.says(Made())
    else:
        with pytest.raises(NotSaidError, match=r"is (confirmed|refuted|not reproduced here) somewhere"):
            finding.says(turned)
    nothing = turned.verdicts._replace(claims=turned.verdicts.claims.iloc[:0])
    with pytest.raises(NotSaidError, match="has no verdict with power"):
        finding.says(Found(nothing, Path()))


@cache
def claims_of_all():
    """Return one verdict on every statement that a study decides, and one without power."""
    deciders = collection().deciders()
    decided = [one for one in CATALOGUE.values() if deciders.get(one.id) and one.kind != "parts"]
    weak = rows("U1", "confirmed", control="confirmed", problem="too few runs")
    whole = rows([one.id for one in decided], *["confirmed"] * len(decided), kind=[one.kind for one in decided], problem="p0")
    return pd.concat([whole, weak], ignore_index=True)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Return a report of one verdict on every statement that a study decides, and of one without power."""
    claims = claims_of_all()
    assert set(claims) >= set(COLUMNS) - {"source", "power", "standard_error", "outer_low", "outer_high"}
    out = tmp_path_factory.mktemp("report")
    write_report(Verdicts(claims, 0, True, {"numpy": "2"}, ()), out, out)
    return (out / "report.html").read_text()


def test_every_link_within_the_page_leads_somewhere(page):
    anchors = re.findall(r' id="([^"]+)"', page)
    assert len(set(anchors)) == len(anchors)
    links = set(re.findall(r'href="#([^"]+)"', page))
    assert links <= set(anchors), links - set(anchors)
    assert {"proof-2", "group-size", "U9-best-printed", "uninformative"} <= links | set(anchors)


def test_the_search_finds_printed_statements_first_and_shows_their_verdicts(page):
    entries = Seen(page).entries
    for looked_for in ("Theorem 7", "Lemma 14", "2603.01162", "DAPO", "Dr. GRPO", "TIC-GRPO", "U9/best/printed"):
        hits = [one for one in entries if looked_for.lower() in one["data-words"].lower()]
        assert 0 < len(hits) < len(entries)
        assert all(one["id"] and one["data-hit"] for one in hits)
        assert "confirmed" in {one["data-verdict"] for one in hits} <= {"confirmed", "reproduced here", "inconclusive", "mixed"}
    titles = [row.title for row in printed(collection(), claims_of_all(), PAPERS)]
    assert [one["data-hit"] for one in entries[: len(titles)]] == titles
    assert len(entries) == len(titles) + len(CATALOGUE)
    assert page.index('id="printed"') < page.index('id="found"')
    row = page[page.index('id="printed-U9"') :].partition("</tr>")[0]
    for part in ("https://arxiv.org/abs/2603.01162", "Theorem 7", '<span class="confirmed">', 'href="#U9"', "best_group"):
        assert part in row


def test_verdicts_lead_to_the_checks_without_power_and_their_first_clause_is_bold(page):
    assert 'had no power: <a href="#uninformative">see the table of those</a>.' in page
    assert '<span class="verdict holds">Confirmed in the one setting tried (p0).</span>' in page


def test_a_picture_keeps_its_points_to_a_tenth():
    rng = np.random.default_rng(0)
    points = rng.uniform(0.0, 500.0, (40, 2))
    points[10, 1], points[20, 0] = points[9, 1], points[19, 0]
    path = " ".join(f"L {x:.6f} {y:.6f}\n" for x, y in points)
    svg = '<?xml version="1.0"?>\n<!-- seen by none -->\n<svg xmlns="http://www.w3.org/2000/svg"><g transform="scale(0.015625)">'
    svg += f'<path d="M 0 0 {path}" style="stroke: #1f77b4; width: 100%"/><text>a &amp; b</text></g></svg>'
    uri = picture(svg)
    assert not set('"#\n') & set(uri.partition(",")[2])
    (group,) = ElementTree.fromstring(unquote(uri.partition(",")[2]))
    assert group.attrib["transform"] == "scale(0.015625)"
    assert group[0].attrib["style"] == "stroke: #1f77b4; width: 100%"
    assert group[1].text == "a & b"
    kept, at = [], ["0", "0"]
    for letter, numbers in re.findall(r"([A-Z])([\d. ]*)", group[0].attrib["d"]):
        at = {"H": [numbers, at[1]], "V": [at[0], numbers]}.get(letter, numbers.split())
        kept.append(at)
    np.testing.assert_allclose(np.array(kept[1:], dtype=float), points, atol=0.1)
    assert [group[0].attrib["d"].count(letter) for letter in "HV"] == [1, 1]


def test_a_group_law_through_exact_values_is_that_of_the_theory(check_refused):
    law = GroupSizeLaw(2.0, 3.0, 5.0)
    sizes, every = np.array([2.0, 4.0, 64.0]), fine([2, 64])
    np.testing.assert_allclose(group_law(sizes, law.mse(1.0, sizes))(every), law.mse(1.0, every), rtol=1e-12)
    assert (every[0], len(every)) == (2.0, 200)
    np.testing.assert_allclose(every[-1], 64.0)
    check_refused(*((partial(group_law, [2, 4, 8, 16][:n], [1.0, 0.5, 0.25, 0.2][:n]), "at three group sizes") for n in (2, 4)))


def test_a_bound_that_holds_says_how_much_of_it_is_attained():
    made = rows("U4", "confirmed", "confirmed", kind="upper bound", prediction=[5.0, 2.0])
    assert in_words(made) == "Confirmed in both settings (p0; p1). At most 25% of the bound is attained."
    for none in (made.assign(prediction=[5.0, 0.0]), rows("U4", "confirmed", "refuted", kind="upper bound", prediction=1.0)):
        assert "attained" not in in_words(none), "a bound of 0 has no share, and neither has one that is refuted"
    below = rows("U4", "confirmed", kind="upper bound", prediction=1.0, estimate=-0.5)
    assert in_words(below).endswith("At most 0% of the bound is attained.")
