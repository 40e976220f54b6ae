"""The sections of the report: statements of a paper that belong together, under a heading that says what they are about."""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module

from grpo_theory.evidence import Statement
from simulations.collection import catalogue, collection

ERROR, TIC, NORMALISATION = "Demystifying GRPO", "TIC-GRPO", "Why GRPO needs normalization"
NEIGHBOURS, PRACTICE = "Neighbouring results", "Practice"


@dataclass(frozen=True)
class Section:
    """A section of the report.

    Attributes
    ----------
    anchor : str
        What links name it by.
    title : str
    group : str
        The paper, or what else it is filed under.
    about : tuple of str
        Ids of the statements; one that ends in / stands for all whose ids begin so.
    asks : str
        Why a reader should care, in a sentence or two, if anything is to be said; what was found is read off the verdicts.
    """

    anchor: str
    title: str
    group: str
    about: tuple[str, ...]
    asks: str = ""

    def statements(self) -> tuple[tuple[Statement, tuple[Statement, ...]], ...]:
        """Return the statements, each with its parts."""
        return tuple(
            (one, collection().parts_of(one)) for one in catalogue().values() if self.holds(one.id) and not _part(one.id)
        )

    def holds(self, name: str) -> bool:
        """Whether a statement, by its id, is treated here."""
        return any(name == own or name.startswith(own if own.endswith("/") else f"{own}/") for own in self.about)


def sections() -> tuple[Section, ...]:
    """Return the sections in the order of the report: those written below, and one for each subject of studies that has more."""
    ours, deciders = collection(), collection().deciders()
    rest: dict[str, list[str]] = {}
    for name in ours.statements:
        if not any(section.holds(name) for section in SECTIONS):
            package = next((ours.studies[one].module.rpartition(".")[0] for one in deciders.get(name, ())), "simulations")
            rest.setdefault(package, []).append(name)
    return SECTIONS + tuple(_beside(package, names) for package, names in rest.items())


def _beside(package: str, names: Iterable[str]) -> Section:
    """Return the section of statements that the studies of a subject decide, under the subject's title."""
    title = str(import_module(package).__doc__).strip().partition("\n")[0].rstrip(".")
    return Section(f"beside-{package.rpartition('.')[2]}", title, PRACTICE, tuple(names))


def section_of(name: str) -> Section:
    """Return the section that treats a statement, by its id."""
    return next(section for section in sections() if section.holds(name))


def _part(name: str) -> bool:
    """Whether a statement is a part of another one of the catalogue."""
    return any(name.startswith(f"{other}/") for other in _heads(name))


def _heads(name: str) -> Iterable[str]:
    pieces = name.split("/")
    return (head for end in range(1, len(pieces)) if (head := "/".join(pieces[:end])) in catalogue())


