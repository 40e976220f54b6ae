"""Advantages to the covectors of groups' estimates, in the logits."""
