"""A disk in memory that fails like real ones."""
