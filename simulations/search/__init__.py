"""Search: sweeps over seeds, stored failures, shrinking, the story of a failure, coverage, and the report."""
