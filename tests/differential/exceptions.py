"""Where we follow Redis 8.10 and Redis 7.0.15 answers something else.

Each difference has a name, a reason, and a function that acts in that situation only. It is
given the reply of Redis 7.0 and ours, and returns both as they should be equal: usually the
old reply translated into what 8.10 says, so that *not* differing is found as well. None
means that the situation is another one. What no difference claims must be equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.differential.generator import AFTER_USE
from tests.support.wire import Reply

Translation = tuple[Reply, Reply] | None


@dataclass(frozen=True, slots=True)
class Situation:
    """The command that was answered, and what is known about it."""

    name: bytes  # upper case
    args: tuple[bytes, ...]
    tag: str
    exact_counters: bool
    after_minid: bool = False  # the episode has trimmed by MINID

    @property
    def subcommand(self) -> bytes:
        """The second word in upper case."""
        return self.args[1].upper() if len(self.args) > 1 else b""


@dataclass(frozen=True, slots=True)
class Difference:
    """One listed difference between Redis 7.0.15 and what we do."""

    name: str
    commands: tuple[bytes, ...]  # none: any command
    reason: str
    translate: Callable[[Situation, Reply, Reply], Translation]
    diverges: bool = False  # the servers hold different data from then on


def error(text: str) -> Reply:
    """An error reply."""
    return ("-", text.encode())


# --- fields that XINFO gained ---------------------------------------------------------

_IDEMPOTENCY = (
    *((b"idmp-duration", 100), (b"idmp-maxsize", 100), (b"pids-tracked", 0)),
    *((b"iids-tracked", 0), (b"iids-added", 0), (b"iids-duplicates", 0)),
)


def pairs_of(reply: Reply) -> list[tuple[Reply, Reply]] | None:
    """The pairs of a map, or of a flat array used as one."""
    kind, value = reply
    if kind == "%":
        pairs: list[tuple[Reply, Reply]] = value
        return pairs
    if kind == "*" and value is not None and len(value) % 2 == 0:
        return list(zip(value[::2], value[1::2], strict=True))
    return None


def with_pairs(reply: Reply, pairs: list[tuple[Reply, Reply]]) -> Reply:
    """The same kind of reply with other pairs."""
    if reply[0] == "%":
        return ("%", pairs)
    return ("*", [item for pair in pairs for item in pair])


def insert_after(reply: Reply, field: bytes, new: list[tuple[Reply, Reply]]) -> Reply:
    """The map with further pairs after this field."""
    pairs = pairs_of(reply)
    if pairs is None:
        return reply
    out: list[tuple[Reply, Reply]] = []
    for pair in pairs:
        out.append(pair)
        if pair[0][1] == field:
            out += new
    return with_pairs(reply, out)


def change_field(reply: Reply, field: bytes, change: Callable[[Reply], Reply]) -> Reply:
    """The map with this field's value changed."""
    pairs = pairs_of(reply)
    if pairs is None:
        return reply
    return with_pairs(reply, [(k, change(v) if k[1] == field else v) for k, v in pairs])


def field_value(reply: Reply, field: bytes) -> Reply | None:
    """The value of this field."""
    return next((v for k, v in pairs_of(reply) or [] if k[1] == field), None)


def change_items(reply: Reply, change: Callable[[Reply], Reply]) -> Reply:
    """The array with each element changed."""
    return (reply[0], [change(item) for item in reply[1] or []])


def _idempotency_fields(at: Situation, old: Reply, new: Reply) -> Translation:
    if at.subcommand != b"STREAM" or old[0] == "-":
        return None
    fields: list[tuple[Reply, Reply]] = [(("$", k), (":", v)) for k, v in _IDEMPOTENCY]
    return insert_after(old, b"recorded-first-entry-id", fields), new


def _nacked_count(at: Situation, old: Reply, new: Reply) -> Translation:
    if at.subcommand != b"STREAM" or field_value(old, b"entries") is None:
        return None
    nothing: list[tuple[Reply, Reply]] = [(("$", b"nacked-count"), (":", 0))]
    return (
        change_field(
            old,
            b"groups",
            lambda groups: change_items(
                groups, lambda group: insert_after(group, b"pel-count", nothing)
            ),
        ),
        new,
    )


def _without_activity(field: bytes) -> Callable[[Reply], Reply]:
    """Drops a field if it holds what it may: -1, or a time."""

    def drop(consumer: Reply) -> Reply:
        pairs = pairs_of(consumer) or []
        return with_pairs(
            consumer, [(k, v) for k, v in pairs if k[1] != field or v[0] != ":" or v[1] < -1]
        )

    return drop


