"""Supervision: which actors are restarted, when, in which order and how often; and the tree of actors."""

from callboard.supervision.backoff import IMMEDIATE, Backoff
from callboard.supervision.intensity import RestartWindow
from callboard.supervision.spec import ChildSpec, SupervisorSpec
from callboard.supervision.strategy import RESTARTS, STRATEGIES, Restart, Strategy
from callboard.supervision.supervisor import Supervisor
from callboard.supervision.system import System, open_system
from callboard.supervision.tree import TreeNode

SupervisorRef = Supervisor

__all__ = [
    "IMMEDIATE",
    "RESTARTS",
    "STRATEGIES",
    "Backoff",
    "ChildSpec",
    "Restart",
    "RestartWindow",
    "Strategy",
    "Supervisor",
    "SupervisorRef",
    "SupervisorSpec",
    "System",
    "TreeNode",
    "open_system",
]
