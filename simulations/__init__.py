"""The simulated world: virtual time, a failing disk, seeded randomness, and what runs in it."""
