"""The three seams: protocols for everything that the runtime needs from the outside world."""
