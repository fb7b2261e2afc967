"""Dead letters, as programs see them: those that partitions keep, and those in topics of their own."""
