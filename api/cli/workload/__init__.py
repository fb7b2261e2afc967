"""`callboard workload`: traffic, recordings and profiles; jobs run on Spark."""
