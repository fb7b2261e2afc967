"""The log: bytes, offsets and files; and what everything needs: the error tree, limits, the three seams."""
