"""Training runs whose prompts get different numbers of responses: a driver of its own, made of the stages of the other."""
