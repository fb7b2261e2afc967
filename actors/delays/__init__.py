"""Delayed records: where they wait, and how each reaches its topic once."""
