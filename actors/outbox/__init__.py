"""Outboxes: what acks have published, and how each message reaches its topic once."""
