"""Measure after how many seeds each missing safeguard is noticed, and write that into seeds.toml: names, or all.

Run `python docs/generate.py` after it: the page about proofs shows what was measured.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from callboard.simulations.proof import SAFEGUARDS, prove
from callboard.simulations.proof.proving import stored_proofs

FILE = Path(__file__).parents[3] / "simulations/proof/seeds.toml"
HEAD = """\
# What noticed that a safeguard was switched off: scenario, seed, the promise that was broken, and after how many seeds
# of its scenarios. Written by tests/simulations/proof/renew.py.
"""


def main() -> None:
    """Measure those that are named, or all."""
    rows = stored_proofs()
    for name in sys.argv[1:] or SAFEGUARDS:
        proof = prove(name)
        print(f"{name}: {proof.scenario} {proof.seed}, after {proof.tried}: {proof.promise}", flush=True)
        rows[name] = {
            "scenario": proof.scenario,
            "seed": proof.seed,
            "seeds": proof.tried,
            "promise": proof.promise,
        }
    lines = [HEAD]
    for name in SAFEGUARDS:
        fields = "".join(f"{field} = {json.dumps(value)}\n" for field, value in rows[name].items())
        lines.append(f"[{json.dumps(name)}]\n{fields}")
    FILE.write_text("\n".join(lines), "utf-8")


if __name__ == "__main__":
    main()
