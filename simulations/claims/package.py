"""What the package says of itself: that its estimators are simulated right, and that its intervals cover."""

from grpo_theory.evidence import Statement

DERIVED = "docs/derivations.md, {}".format


def _covers(name: str, target: str, source: str, *, conservative: bool = False) -> Statement:
    words = "at least 95%, within one point" if conservative else "95%"
    kind = "upper bound" if conservative else "equality"
    return Statement(f"CI/{name}", source, f"a 95% interval of the {target} covers {words}", kind, whose="ours")


STATEMENTS = (
    Statement("estimator", DERIVED(4), "simulated MSE = exact MSE by enumeration, G = 4", "equality", whose="ours"),
    _covers("value_naive", "value", "Student's t, all rewards for independent"),
    _covers("value_clustered", "value", "Student's t on prompts' means"),
    _covers("value_effective", "value", "Korn and Graubard (1998)", conservative=True),
    _covers("gradient_jackknife", "gradient", DERIVED(9)),
    _covers("gradient_between", "gradient", DERIVED(9)),
    _covers("gradient_ellipsoid", "gradient, jointly", "Hotelling (1931)"),
    _covers("components_jackknife/c1", "c1", DERIVED(8)),
    _covers("components_jackknife/c2", "c2", DERIVED(8)),
    _covers("components_jackknife/c3", "c3", DERIVED(8)),
    _covers("mse_jackknife", "error", DERIVED(8)),
    _covers("group_size_jackknife", "group size", DERIVED(10)),
    _covers("group_size_fieller", "group size", "Fieller (1954)"),
    _covers("group_size_jackknife/reciprocal", "1/group size", DERIVED(10)),
    _covers("group_size_fieller/reciprocal", "1/group size", DERIVED(10), conservative=True),
    *(
        _covers(name, f"{target} from one run", DERIVED(13))
        for name, target in (
            ("last_iterate", "theta*"),
            ("averaged_iterate", "theta*"),
            ("batch_means", "theta*"),
            ("random_scaling", "theta*"),
            ("gap_limit", "gap of the last iterate"),
            ("tail_value", "mean value of the last half"),
            ("learned_value", "value of the last policy"),
            ("best_value", "value of the best policy"),
        )
    ),
    _covers("paired_difference", "mean difference", "Student's t on differences"),
    Statement(
        "CI/paired_sequence",
        DERIVED(13),
        "a 95% sequence misses the mean difference at any number of pairs at most 5% of the time",
        "upper bound",
        whose="ours",
    ),
    Statement(
        "CI/seeds_needed",
        DERIVED(13),
        "at the advised number of seeds the difference is missed at most 20% of the time",
        "upper bound",
        whose="ours",
    ),
)
