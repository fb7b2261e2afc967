"""Checks of a root folder: the platform, the file system, and whether its locks can be relied on."""

from __future__ import annotations

import os
import re
import sys
from typing import Final

from callboard.log.errors import UnsupportedPlatform

NETWORK_TYPES: Final = frozenset(
    [
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "fuse.ceph",
        "fuse.davfs2",
        "fuse.glusterfs",
        "fuse.gcsfuse",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "gfs2",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "smb3",
        "smbfs",
    ]
)
"""Types of file systems that keep their files on another machine."""
MOUNTS: Final = "/proc/self/mounts"
OCTAL_ESCAPE: Final = re.compile(r"\\([0-7]{3})")
"""How the text of /proc/self/mounts writes spaces, tabs, line feeds and backslashes."""


class NetworkFileSystemWarning(UserWarning):
    """The directory lies on a network file system, whose locks and syncs promise less than a local disk's."""


def check_platform(platform: str = sys.platform) -> None:
    """Refuse systems whose files cannot keep the promises made here."""
    if platform in {"win32", "cygwin"}:
        raise UnsupportedPlatform(
            "Callboard does not run on Windows: it needs flock, atomic renames over open files and directory syncs. "
            "Nothing was done. Use Linux (WSL 2 included) or macOS.",
            platform=platform,
        )


def mount_type(path: str, mounts: str) -> str | None:
    """The type of the file system that holds the real path `path`, by the text of /proc/self/mounts."""
    found, depth = None, -1
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = OCTAL_ESCAPE.sub(lambda escape: chr(int(escape[1], 8)), fields[1])
        inside = point == "/" or path == point or path.startswith(point + "/")
        # Later mounts cover earlier ones on the same point.
        if inside and len(point) >= depth:
            found, depth = fields[2], len(point)
    return found


def file_system_type(path: str) -> str | None:
    """The type of the file system that holds `path`; None where the system does not say."""
    try:
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as source:
            return mount_type(os.path.realpath(path), source.read())
    except OSError:
        return None
