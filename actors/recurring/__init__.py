"""Recurring publishes: schedules, and the actor that publishes what is due by them."""
