"""Every policy of streams and groups, each once: type, default, bounds, scope, meaning.

A policy is a setting of a name, not of the process: ``AB.POLICY SET`` gives it to a key, to a group
of a key, or to all names that match a pattern. The commands, their errors and the table in
docs/policies.md are made from :data:`POLICIES`. To add a policy, add one row here.

Values are texts of one argument; parts of a value are joined by colons. A text that a newer region
has set may be unknown here: it is kept and not used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from anabranch.config.kinds import Choice, Integer, Kind, Memory, YesNo
from anabranch.pattern import PATTERN_BYTES_MAX

_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(0|[1-9][0-9]{0,14})(ms|s|m|h|d)?")
DURATION_MAX_MS: Final = 3650 * _MS["d"]
_DURATION_WORDS: Final = "a number with ms, s, m, h or d, or of milliseconds"
_DELAYS_MAX: Final = 32
_NAME_BYTES_MAX: Final = 1 << 16
_REGION_MAX: Final = 255
WAITING_MAX: Final = 100_000
"""The greatest ``key-waiting``."""


def duration_ms(text: str, low: int = 1) -> int:
    """Milliseconds of ``200ms``, ``1s``, ``5m``, ``1h``, ``7d`` or a number without a unit.

    ValueError, with what is allowed, for other texts and below ``low``.
    """
    match = _DURATION.fullmatch(text.lower())
    ms = int(match[1]) * _MS[match[2] or "ms"] if match else -1
    if not low <= ms <= DURATION_MAX_MS:
        raise ValueError(f"a duration is {_DURATION_WORDS}, from {low}ms to 3650d")
    return ms


def duration_text(ms: int) -> str:
    """A duration with the longest unit that fits."""
    for unit in ("d", "h", "m", "s"):
        if ms and ms % _MS[unit] == 0:
            return f"{ms // _MS[unit]}{unit}"
    return f"{ms}ms"


class Lease(NamedTuple):
    """Who holds a pending entry, and until when."""

    mode: str
    """:data:`CONNECTION`, :data:`HEARTBEAT`, :data:`TIME`, or empty without a lease."""
    ms: int


CONNECTION: Final = "connection"
HEARTBEAT: Final = "heartbeat"
TIME: Final = "time"
NO_LEASE: Final = Lease("", 0)
_GRACE_MS: Final = 1000


class LeaseKind(Kind):
    """``none``, ``connection[:grace]``, ``heartbeat:t`` or ``time:t``."""

    allowed = "none, connection, connection:grace, heartbeat:t or time:t"

    def parse(self, words: Sequence[str]) -> Lease:
        """The grace of a connection may be 0, and is a second unless it is given."""
        mode, colon, rest = words[0].lower().partition(":")
        if mode == "none" and not colon:
            return NO_LEASE
        if mode == CONNECTION:
            return Lease(mode, duration_ms(rest, 0) if colon else _GRACE_MS)
        if mode in (HEARTBEAT, TIME) and colon:
            return Lease(mode, duration_ms(rest))
        raise ValueError(f"a lease is {self.allowed}")

    def format(self, value: Any) -> str:
        """With the duration in any case."""
        return f"{value.mode}:{duration_text(value.ms)}" if value.mode else "none"


class Duration(Kind):
    """Milliseconds, with units; 0 switches off."""

    allowed = _DURATION_WORDS

    def parse(self, words: Sequence[str]) -> int:
        """Also without a unit."""
        return duration_ms(words[0], 0)

    def format(self, value: Any) -> str:
        """With the longest unit that fits."""
        return duration_text(value) if value else "0"


class Delays(Kind):
    """Several durations, ``1s,10s,1m``, or none."""

    allowed = "none, or durations such as 1s,10s,1m"

    def parse(self, words: Sequence[str]) -> tuple[int, ...]:
        """Milliseconds each."""
        if words[0].lower() == "none":
            return ()
        delays = tuple([duration_ms(each, 0) for each in words[0].split(",")])
        if len(delays) > _DELAYS_MAX:
            raise ValueError(f"there are at most {_DELAYS_MAX} delays")
        return delays

    def format(self, value: Any) -> str:
        """Each with the longest unit that fits."""
        return ",".join(map(duration_text, value)) or "none"


class Room(NamedTuple):
    """How many entries may be pending."""

    is_group: bool
    """For the group, without released ones; otherwise for each consumer."""
    most: int
    """0: any number."""


class RoomKind(Kind):
    """``consumer:n``, ``group:n``, or none."""

    allowed = "none, consumer:n or group:n"

    def parse(self, words: Sequence[str]) -> Room:
        """From 1 on."""
        scope, colon, count = words[0].lower().partition(":")
        if scope == "none" and not colon:
            return Room(False, 0)
        if scope not in ("consumer", "group") or not re.fullmatch("[1-9][0-9]{0,8}", count):
            raise ValueError(f"it is {self.allowed}")
        return Room(scope == "group", int(count))

    def format(self, value: Any) -> str:
        """The same words."""
        return f"{'group' if value.is_group else 'consumer'}:{value.most}" if value.most else "none"


class NameKind(Kind):
    """The name of something; empty for none."""

    def __init__(self, what: str) -> None:
        self._what = what

    def parse(self, words: Sequence[str]) -> str:
        """As given; bytes that are no text are kept."""
        if len(words[0].encode("utf-8", "surrogateescape")) > _NAME_BYTES_MAX:
            raise ValueError(f"a name has at most {_NAME_BYTES_MAX} bytes here")
        return words[0]

    @property
    def allowed(self) -> str:
        """Whose name it is."""
        return self._what


class RegionNumber(Kind):
    """The number of a region, or none; AB.POLICY SET takes its name, too."""

    allowed = "none, or the name or number of a region"

    def parse(self, words: Sequence[str]) -> int:
        """0 for none."""
        text = words[0].lower()
        if text == "none":
            return 0
        if not re.fullmatch("[1-9][0-9]{0,2}", text) or int(text) > _REGION_MAX:
            raise ValueError(f"it is {self.allowed}")
        return int(text)

    def format(self, value: Any) -> str:
        """The number."""
        return str(value) if value else "none"


class GroupStart(NamedTuple):
    """Which missing groups readers make, and where these begin."""

    name: str
    """A name, or a pattern of names; empty: none."""
    is_new_only: bool
    """``$``: what is added from then on; otherwise everything that is there, too."""


class GroupStartKind(Kind):
    """``name:0``, ``name:$``, or none."""

    allowed = "none, name:0 or name:$, where the name may be a pattern"

    def parse(self, words: Sequence[str]) -> GroupStart:
        """A name may contain colons."""
        if words[0].lower() == "none":
            return GroupStart("", False)
        name, colon, start = words[0].rpartition(":")
        if not colon or not name or start not in ("0", "$"):
            raise ValueError(f"it is {self.allowed}")
        if len(name.encode("utf-8", "surrogateescape")) > PATTERN_BYTES_MAX:
            raise ValueError(f"a name or pattern has at most {PATTERN_BYTES_MAX} bytes here")
        return GroupStart(name, start == "$")

    def format(self, value: Any) -> str:
        """The same words."""
        return f"{value.name}:{'$' if value.is_new_only else 0}" if value.name else "none"


class KeepLimit(NamedTuple):
    """How much is kept for groups; 0 is no limit."""

    bytes: int
    ms: int


NO_KEEP_LIMIT: Final = KeepLimit(0, 0)


class KeepLimitKind(Kind):
    """Bytes with a unit, a duration with a unit, or none."""

    allowed = "none, bytes with b, k, kb, mb, g or gb, or an age with ms, s, m, h or d"

    def parse(self, words: Sequence[str]) -> KeepLimit:
        """A unit is needed: it says which of both is meant. ``m`` is minutes."""
        text = words[0].lower()
        if text == "none":
            return NO_KEEP_LIMIT
        if text.endswith(tuple(_MS)):
            return KeepLimit(0, duration_ms(text))
        if not text.endswith(("k", "b", "g")):
            raise ValueError(f"it is {self.allowed}")
        return KeepLimit(Memory(1).parse([text]), 0)

    def format(self, value: Any) -> str:
        """With a unit."""
        if value.bytes:
            return f"{value.bytes}b"
        return duration_text(value.ms) if value.ms else "none"


class PolicyRow(NamedTuple):
    """One policy."""

    kind: Kind
    default: str
    sentence: str
    """What it means, for people."""
    regions: str
    """What it means where several regions write."""
    scope: str = "group"
    """``group``: it concerns a consumer group; ``stream``: the key as a whole."""
    excludes: Mapping[str, str] = {}
    """By the name of another policy: its text that cannot be in force beside this one."""


_EACH_REMOVES: Final = "what one region removes is removed in all; entries it had not seen stay"

POLICIES: Final[dict[str, PolicyRow]] = {
    "lease": PolicyRow(
        LeaseKind(),
        "none",
        "Who holds a pending entry, and until when: a consumer as long as a connection of it is "
        "open, and a grace longer (connection); as long as it shows itself every t (heartbeat); "
        "each entry for t since it was handed out (time). Then the entry is released.",
        "where the entry is pending",
    ),
    "redeliver": PolicyRow(
        Choice("claim", "first"),
        "first with a lease, a backoff or a key-field, otherwise claim",
        "Who is given released entries: readers that ask with CLAIM only (claim), or every "
        "XREADGROUP with >, before new entries (first).",
        "each region by itself",
    ),
    "max-deliveries": PolicyRow(
        Integer(0, 1_000_000),
        "0",
        "After so many deliveries an entry is given up instead of being delivered again: it goes "
        "to dead-letter, or is acknowledged. 0 never gives up.",
        "each region counts its own deliveries",
    ),
    "dead-letter": PolicyRow(
        NameKind("the name of a key of the same database"),
        "",
        "The stream that gets a copy of what is given up: after max-deliveries, or at once by "
        "XNACK FATAL.",
        "what two regions give up has one copy",
    ),
    "backoff": PolicyRow(
        Delays(),
        "none",
        "A released entry is handed out again after the delay of its delivery count; the last "
        "delay repeats.",
        "each region by itself",
        excludes={"redeliver": "claim"},
    ),
    "max-pending": PolicyRow(
        RoomKind(),
        "none",
        "XREADGROUP with > hands out no more than leaves so many entries pending, for each "
        "consumer or for the group; a reader that waits goes on waiting.",
        "each region by itself",
    ),
    "key-field": PolicyRow(
        NameKind("the name of a field"),
        "",
        "Entries with the same value of this field are pending with a consumer one at a time, in "
        "the order of their IDs; others overtake those that wait. Entries without the field wait "
        "for nobody.",
        "each region by itself",
        excludes={"redeliver": "claim"},
    ),
    "key-waiting": PolicyRow(
        Integer(1, WAITING_MAX),
        "10000",
        "With a key-field: so many entries may wait, pending without a consumer, while others "
        "overtake them. Beyond that new entries stay where they are.",
        "each region by itself",
    ),
    "on-poison": PolicyRow(
        Choice("skip", "halt"),
        "skip",
        "With a key-field: after an entry that is given up, the entries with its value go on "
        "(skip), or wait until AB.REDRIVE or AB.SKIP (halt).",
        "each region by itself",
    ),
    "consumer-ttl": PolicyRow(
        Duration(),
        "0",
        "A consumer without an open connection that is idle for longer is removed; what it has is "
        "released before. 0 removes nobody.",
        "consumers are those of a region",
    ),
    "acks": PolicyRow(
        Choice("prefix", "all"),
        "prefix, all with a home-region",
        "Which acknowledgements other regions learn: those before which nothing is pending "
        "(prefix), or every one at once (all).",
        "each region tells the others by its own value, which is the same once the rule is there",
    ),
    "home-region": PolicyRow(
        RegionNumber(),
        "none",
        "The only region that delivers the group, until AB.HOME moves it.",
        "elsewhere XREADGROUP and claims answer HOMED with that region",
        excludes={"acks": "prefix"},
    ),
    "auto-create-group": PolicyRow(
        GroupStartKind(),
        "none",
        "XREADGROUP makes a group of this name, and the stream, if they are missing: the group "
        "begins with the oldest entry (0), or with the entries that are added from then on ($).",
        "a group that two regions make is one group",
        scope="stream",
    ),
    "max-age": PolicyRow(
        Duration(),
        "0",
        "Entries that are older, by their IDs, are removed, whole nodes at a time. 0: at any age.",
        _EACH_REMOVES,
        scope="stream",
    ),
    "max-length": PolicyRow(
        Integer(0),
        "0",
        "So many entries are left, the newest ones, and less than a node more. 0: any number.",
        _EACH_REMOVES,
        scope="stream",
    ),
    "max-bytes": PolicyRow(
        Memory(),
        "0",
        "The names and values of so many bytes are left, the newest ones, before compression, and "
        "less than a node more. 0: any number.",
        _EACH_REMOVES,
        scope="stream",
    ),
    "exact": PolicyRow(
        YesNo(),
        "no",
        "max-age and max-length hold to the entry, and not to the node.",
        "each region by itself",
        scope="stream",
    ),
    "keep": PolicyRow(
        Choice("none", "unread", "unacked"),
        "none",
        "What stays in spite of these limits: what a group was not given yet (unread), or has not "
        "acknowledged (unacked). unacked without limits removes what every group has acknowledged.",
        "a group counts as a whole: what one region has read or acknowledged is so",
        scope="stream",
    ),
    "keep-limit": PolicyRow(
        KeepLimitKind(),
        "none",
        "So many bytes, or what is not older, is kept for groups at most.",
        "each region by itself",
        scope="stream",
    ),
    "ignore-groups-idle": PolicyRow(
        Duration(),
        "0",
        "Groups that nobody has used for longer have nothing kept. 0: all groups count.",
        "a region sees its own readers, and what others acknowledge",
        scope="stream",
    ),
}
"""By name, in the order of ``AB.POLICY GET`` and of the table in the docs."""


def parse_policy(name: str, text: str) -> Any:
    """The value of a text; ValueError says what is allowed. ``name`` is a known policy."""
    return POLICIES[name].kind.parse([text])


def conflict_in(texts: Mapping[str, str], new: Mapping[str, str]) -> tuple[str, str] | None:
    """Two of these policies that exclude each other, one of them new; None without any.

    Each as ``name value``.
    """
    both = {**texts, **new}
    for other, name in excluded_in(both).items():
        if name in new or other in new:
            return f"{name} {both[name]}", f"{other} {both[other]}"
    return None


def excluded_in(texts: Mapping[str, str]) -> dict[str, str]:
    """Those of these policies that another one excludes, each with the name of that one.

    A policy that is switched off excludes nothing.
    """
    return {
        other: name
        for name, text in texts.items()
        if name in POLICIES and text != POLICIES[name].default
        for other, excluded in POLICIES[name].excludes.items()
        if texts.get(other) == excluded
    }


def default_policy(name: str, texts: Mapping[str, str]) -> str:
    """The text that counts for a policy that is not set, beside those that are."""
    if name == "redeliver":
        is_set = any(texts.get(each, "none") != "none" for each in ("lease", "backoff"))
        return "first" if is_set or texts.get("key-field") else "claim"
    if name == "acks":
        return "all" if texts.get("home-region", "none") != "none" else "prefix"
    return POLICIES[name].default


def nearest_policy(name: str) -> str | None:
    """The known policy whose name is most similar to this one."""
    from difflib import get_close_matches  # noqa: PLC0415 - only a mistake needs it

    found = get_close_matches(name.lower(), list(POLICIES), n=1, cutoff=0.5)
    return found[0] if found else None
