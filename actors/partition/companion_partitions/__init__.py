"""Companion partitions: the waiting partition (delayed records) and the outbox (what acks publish)."""
