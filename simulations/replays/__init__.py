"""Replaying recordings under the simulator: production code, virtual time, faults, and an account of every record."""
