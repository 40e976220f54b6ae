"""What a user's own rollouts tell: how well the planner's answers cover the truth."""
