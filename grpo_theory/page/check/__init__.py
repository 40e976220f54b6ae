"""A trainer's check as text and as JSON."""
