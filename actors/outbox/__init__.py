"""Outboxes: what acks have published, and how each message comes to its topic once."""
