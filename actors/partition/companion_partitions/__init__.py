"""The companion partitions of a partition: the waiting partition (delayed records) and the outbox (what acks publish)."""
