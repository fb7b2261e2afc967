"""Consuming: consumers of groups, what they receive and settle, and readers without a group."""
