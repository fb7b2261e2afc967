"""The byte format of segments: frames of columns, checksums, compression, scans, indexes. Pure: bytes in and out.

`docs/format.md` specifies every byte. No module here does I/O, reads a clock or draws random numbers.
"""
