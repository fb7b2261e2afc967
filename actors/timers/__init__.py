"""Timers: the one place where the broker waits for a time."""
