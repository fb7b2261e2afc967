"""Timers: the actor that wakes the broker's actors and clients at their deadlines and instants."""
