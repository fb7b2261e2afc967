"""Recordings of topics: copied, encoded, read and checked."""
