"""Delayed records: where they wait, and how each comes to its topic once."""
