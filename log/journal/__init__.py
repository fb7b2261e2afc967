"""Journals: events and snapshots of one owner, in segments."""
