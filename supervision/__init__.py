"""Supervision: which actors are restarted, when, in which order and how often; and the tree of actors."""

from callboard.supervision.child import TreeNode
from callboard.supervision.policies import (
    IMMEDIATE,
    RESTARTS,
    STRATEGIES,
    Backoff,
    RestartWindow,
)
from callboard.supervision.spec import ChildSpec, SupervisorSpec
from callboard.supervision.supervisor import Supervisor
from callboard.supervision.system import System, open_system

__all__ = [
    "IMMEDIATE",
    "RESTARTS",
    "STRATEGIES",
    "Backoff",
    "ChildSpec",
    "RestartWindow",
    "Supervisor",
    "SupervisorSpec",
    "System",
    "TreeNode",
    "open_system",
]
