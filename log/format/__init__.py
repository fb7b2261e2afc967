"""The byte format of segments: columns, frames, checksums, scans, indexes. Pure: bytes in, bytes out.

`docs/format.md` specifies every byte. No module here does I/O, reads a clock or draws random numbers.
"""