def _inactive(at: Situation, old: Reply, new: Reply) -> Translation:
    if at.subcommand != b"CONSUMERS" or old[0] != "*" or new[0] != "*":
        return None
    drop = _without_activity(b"inactive")
    for consumer in new[1]:
        if field_value(consumer, b"inactive") is None:
            return None
    return old, change_items(new, drop)


def _active_time(at: Situation, old: Reply, new: Reply) -> Translation:
    if at.subcommand != b"STREAM" or field_value(old, b"entries") is None:
        return None
    drop = _without_activity(b"active-time")

    def group_without(group: Reply) -> Reply:
        return change_field(group, b"consumers", lambda reply: change_items(reply, drop))

    return old, change_field(new, b"groups", lambda reply: change_items(reply, group_without))


def _empty_node(at: Situation, old: Reply, new: Reply) -> Translation:
    if not at.after_minid or at.subcommand != b"STREAM":
        return None
    theirs, ours = (field_value(reply, b"radix-tree-keys") for reply in (old, new))
    if theirs is None or ours is None or not theirs[1] > ours[1]:
        return None
    return change_field(old, b"radix-tree-keys", lambda _: ours), new


# --- counters -------------------------------------------------------------------------


def _without_counters(group: Reply) -> Reply:
    pairs = pairs_of(group) or []
    return with_pairs(group, [p for p in pairs if p[0][1] not in (b"entries-read", b"lag")])


def _counters(at: Situation, old: Reply, new: Reply) -> Translation:
    if at.exact_counters or old[0] == "-" or new[0] == "-":
        return None
    if at.subcommand == b"GROUPS":
        return change_items(old, _without_counters), change_items(new, _without_counters)
    if at.subcommand == b"STREAM" and field_value(old, b"entries") is not None:

        def cut(reply: Reply) -> Reply:
            return change_field(
                reply, b"groups", lambda groups: change_items(groups, _without_counters)
            )

        return cut(old), cut(new)
    return None


# --- reading --------------------------------------------------------------------------

_INVALID_ID = error("ERR Invalid stream ID specified as stream command argument")
_UNBALANCED = error(
    "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified."
)
_UNBALANCED_XREAD = error(
    "ERR Unbalanced 'xread' list of streams: "
    "for each stream key an ID, '+', or '$' must be specified."
)
_UNBALANCED_XREADGROUP = error(
    "ERR Unbalanced 'xreadgroup' list of streams: "
    "for each stream key an ID or '>' must be specified."
)
_PLUS_IN_XREADGROUP = error(
    "ERR The + ID is meaningless in the context of XREADGROUP: you want to read the history "
    "of this consumer by specifying a proper ID, or use the > ID to get new messages. "
    "The + ID would just return an empty result set."
)


def _unbalanced(at: Situation, old: Reply, new: Reply) -> Translation:
    if old != _UNBALANCED:
        return None
    return (_UNBALANCED_XREAD if at.name == b"XREAD" else _UNBALANCED_XREADGROUP), new


