"""The three seams: contracts for everything that the runtime asks of the outside world."""
