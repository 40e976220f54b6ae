"""Random words to prompts and to how often each response came with each reward."""
