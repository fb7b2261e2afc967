"""Delivery: which message goes to which consumer of a group, how often, and when it is settled. Pure."""