def _ids_read(at: Situation) -> tuple[bytes, ...]:
    for place, word in enumerate(at.args):
        if word.upper() == b"STREAMS":
            rest = at.args[place + 1 :]
            return rest[len(rest) // 2 :]
    return ()


def _xread_plus(at: Situation, old: Reply, new: Reply) -> Translation:
    if b"+" in _ids_read(at) and old == _INVALID_ID:
        return new, new
    return None


def _xreadgroup_plus(at: Situation, old: Reply, new: Reply) -> Translation:
    # What comes first on the line decides; an earlier or later bad ID keeps the old text.
    if b"+" in _ids_read(at) and old == _INVALID_ID and new == _PLUS_IN_XREADGROUP:
        return new, new
    return None


def _consumer_created(at: Situation, old: Reply, new: Reply) -> Translation:
    if at.tag == AFTER_USE and old == (":", 1) and new == (":", 0):
        return new, new
    return None


# --- writing --------------------------------------------------------------------------

_TOO_LARGE = error("ERR Elements are too large to be stored")
_NOT_ABOVE = error(
    "ERR The ID specified in XADD is equal or smaller than the target stream top item"
)
_BELOW_DELETED = error(
    "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id"
)
_BELOW_TOP = error("ERR The ID specified in XSETID is smaller than the target stream top item")
_BELOW_LENGTH = error(
    "ERR The entries_added specified in XSETID is smaller than the target stream length"
)


def _sequence_overflow(at: Situation, old: Reply, new: Reply) -> Translation:
    return (_NOT_ABOVE, new) if old == _TOO_LARGE else None


def _xsetid_text(at: Situation, old: Reply, new: Reply) -> Translation:
    return (new, new) if new == _BELOW_DELETED and old in (_BELOW_TOP, _BELOW_LENGTH) else None


def _xsetid_refused(at: Situation, old: Reply, new: Reply) -> Translation:
    return (new, new) if new == _BELOW_DELETED and old == ("+", b"OK") else None


# --- anything ---------------------------------------------------------------------


def _unknown_command(at: Situation, old: Reply, new: Reply) -> Translation:
    ending = b", with args beginning with: "
    if old[0] != "-" or not old[1].startswith(b"ERR unknown command") or len(at.args) > 1:
        return None
    return ("-", old[1].removesuffix(ending)), new


def _encoding(at: Situation, old: Reply, new: Reply) -> Translation:
    same = {(b"quicklist", b"listpack"), (b"hashtable", b"listpack")}
    if at.subcommand == b"ENCODING" and old[0] == new[0] == "$" and (old[1], new[1]) in same:
        return new, new
    return None


DIFFERENCES = (
    Difference(
        "xinfo-idempotency-fields",
        (b"XINFO",),
        "XINFO STREAM has six fields about idempotent producers since 8.6; without producers "
        "they must hold 100, 100, 0, 0, 0, 0.",
        _idempotency_fields,
    ),
    Difference(
        "xinfo-nacked-count",
        (b"XINFO",),
        "XINFO STREAM FULL shows nacked-count for each group since 8.8; without XNACK it is 0.",
        _nacked_count,
    ),
    Difference(
        "xinfo-inactive",
        (b"XINFO",),
        "XINFO CONSUMERS has a field `inactive` since 7.2: -1 or an age.",
        _inactive,
    ),
    Difference(
        "xinfo-active-time",
        (b"XINFO",),
        "XINFO STREAM FULL has a field `active-time` for each consumer since 7.2: -1 or a time.",
        _active_time,
    ),
    Difference(
        "empty-node-kept",
        (b"XINFO",),
        "When MINID removes the last live entry of a node whose last slots were deleted before, "
        "Redis (8.9 too) keeps the empty node; with us a node without live entries is gone. "
        "Nodes then begin elsewhere, so the rest of the episode is not compared.",
        _empty_node,
        diverges=True,
    ),
    Difference(
        "group-counters",
        (b"XINFO",),
        "entries-read and lag follow other rules since 7.4 and 8.2 (clamping, trimming, "
        "tombstones), so they are compared with Redis only in episodes without deletions, "
        "trims, XSETID, ENTRIESREAD and LASTID; elsewhere they are held against the rules.",
        _counters,
    ),
    Difference(
        "unbalanced-text",
        (b"XREAD", b"XREADGROUP"),
        "The text for an odd number of keys and IDs names the command since 7.4.",
        _unbalanced,
    ),
    Difference(
        "xread-plus",
        (b"XREAD",),
        "`+` means the last entry since 7.4; 7.0 calls it an invalid ID.",
        _xread_plus,
    ),
    Difference(
        "xreadgroup-plus",
        (b"XREADGROUP",),
        "`+` has an error text of its own since 7.4.",
        _xreadgroup_plus,
    ),
    Difference(
        "consumer-created",
        (b"XGROUP",),
        "Since 7.2 XREADGROUP, XCLAIM and XAUTOCLAIM create the consumer even when it gets "
        "nothing; so CREATECONSUMER right after them finds it, and makes both servers equal.",
        _consumer_created,
    ),
    Difference(
        "xadd-sequence-overflow",
        (b"XADD",),
        "`ms-*` on a full millisecond is refused as not above the last ID; 7.0 speaks of too "
        "large elements.",
        _sequence_overflow,
    ),
    Difference(
        "xsetid-max-deleted-text",
        (b"XSETID",),
        "The current max-deleted-entry-id is checked first; 7.0 does not check it.",
        _xsetid_text,
    ),
    Difference(
        "xsetid-max-deleted",
        (b"XSETID",),
        "XSETID below the current max-deleted-entry-id is refused; 7.0 accepts it.",
        _xsetid_refused,
        diverges=True,
    ),
    Difference(
        "unknown-command-text",
        (),
        "The text for an unknown command without arguments ends after its name since 8.0.",
        _unknown_command,
    ),
    Difference(
        "object-encoding",
        (b"OBJECT",),
        "Small lists and sets are listpacks in newer versions.",
        _encoding,
    ),
)

ANY_COMMAND = tuple(d for d in DIFFERENCES if not d.commands)
BY_COMMAND: dict[bytes, tuple[Difference, ...]] = {
    command: tuple(d for d in DIFFERENCES if command in d.commands or not d.commands)
    for command in {name for difference in DIFFERENCES for name in difference.commands}
}
