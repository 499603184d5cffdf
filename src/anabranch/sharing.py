"""How a limit of entries is shared out among places that have something to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

_Place = TypeVar("_Place", tuple[int, bytes], tuple[str, str])


def share(backlogs: Mapping[_Place, int], limit: int) -> dict[_Place, int]:
    """Share `limit` entries out in proportion to what there is to read.

    Each with anything to read gets one at least, even beyond the limit: none may wait for ever.
    What rounding leaves over goes to the largest.
    """
    total = sum(backlogs.values())
    if total <= limit:
        return dict(backlogs)
    busy = {place: backlog for place, backlog in backlogs.items() if backlog}
    spare, rest = max(limit - len(busy), 0), max(total - len(busy), 1)
    shares = dict.fromkeys(backlogs, 0)
    for place, backlog in busy.items():
        shares[place] = 1 + (backlog - 1) * spare // rest
    left = limit - sum(shares.values())
    for place in sorted(busy, key=lambda place: (-busy[place], place)):
        if left <= 0:
            break
        more = min(left, busy[place] - shares[place])
        shares[place] += more
        left -= more
    return shares
