"""AB.PEERS, AB.REGION, AB.LINK, AB.VERIFY: the other regions of a cluster, and the links to them.

AB.PEERS shows how far regions are behind and why, AB.REGION the members. AB.LINK applies faults to
links, to test an application while regions are disconnected. AB.VERIFY compares keys with another
region, and AB.REGION REPAIR takes over a key: both need a few messages between the regions, for
which the connection waits.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

from anabranch.commands.server.debug import check_allowed
from anabranch.engine import texts
from anabranch.engine.context import Context
from anabranch.engine.homing import cluster, member
from anabranch.engine.host import LinkFault
from anabranch.errors import CommandError
from anabranch.keyspace.replica import Replica, epoch_of, region_of
from anabranch.metrics.peers import PeerFigures
from anabranch.resp.encode import OK

_NOT_ITSELF = "ERR A region cannot remove itself: ask another one"


# -- AB.PEERS ---------------------------------------------------------------------------------


def peers(ctx: Context, _args: list[bytes]) -> bytes:
    """AB.PEERS: every other region, and the state of the link to it."""
    _, regions = cluster(ctx)
    faults, expiries = regions.links.faults, regions.links.expiries()
    return ctx.reply(
        [
            _peer(peer, faults.get(peer.region), expiries.get(peer.region))
            for peer in regions.peers()
        ]
    )


_COUNTERS = (
    *("sent_bytes", "received_bytes", "sent_raw_bytes", "received_raw_bytes", "connects"),
    *("fetches", "served_fetches", "relayed_bytes", "duplicates", "checksum_errors"),
    *("full_catch_ups", "partial_catch_ups"),
)


def _peer(peer: PeerFigures, fault: LinkFault | None, expires: int | None) -> dict[str, Any]:
    counters = peer.counters
    return {
        "region": peer.region,
        "name": peer.name,
        "state": peer.state,
        "fault": "" if fault is None else _shown(fault),
        "cut-ms": _whole(peer.cut_ms),
        "via": peer.via,
        "relays-for": [[region_of(each), epoch_of(each)] for each in peer.relayed_for],
        "lag-effects": peer.lag_effects,
        "lag-bytes": peer.lag_bytes,
        "lag-ms": _ms(peer.lag_seconds),
        "durable-lag-effects": peer.durable_lag_effects,
        "receive-lag-effects": peer.receive_lag_effects,
        "receive-lag-ms": _ms(peer.receive_lag_seconds),
        "round-trip-us": _us(peer.round_trip_ms),
        "skew-us": _us(peer.skew_ms),
        "connected-ms": _whole(peer.connected_ms),
        "last-row-ms": _whole(peer.row_age_ms),
        "feature-level": peer.feature_level,
        "certificate-expires": expires,
        "differing-keys": peer.differing_keys,
        "in-flight-keys": peer.in_flight_keys,
        "compared-ms": _whole(peer.compared_ms),
        "window-used-bytes": peer.window_used_bytes,
        "held-batches": peer.held_count,
        "held-bytes": peer.held_bytes,
        "held-oldest-ms": round(peer.held_oldest_ms),
        **{name.replace("_", "-"): getattr(counters, name) for name in _COUNTERS},
        "last-catch-up": counters.catch_up_cause,
        "refusals": counters.refusals,
        "last-refusal": peer.refusal,
    }


def _whole(number: float | None) -> int | None:
    return None if number is None else round(number)


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _us(ms: float | None) -> int | None:
    return None if ms is None else round(ms * 1000)


def _shown(fault: LinkFault) -> str:
    """The faults of a link, in the words of AB.LINK."""
    words = []
    if fault.paused:
        words.append("pause")
    if fault.delay_ms or fault.jitter_ms:
        words.append(f"delay {fault.delay_ms:g} {fault.jitter_ms:g}")
    if fault.loss:
        words.append(f"loss {fault.loss * 100:g}")
    if fault.rate:
        words.append(f"rate {fault.rate:g}")
    return ", ".join(words)


# -- AB.REGION --------------------------------------------------------------------------------


def region_list(ctx: Context, _args: list[bytes]) -> bytes:
    """AB.REGION LIST: members, then removed regions."""
    replica, regions = cluster(ctx)
    states = {peer.region: peer.state for peer in regions.peers()}
    states[replica.region] = "myself"
    rows = [
        _member(replica, number, states.get(number, "unreachable"), regions.address(number))
        for number in sorted(replica.members)
    ]
    rows += [
        _member(replica, number, "removed", "")
        for number in sorted(replica.removed)
        if number not in replica.members
    ]
    return ctx.reply(rows)


def _member(replica: Replica, number: int, state: str, address: str) -> dict[str, Any]:
    member = replica.members.get(number)
    replica_ids = [each for each in (replica.own, *replica.vector) if region_of(each) == number]
    return {
        "region": number,
        "name": replica.former_names.get(number, "") if member is None else member.name,
        "address": address,
        "epoch": epoch_of(max(replica_ids, default=0)),
        "state": state,
    }


def region_remove(ctx: Context, args: list[bytes]) -> bytes:
    """AB.REGION REMOVE region [FORCE]."""
    replica, regions = cluster(ctx)
    force = len(args) == 4 and args[3].lower() == b"force"
    if len(args) > 3 and not force:
        raise CommandError(texts.SYNTAX)
    number = member(replica, args[2])
    if number == replica.region:
        raise CommandError(_NOT_ITSELF)
    regions.remove_member(number, force=force)
    return OK


def region_features(ctx: Context, _args: list[bytes]) -> bytes:
    """AB.REGION FEATURES: the feature level of all, and the members with the lowest one."""
    replica, regions = cluster(ctx)
    levels = regions.feature_levels()
    low, high = min(levels.values()), max(levels.values())
    rows: list[Any] = []
    for number, level in sorted(levels.items()):
        member = replica.members.get(number)
        name = "" if member is None else member.name
        rows.append(
            {
                "region": number,
                "name": name,
                "feature-level": level,
            }
        )
    behind = [number for number, level in sorted(levels.items()) if level == low < high]
    return ctx.reply(
        {
            "feature-level": low,
            "held-back-by": behind,
            "regions": rows,
        }
    )


# -- AB.LINK ----------------------------------------------------------------------------------


def link(ctx: Context, args: list[bytes]) -> bytes:
    """AB.LINK region PAUSE | RESUME | DELAY ms [jitter] | LOSS percent | RATE bytes."""
    check_allowed(ctx, "AB.LINK")
    replica, regions = cluster(ctx)
    number = once_other(replica, args[1])
    known = _FAULTS.get(args[2].lower())
    if known is None:
        raise CommandError(texts.SYNTAX)
    change, fewest, most = known
    values = [_number(raw) for raw in args[3:]]
    if not fewest <= len(values) <= most:
        raise CommandError(texts.SYNTAX)
    change(regions.links.fault(number), *values)
    regions.links.faults_changed()
    return OK


def _number(raw: bytes) -> float:
    try:
        value = float(raw)
    except ValueError:
        raise CommandError("ERR value is not a valid float") from None
    if not isfinite(value) or value < 0:
        raise CommandError("ERR value is out of range, must be positive")
    return value


def _pause(fault: LinkFault) -> None:
    fault.paused = True


def _resume(fault: LinkFault) -> None:
    fault.paused = False
    fault.delay_ms = fault.jitter_ms = fault.loss = fault.rate = 0.0


def _delay(fault: LinkFault, ms: float, jitter_ms: float = 0.0) -> None:
    fault.delay_ms, fault.jitter_ms = ms, jitter_ms


def _loss(fault: LinkFault, percent: float) -> None:
    if percent > 100:
        raise CommandError("ERR value is out of range, must be at most 100")
    fault.loss = percent / 100


def _rate(fault: LinkFault, bytes_per_second: float) -> None:
    fault.rate = bytes_per_second


_FAULTS: dict[bytes, tuple[Callable[..., None], int, int]] = {
    b"pause": (_pause, 0, 0),
    b"resume": (_resume, 0, 0),
    b"delay": (_delay, 1, 2),
    b"loss": (_loss, 1, 1),
    b"rate": (_rate, 1, 1),
}
"""By word: the function that changes a fault, and its least and greatest count of numbers."""


def other(replica: Replica, raw: bytes) -> int:
    """The number of a member that is not this region; CommandError if there is none."""
    number = member(replica, raw)
    if number == replica.region:
        raise CommandError("ERR This is the region you are talking to: name another one")
    return number


def once_other(replica: Replica, raw: bytes) -> int:
    """The number of another region, maybe a removed one, from its number or the name it had."""
    word = raw.decode("utf-8", "replace")
    for number in replica.removed:
        if number not in replica.members and word in {
            str(number),
            replica.former_names.get(number),
        }:
            return number
    return other(replica, raw)


_SHOWN_MAX = 100
"""The most differing keys that are listed when all keys were compared."""


def verify(ctx: Context, args: list[bytes]) -> bytes | None:
    """AB.VERIFY region [key ...]."""
    replica, regions = cluster(ctx)
    region = other(replica, args[1])
    db = ctx.db.index
    places = [(db, key) for key in args[2:]]
    verdict = ctx.outcome(args, lambda: regions.verify(region, places))
    if verdict is None:
        return None
    if places:
        return ctx.reply([verdict.keys[place] for place in places])
    listed = sorted(verdict.keys.items())
    found = list(verdict.keys.values())
    return ctx.reply(
        {
            "equal": verdict.equal,
            "differs": found.count("differs"),
            "in-flight": verdict.in_flight,
            "keys": [[*place, how] for place, how in listed[:_SHOWN_MAX]],
        }
    )


def repair(ctx: Context, args: list[bytes]) -> bytes | None:
    """AB.REGION REPAIR key FROM region."""
    replica, regions = cluster(ctx)
    if args[3].lower() != b"from":
        raise CommandError(texts.SYNTAX)
    region = other(replica, args[4])
    place = ctx.db.index, args[2]
    done = ctx.outcome(args, lambda: regions.repair(region, place))
    return None if done is None else OK
