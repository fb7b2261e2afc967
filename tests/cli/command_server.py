"""Has imported what commands need, and forks a process for each that it is asked for: python command_server.py FD.

A request comes on the socket FD: JSON of `argv`, `folder` and `environment`, and the three standard streams as
descriptors. The answer is the exit code. Command modules are not imported here: each process loads its own.
"""

from __future__ import annotations

import json
import os
import socket
import sys

import callboard.cli
import callboard.cli.group
import callboard.runtime  # what takes long

REQUEST_BYTES = 1 << 20


def serve(control: socket.socket) -> dict[str, object] | None:
    """Answer requests until there are no more; in a forked process, return what it has been asked for."""
    while True:
        data, streams, _, _ = socket.recv_fds(control, REQUEST_BYTES, 3)
        if not data:
            return None
        process = os.fork()
        if not process:
            control.close()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            request: dict[str, object] = json.loads(data)
            return request
        for stream in streams:
            os.close(stream)
        control.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))


if __name__ == "__main__":
    asked = serve(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        os.chdir(asked["folder"])
        os.environ.clear()
        os.environ.update(asked["environment"])
        sys.argv[:] = asked["argv"]
        sys.path[0] = os.path.dirname(sys.argv[0])
        sys.exit(callboard.cli.main())
