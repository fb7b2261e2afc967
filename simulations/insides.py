"""What actors of a runtime are started with, and keep across incarnations: for what looks inside one that runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from callboard.actors.catalog.directory import Directory
    from callboard.actors.groups.membership import Membership
    from callboard.runtime import Runtime
    from callboard.supervision.supervisor import Supervisor


def directory_of(runtime: Runtime) -> Directory:
    """What the catalog has of what is live."""
    found: Directory = _given(runtime._session.system.root, "catalog")
    return found


def memberships(runtime: Runtime) -> Sequence[Membership]:
    """Those of all consumer groups; none while the runtime opens, and when it has ended them."""
    root = runtime._session.system.root
    if "groups" not in root:
        return []
    groups: Any = root.supervisor("groups")
    return [_given(groups, name).membership for name in groups._children]


def _given(supervisor: Supervisor, name: str) -> Any:
    """What the start of an actor is given first."""
    child: Any = supervisor._children[name]
    return child._spec.start.args[0]
