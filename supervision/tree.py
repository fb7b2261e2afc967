"""TreeNode: the tree of supervisors and actors at one moment, as a value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import attrs


@attrs.frozen(kw_only=True)
class TreeNode:
    """One supervisor or actor, with its children."""

    path: str
    """ "" for the root."""
    name: str
    kind: Literal["actor", "supervisor"]
    state: str
    """new, starting, running, waiting (for a restart), stopping, failed or stopped."""
    restarts: int
    mailbox_depth: int = 0
    rate_per_s: float = 0.0
    last_failure: str | None = None
    children: tuple[TreeNode, ...] = ()

    def walk(self) -> Iterator[TreeNode]:
        """This node and all below it, in start order."""
        yield self
        for child in self.children:
            yield from child.walk()

    def draw(self) -> str:
        """The tree as lines of text."""
        return "\n".join(self._lines("", ""))

    def _lines(self, head: str, indent: str) -> Iterator[str]:
        facts = [self.state]
        if self.restarts:
            facts.append(f"restarts {self.restarts}")
        if self.mailbox_depth:
            facts.append(f"mailbox {self.mailbox_depth}")
        if self.last_failure is not None:
            facts.append(self.last_failure)
        yield f"{head}{self.name} ({', '.join(facts)})"
        for number, child in enumerate(self.children, start=1):
            last = number == len(self.children)
            yield from child._lines(
                indent + ("└── " if last else "├── "), indent + ("    " if last else "│   ")
            )
