"""The papers' claims, one file a study: settings -> table of (prediction, estimate, standard error) -> verdict."""
