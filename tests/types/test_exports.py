"""What users may need to name is in `callboard`: everything that its public calls take, give and hold."""

from __future__ import annotations

import ast
import inspect
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import callboard
from callboard.log import errors

NOT_FOR_USERS = {
    "callboard.log.seams.disk.Incarnation": "who writes a disk of their own needs all of that module",
    "callboard.log.seams.disk.Lock": "the same",
    "callboard.arguments.PathLike": "os.PathLike is one",
    "callboard.consumer.publishing_acks.NamedTopic": "a Topic is one",
    "callboard.consumer.publishing_acks.Publishing": "it is the message, or the batch, itself",
}
"""Classes that public signatures show and that nobody has to name, each with its reason."""


MODULES = (callboard.events, callboard.statistics, callboard.hints)
"""What programs read and do not call."""


def _exported() -> dict[str, Any]:
    names = {name: getattr(callboard, name) for name in set(callboard.__all__) - set(errors.__all__)}
    for module in MODULES:
        names |= {name: getattr(module, name) for name in module.__all__}
    return names


def _hints(owner: Any) -> Iterator[tuple[str, Any]]:
    """Types in the public signatures and attributes of a class or function, with where they stand."""
    if inspect.isfunction(owner):
        yield from ((owner.__name__, hint) for hint in _types(owner).values())
        return
    if not inspect.isclass(owner):
        yield str(owner), owner
        return
    yield from ((f"{owner.__name__}.{name}", hint) for name, hint in _types(owner).items() if name[0] != "_")
    for name, member in vars(owner).items():
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if inspect.isfunction(function) and (
            name[0] != "_" or name in ("__aenter__", "__anext__", "__iter__")
        ):
            yield from ((f"{owner.__name__}.{name}", hint) for hint in _types(function).values())


def _types(owner: Any) -> dict[str, Any]:
    """Its own annotations, resolved, also those of names that are imported for checkers alone."""
    module = inspect.getmodule(owner)
    names = {**_for_checkers(module), **vars(module)}
    own = vars(owner).get("__annotations__", {}) if inspect.isclass(owner) else owner.__annotations__
    told = {
        name: f"tuple[{hint}]" if isinstance(hint, str) else hint for name, hint in own.items()
    }  # also of `*Ts`
    return {name: eval(hint, names) if isinstance(hint, str) else hint for name, hint in told.items()}


def _for_checkers(module: Any) -> dict[str, Any]:
    """What a module imports under `if TYPE_CHECKING`."""
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    found: dict[str, Any] = {}
    for block in (n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"):
        for line in (n for n in block.body if isinstance(n, ast.ImportFrom)):
            home = __import__(str(line.module), fromlist=["x"])
            found |= {name.name: getattr(home, name.name) for name in line.names if name.name != "*"}
    return found


def _classes(hint: Any) -> Iterator[type]:
    """The classes that a type is made of."""
    if inspect.isclass(hint) and typing.get_origin(hint) is None:
        yield hint
    for part in (typing.get_origin(hint), *get_args(hint)):
        for inner in part if isinstance(part, list) else [part]:
            if inner is not None and inner is not hint:
                yield from _classes(inner)


def test_every_class_in_a_public_signature_is_exported() -> None:
    """Whoever is given something by `callboard` can name its class: in an annotation, in isinstance."""
    public = {id(thing) for thing in _exported().values()}
    public |= {id(getattr(errors, name)) for name in errors.__all__}
    missing: dict[str, str] = {}
    for thing in _exported().values():
        for where, hint in _hints(thing):
            for found in _classes(hint):
                if found.__module__.startswith("callboard.") and id(found) not in public:
                    missing.setdefault(f"{found.__module__}.{found.__qualname__}", where)
    assert sorted(missing) == sorted(NOT_FOR_USERS), missing


def test_what_is_called_fits_on_a_screen() -> None:
    """What completion shows after `callboard.` are errors and what a program calls."""
    assert len(callboard.__all__) <= 80
    assert len(_exported()) == len(set(callboard.__all__) - set(errors.__all__)) + sum(
        len(module.__all__) for module in MODULES
    ), "a name stands in two modules"


def test_every_event_is_exported() -> None:
    """Listeners tell events apart by their classes, so each has its name."""
    from callboard.actors import notices
    from callboard.actors.kernel import events

    found = [
        item
        for module in (notices, events)
        for item in vars(module).values()
        if inspect.isclass(item) and item.__module__ == module.__name__ and hasattr(item, "__attrs_attrs__")
    ]
    assert len(found) > 15
    kept = {"CarriesException", "UndeliveredMessage"}  # what events are made of; of the system's own list
    assert [
        item.__name__ for item in found if getattr(callboard.events, item.__name__, None) is not item
    ] == sorted(kept)


def test_all_names_are_those_of_the_reference() -> None:
    """`from callboard import *`, `dir` and `help` give what the pages of public names and errors tell of, no more."""
    given: dict[str, Any] = {}
    exec("from callboard import *", given)
    del given["__builtins__"]
    assert set(given) == set(callboard.__all__)  # type: ignore[attr-defined] # made when first asked for
    submodules = {"events", "hints", "lazy", "statistics"}
    assert set(given) == {name for name in dir(callboard) if not name.startswith("__")} - submodules
    pages = Path(__file__).parents[2] / "docs" / "reference"
    text = "".join((pages / name).read_text(encoding="utf-8") for name in ("api.md", "errors.md"))
    told = set(re.findall(r"(?:::[ ]callboard\.(?:\w+\.)?|^\| `|^#+ )(\w+)(?:`|$)?", text, re.MULTILINE))
    assert {*given, *_exported()} <= told
