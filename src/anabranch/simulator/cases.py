"""What runs have to come to: a check of something that never happens proves nothing."""

from __future__ import annotations

from typing import Final

__all__ = ["CASES", "RARE_CASES"]

CASES: Final = (
    "acknowledgement that travels",
    "acknowledgement held back",
    "pending entries given up",
    "SETID forward",
    "SETID to an ID",
    "CREATE || CREATE",
    "CREATE || DESTROY",
    "DEL || XADD",
    "removal || removal",
    "idempotent ID accepted by two regions",
    "relay used",
    "held batch",
    "state joined",
    "hole left by a power failure",
    "bit of the log turned over",
    "start refused for a damaged log",
    "epoch opened",
    "effects fetched back",
    "tombstones waited",
    "equal vectors compared",
    "recovery compared with what was written",
    "recovery compared with replay",
    "wandering reader read to the end",
    "half-open connection",
    "region removed",
    "disk lost",
    "number in use refused",
    "batch sent twice",
    "memory full",
    "blackout",
    "feature level raised",
    "group moved",
    "pending entry moved",
    "read withheld",
    "replies held for a slow sync",
    "newcomer refused writes",
    "snapshot taken",
)
"""Twenty runs that never come to one of these prove little."""

RARE_CASES: Final = (
    "read answered in trouble",
    "state joined both ways",
    "state join: link ended when it was asked for",
    "state join: link ended when it was under way",
    "state join: process ended when it was asked for",
    "state join: process ended when it was under way",
    "state join: power failed before it was on the disk",
    "state join resumed",
    "damage found by a reader of the log",
    "late entry moved",
)
"""Some hundred runs come to these as well."""
