"""When dividing by the standard deviation helps: curvature, rates, races, and the phases of a real run."""
