"""Small files mapped into memory.

Mapped by `mmap` of the C library, since Python's own keeps a descriptor for each mapping (before 3.13), and a partition
that is idle should have none.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import stat
from typing import Any, Final

__all__ = ["Mapping", "map_file"]

FAILED: Final = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_map: Any = _libc.mmap
_map.restype = ctypes.c_void_p
_map.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long
)  # fmt: skip
_unmap: Any = _libc.munmap
_unmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


class Mapping:
    """The first bytes of a file, in memory. It needs no descriptor."""

    __slots__ = ("_address", "length", "view")

    def __init__(self, descriptor: int, length: int) -> None:
        address = _map(None, length, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, descriptor, 0)
        if address == FAILED:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        self._address = address
        self.length = length
        self.view = memoryview((ctypes.c_char * length).from_address(address)).cast("B")

    def close(self) -> None:
        """Unmap, once. `view` must not be used any more."""
        address, self._address = self._address, None
        if address is not None:
            self.view.release()
            _unmap(address, self.length)


def map_file(path: str, length: int) -> Mapping:
    """Map the first `length` bytes of a file, made and filled with zeros as needed. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        if status.st_size < length:
            # Written, not truncated: a store into a hole of a full disk would kill the process (SIGBUS).
            os.pwrite(descriptor, bytes(length - status.st_size), status.st_size)
        return Mapping(descriptor, length)
    finally:
        os.close(descriptor)
