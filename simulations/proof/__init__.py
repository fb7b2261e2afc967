"""Proof by mutation: every safeguard is switched off once, and some seed has to miss it.

A simulator that finds nothing may have nothing to find, or may be blind. So each safeguard of the product stands in a
table (`safeguards`), with what switches it off: a function that is replaced by name, or a verb that the simulated disk
leaves out. `prove` runs seeds of the scenarios that should notice until one fails, and then the same seed with the
safeguard back in place, which must end well. A name that does not exist any more fails loudly (`patches`).

A safeguard that no seed can catch is either none, or not tested.
"""

from callboard.simulations.proof.proving import Proof, prove
from callboard.simulations.proof.safeguards import SAFEGUARDS, Safeguard

__all__ = ["SAFEGUARDS", "Proof", "Safeguard", "prove"]
