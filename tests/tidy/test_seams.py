"""Nothing outside log/host reaches the outside world: by syntax tree, as a linter misses `open` and aliases.

Vocabulary: a *use* is a dotted name as Python would resolve it, through whatever alias: `os.replace` for
`from os import replace as swap; swap(...)`. A banned name bans all below it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

HOME = "callboard.log.host"

BANNED = {
    "asyncio",
    "concurrent",
    "ctypes",
    "datetime.date.today",
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
    "fcntl",
    "fileinput",
    "getpass",
    "glob",
    "http",
    "importlib.resources",
    "io",
    "linecache",
    "logging",
    "mmap",
    "multiprocessing",
    "os",
    "pathlib",
    "platform",
    "posix",
    "pty",
    "random",
    "resource",
    "secrets",
    "select",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "socketserver",
    "sqlite3",
    "ssl",
    "subprocess",
    "sys.stderr",
    "sys.stdin",
    "sys.stdout",
    "tarfile",
    "tempfile",
    "termios",
    "threading",
    "time",
    "trio.Path",
    "trio.SocketListener",
    "trio.SocketStream",
    "trio.from_thread",
    "trio.lowlevel.FdStream",
    "trio.lowlevel.open_process",
    "trio.open_file",
    "trio.open_signal_receiver",
    "trio.open_tcp_listeners",
    "trio.open_tcp_stream",
    "trio.open_unix_socket",
    "trio.run_process",
    "trio.serve_tcp",
    "trio.socket",
    "trio.to_thread",
    "trio.wrap_file",
    "urllib",
    "uuid",
    "zipfile",
}
HARMLESS = {
    "io.BytesIO",
    "os.PathLike",
    "os.fspath",
    "os.strerror",
    "pathlib.PurePath",
    "pathlib.PurePosixPath",
    "urllib.parse",
}
PRINTING = {"sys.stderr", "sys.stdout"}  # the command line's purpose
BUILTINS = {"__import__", "breakpoint", "eval", "exec", "input", "open"}
PATH_METHODS = {
    "hardlink_to",
    "iterdir",
    "read_bytes",
    "read_text",
    "rglob",
    "symlink_to",
    "write_bytes",
    "write_text",
}


def _within(name: str, names: set[str]) -> bool:
    """Whether `name`, or what it lies in, is one of `names`."""
    parts = name.split(".")
    return any(".".join(parts[:length]) in names for length in range(1, len(parts) + 1))


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def _living(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes that can run: not what stands under `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(node):
        if not _is_type_checking(child):
            yield child
            yield from _living(child)


def _dotted(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return inner and f"{inner}.{node.attr}"
    return None


def uses(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that a module uses of the banned names."""
    nodes = list(_living(tree))
    names: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                names[alias.asname or alias.name] = full
                if _is_banned(full):
                    yield node.lineno, full
    bound = _bound(nodes)
    inner = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        if isinstance(node, ast.Attribute | ast.Name) and id(node) not in inner:
            first, dot, rest = (_dotted(node) or "").partition(".")
            if first in names:
                full = names[first] + dot + rest
                if _is_banned(full):
                    yield node.lineno, full
            elif first in BUILTINS and not dot and first not in bound:
                yield node.lineno, first
        if isinstance(node, ast.Call):
            yield from _calls(node, names)


def _is_banned(name: str) -> bool:
    return _within(name, BANNED) and not _within(name, HARMLESS)


def _bound(nodes: list[ast.AST]) -> set[str]:
    """Names that the module itself gives to something, so that they are not the builtins."""
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    arguments = {node.arg for node in nodes if isinstance(node, ast.arg)}
    defined = {
        node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    return stored | arguments | defined


def _calls(call: ast.Call, names: dict[str, str]) -> Iterator[tuple[int, str]]:
    """Calls that give themselves away by their form: methods of paths, imports by name."""
    constants = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
    function = call.func
    if isinstance(function, ast.Attribute):
        modes = {
            value for value in constants if isinstance(value, str) and value and set(value) <= set("rwxabt+")
        }
        if function.attr in PATH_METHODS:
            yield call.lineno, f"pathlib.Path.{function.attr}"
        elif function.attr == "open" and modes:
            yield call.lineno, "pathlib.Path.open"
    first, dot, rest = (_dotted(function) or "").partition(".")
    if names.get(first, first) + dot + rest == "importlib.import_module":
        for value in constants:
            if isinstance(value, str) and _is_banned(value):
                yield call.lineno, value


def test_only_the_seams_touch_the_outside_world(house: Any) -> None:
    """No module outside log/host uses files, clocks, randomness, threads or processes, but by allowed.toml."""
    allowed = house.allowed["seams"]
    problems = []
    needed: dict[str, set[str]] = {path: set() for path in allowed}
    for source in house.sources:
        if source.module.startswith(HOME):
            continue
        grants = set(allowed.get(source.path, {}).get("uses", ()))
        prints = source.module.startswith("callboard.cli")
        for line, name in uses(source.tree):
            if prints and _within(name, PRINTING):
                continue
            granted = {grant for grant in grants if _within(name, {grant})}
            if granted:
                needed[source.path] |= granted
            else:
                problems.append(f"{source.path}:{line}: {name}")
    for path, entry in allowed.items():
        problems += [
            f"allowed.toml: {path} no longer uses {use}" for use in sorted(set(entry["uses"]) - needed[path])
        ]
        if len(entry.get("reason", "")) < 20:
            problems.append(f"allowed.toml: {path} has no reason")
    house.demand_none(problems)


def found(text: str) -> list[str]:
    """The names that a piece of code uses of the banned ones."""
    return sorted({name for _line, name in uses(ast.parse(text))})


def test_aliases_are_seen_through() -> None:
    """A banned name is found under whatever name it was imported."""
    assert found("import os as system\nsystem.replace('a', 'b')") == ["os.replace"]
    assert found("from time import monotonic as now\nnow()") == ["time.monotonic"]
    assert found("import trio\nasync def f():\n await trio.to_thread.run_sync(g)") == [
        "trio.to_thread.run_sync"
    ]
    assert found("from trio import to_thread as t") == ["trio.to_thread"]
    assert found("import importlib\nimportlib.import_module('random')") == ["random"]
    assert found("from datetime import datetime\ndatetime.now()") == ["datetime.datetime.now"]


def test_builtin_open_is_seen() -> None:
    """The builtin `open` is found, also when it is only passed on; a function of that name is not taken for it."""
    assert found("open('x')") == ["open"]
    assert found("f = open") == ["open"]
    assert found("def open(): ...\nopen()") == []


def test_methods_of_paths_are_seen() -> None:
    """A path that came in as an argument is still a path."""
    assert found("def f(p):\n p.read_text()") == ["pathlib.Path.read_text"]
    assert found("def f(p):\n p.open('rb')") == ["pathlib.Path.open"]
    assert found("def f(journal):\n journal.open()") == []


def test_harmless_names_and_types_pass() -> None:
    """Names without an effect, and imports for the type checker only, are no uses."""
    assert found("import os\ndef f(p: os.PathLike): return os.fspath(p)") == []
    assert found("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pathlib import Path") == []
    assert found("import datetime\ndatetime.timedelta(1)") == []
