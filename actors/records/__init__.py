"""Records in companion partitions and dead-letter topics, and what sources publish of them. Pure."""
