"""Choice: which records a group leases next, and which it passes over."""