SECTIONS = (
    Section(
        "u-statistic",
        "The gradient is a U-statistic (Lemma 1)",
        ERROR,
        ("U1", "U2"),
        "GRPO compares each reward with its group's mean. If that makes the gradient an average over pairs of responses, the "
        "theory of such averages applies to it.",
    ),
    Section(
        "error",
        "The error of the gradient, and the oracle's (Theorem 2, Proposition 3, Corollary 4)",
        ERROR,
        ("U3", "U4", "U5"),
        "The oracle knows the prompt's true value V(x) and uses it as its baseline. How much does it cost to estimate the "
        "baseline from the group instead? B is the number of prompts in a batch, G that of responses to each.",
    ),
    Section(
        "baseline",
        "Which baseline is the least noisy (Corollary 5)",
        ERROR,
        ("U6", "R2"),
        "The corollary rests on Assumption 2: the squared length of the score W and the reward Z are uncorrelated given the "
        "prompt. It is measured here before it is used.",
    ),
    Section(
        "group-size",
        "The best group size (Theorem 7)",
        ERROR,
        ("U9",),
        "With a budget of N = BG responses a step: many prompts with few responses each, or few with many? And is the best "
        "answer the same for every budget, schedule and length of training?",
    ),
    Section(
        "bounds",
        "Bounds on the gap during training (Lemmas 6, 14 and 16)",
        ERROR,
        ("U7", "U8", "U18"),
        "The gap $\\Delta$ is the best objective less the present one. The bounds' constants are over a ball around the "
        "maximiser, onto which iterates are projected.",
    ),
    Section(
        "limit-law",
        "The limit law of training (Theorem 8, Corollaries 9 and 10)",
        ERROR,
        ("U10", "U11", "U12", "U13"),
        "The limit of n times the gap as training goes on: a law from which intervals for a run can be read.",
    ),
    Section(
        "standardised",
        "Standardised advantages and token ratios (Lemma 11, Theorem 12)",
        ERROR,
        ("U14", "U15"),
        "The analysis above, for the estimator that trainers run: divided by the group's deviation, with ratios a token and a KL "
        "term in the loss.",
    ),
    Section(
        "objective",
        "Which objective groups of finite size climb (Proposition 13)",
        ERROR,
        ("U16", "R1"),
        "Division by the group's deviation changes the objective. What it changes to is known as groups grow; those of trainers "
        "are finite.",
    ),
    Section(
        "kl",
        "Which gradient a KL term estimates (K3)",
        ERROR,
        ("U17", "R5"),
        "Unbiased for a divergence and unbiased for its gradient are different properties, and a term in the loss differs from a "
        "term in the reward.",
    ),
    Section(
        "decompositions",
        "What the updates off policy are made of",
        TIC,
        ("T1", "T2"),
        "The paper's rates rest on these decompositions. They are identities between vectors, so one group decides them. "
        r"The weights $\zeta$ and $\xi$ are the shares of prompts and of responses in the batch. The clip keeps the tokens in "
        r"$B$ and the responses in $D$. $\mu_c$ is the mean of the group's rewards, and $\mu_0$ and $\mu_k$ are the prompt's "
        "values under the old and the current policy.",
    ),
    Section(
        "whose-gradient",
        "Whose gradient the updates estimate",
        TIC,
        ("T6", "T7", "T8"),
        "Responses come from the old policy, and parameters have moved on from $\\theta_0$ to $\\theta_k$. The update may "
        "follow the gradient of either, or of neither.",
    ),
    Section(
        "norms",
        "Norms of scores, of the gradient, and of what the group's mean adds",
        TIC,
        ("T3", "T4", "T5", "T12", "T13"),
        "The constants in the rates: T is the horizon, V the vocabulary, L the Lipschitz constant of a token's score, R the "
        "largest reward.",
    ),
    Section(
        "rates",
        "Rates of convergence, and division by the response's own length (Theorems 4.1 to 4.3)",
        TIC,
        ("T9", "T10", "T11", "T15"),
        "A bound on the average squared gradient is of use if what it bounds goes to 0 with it.",
    ),
    Section(
        "level",
        "How soon a level is reached",
        TIC,
        ("T14",),
        "Every rival runs at its own best step size, which was chosen on other seeds.",
    ),
    Section(
        "curvature",
        "Curvature of success probabilities",
        NORMALISATION,
        ("N1", "N2", "N3"),
        "The case for dividing by the deviation is that the reward's variance V stands for the local curvature.",
    ),
    Section(
        "steps",
        "What a step gains, and the sum of squared gradients (Theorems 3.1 to 3.4)",
        NORMALISATION,
        ("N4", "N5", "N6", "N8"),
        "Gradients are exact, without noise. X is the largest norm of a prompt's features, n the number of prompts.",
    ),
    Section(
        "faster",
        "When dividing by the standard deviation is faster",
        NORMALISATION,
        ("N7", "division"),
        "At the paper's step sizes, and with each update at its own best step size.",
    ),
    Section(
        "phases",
        "Proxies, cosines and phases on a language model",
        NORMALISATION,
        ("N9", "N10", "N11", "N12"),
        "What the paper measured on its models is measured here on SmolLM2-135M.",
    ),
    Section(
        "mixed-groups",
        "Groups whose rewards differ, and dynamic sampling",
        NEIGHBOURS,
        ("R3", "dynamic sampling"),
        "A group whose rewards are all equal has advantages of 0. What happens to the update if such groups are dropped, "
        "redrawn, or conditioned away?",
    ),
    Section(
        "james-stein",
        "Baselines that borrow strength from other prompts",
        NEIGHBOURS,
        ("R4",),
        "A group's mean is a noisy baseline. Is the error less if it is shrunk towards the other prompts' means?",
    ),
    Section(
        "softmax-bandit",
        "Softmax bandits with exact gradients",
        NEIGHBOURS,
        ("R6",),
        "One prompt, K responses, exact gradients: how fast can a softmax policy learn at all?",
    ),
    Section(
        "pairwise", "The pairwise loss", NEIGHBOURS, ("R7",), "A regression on pairs of responses, of which a step is GRPO's."
    ),
    Section(
        "without-scale",
        "Estimators compared without their scale",
        PRACTICE,
        ("efficiency",),
        "A learning rate undoes any factor, so a squared error says little of estimators whose means differ. Efficiency is the "
        "share of the exact gradient's gain that one step of the estimate's own best length has.",
    ),
    Section(
        "estimators",
        "Which estimator for which question",
        PRACTICE,
        ("estimator",),
        "Every registered estimator, its exact law beside its simulation.",
    ),
    Section(
        "length",
        "Long responses",
        PRACTICE,
        ("length/",),
        "Trainers sample responses of a thousand tokens and more. Which of the advice for a single step, its group size, "
        "baseline and importance ratio, is good there? Some kinds of task have laws that are exact at any length.",
    ),
    Section(
        "allocation",
        "How many responses each prompt gets",
        PRACTICE,
        ("P3/", "P4/", "allocation/"),
        "A budget of responses can be shared out unequally among prompts. What does that gain in one step and in whole runs, and "
        "what must be known for it?",
    ),
    Section(
        "intervals",
        "Which confidence intervals cover",
        PRACTICE,
        ("CI/",),
        "An interval whose coverage is below its level misleads. Coverage is measured where the truth is known.",
    ),
)
"""In the order of the report; statements that none of them names have sections of their own."""
