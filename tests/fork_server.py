"""Has imported what most programs need, and forks a process for each that it is asked for: python fork_server.py FD.

A request comes on the socket FD: JSON of `argv`, `code`, `folder` and `environment`, and the three standard streams as
descriptors. The answer is the exit code.

What has been imported is frozen: each process ends with collections of garbage, which would look at all of it, and
copy the pages that it lies on.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import socket
import sys
from typing import Any

import callboard.cli

REQUEST_BYTES = 1 << 20


def serve(control: socket.socket) -> dict[str, Any]:
    """Answer requests until there are no more; in a forked process, return what it has been asked for."""
    while True:
        data, streams, _, _ = socket.recv_fds(control, REQUEST_BYTES, 3)
        if not data:
            sys.exit()
        process = os.fork()
        if not process:
            control.close()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            request: dict[str, Any] = json.loads(data)
            return request
        for stream in streams:
            os.close(stream)
        control.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))


if __name__ == "__main__":
    for module in pkgutil.walk_packages(callboard.cli.__path__, "callboard.cli."):
        importlib.import_module(module.name)
    gc.collect()
    gc.freeze()
    asked = serve(socket.socket(fileno=int(sys.argv[1])))
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv[:] = asked["argv"]
    del sys.path[0]  # of this file
    exec(compile(asked["code"], sys.argv[0], "exec"), {"__name__": "__main__"})
