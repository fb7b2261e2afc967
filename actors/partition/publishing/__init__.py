"""Publishing once: what a partition knows of producers and deduplication ids, and what it admits to its log."""
