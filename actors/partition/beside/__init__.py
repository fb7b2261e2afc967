"""What waits beside a partition: delayed records, and what acks publish."""
