"""The named worlds. Each is small: what two or three regions do in a few steps, in every order.

A world is here because a rule of :doc:`active-active` can be broken in it. A row begins with its
name and what it shows. Indented lines follow: ``with:`` and words of the table below, ``before:``
and the steps before anything else, then each script in a line. A line that is indented twice goes
on with the one before it. ``$group`` and ``$homed`` are steps that several worlds begin with, and
``b*260`` is a word of so many letters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from anabranch.replication.framing import FrameType
from anabranch.simulator.exploration.script import SmallWorld

_BATCHES: Final = frozenset({FrameType.BATCH})

_WITH: Final[dict[str, dict[str, Any]]] = {
    "copies": {"copies": True},
    "forgets-tags": {"forgets_tags": True},
    "late-credit": {"holds": _BATCHES | {FrameType.CREDIT, FrameType.FETCH, FrameType.FETCHED}},
    "late-frames": {"holds": frozenset(FrameType)},
    "late-full-syncs": {"holds": _BATCHES | {FrameType.FULL_SYNC, FrameType.FULL_SYNC_END}},
    "late-rows": {"holds": _BATCHES | {FrameType.ROW}},
    "no-syncs": {"settings": {"appendfsync": "no"}},
    "no-syncs-in-us": {"own_settings": {2: {"appendfsync": "no"}}},
    "once": {"is_once": True},
    # With a snapshot, regions keep no effects to send.
    "short-log": {
        "settings": {"oplog_max_bytes": 1, "oplog_segment_bytes": 4096, "region_cache_bytes": 1}
    },
    "slow-disks": {"holds_disk": True},
    "small-windows": {"settings": {"gossip_window": 600}},
    "takeover": {"settings": {"schedule_takeover": 2}},
    "three-regions": {"regions": 3},
}

_GROUP: Final = "eu> XADD k * f a; eu> XADD k * f b; eu> XGROUP CREATE k g 0"

_HOMED: Final = _GROUP + "; eu> AB.POLICY SET k home-region 1"

_ROWS: Final = """
entries: XADD, XDEL and DEL at the same time, and a key that is made again
    before: eu> XADD k * f a
    eu> XADD k * f b; eu> XDEL k {oldest}
    us> DEL k; us> XADD k * f c
    us> XADD k * f d
entries-of-three: four commands of three regions that know nothing of each other: XADD, XDEL, DEL
    with: three-regions
    eu> XADD k * f b; eu> XDEL k {oldest}
    us> DEL k
    ap> XADD k * f d
six-commands: six commands of three regions in one order, which arrive in every order
    with: three-regions
    eu> XADD k * f a; us> XADD k * f b; ap> DEL k; eu> XDEL k {oldest}; us> XADD k * f c;
        ap> XADD k * f d
bystanders: two regions that only listen: effects arrive there in any order, by way of each other
    with: three-regions
    eu> XADD k * f a; eu> DEL k; eu> XADD k * f b
    wait 300
groups-or-del: XGROUP CREATE and DESTROY against DEL: a creation counts only if it knew all removals
    before: eu> XADD k * f a
    eu> XGROUP CREATE k g 0 MKSTREAM; eu> XGROUP DESTROY k g
    us> XGROUP CREATE k g $ MKSTREAM; us> DEL k
    wait 100
groups-made-again: acknowledgements of a group that is destroyed and made again elsewhere
    before: $group
    us> XREADGROUP GROUP g c COUNT 1 STREAMS k >; us> XACK k g {pending}
    eu> XGROUP DESTROY k g; eu> XGROUP CREATE k g 0
    us> XREADGROUP GROUP g d STREAMS k >
acknowledgements: acknowledged prefixes against fail-over: the other region delivers what was not
        done
    before: $group; us> XADD k * f c
    eu> XREADGROUP GROUP g c COUNT 2 STREAMS k >; eu> XACK k g {oldest}; eu> XACK k g {pending}
    us> XREADGROUP GROUP g c COUNT 1 STREAMS k >; us> XACK k g {pending}
    us> XADD k * f d
every-acknowledgement: acks all against fail-over: the other region delivers only what was not
        acknowledged
    before: $group; eu> AB.POLICY SET k acks all
    eu> XREADGROUP GROUP g c COUNT 2 STREAMS k >; eu> XACK k g {newest}; eu> XACK k g {pending}
    us> XREADGROUP GROUP g c COUNT 1 STREAMS k >; us> XACK k g {pending}
told-one-by-one: acks all, when several are acknowledged at once behind a pending entry, or read by
        NOACK
    before: eu> XADD k 1-* f a; eu> XADD k 2-* f b; eu> XADD k 3-* f c; eu> XADD k 4-* f d;
        eu> XGROUP CREATE k g 0; eu> AB.POLICY SET k acks all
    eu> XREADGROUP GROUP g c COUNT 3 STREAMS k >; eu> XACK k g 2-1 3-1;
        eu> XREADGROUP GROUP g c COUNT 1 NOACK STREAMS k >
    us> XREADGROUP GROUP g c COUNT 1 STREAMS k >; us> XACK k g {pending}
told-later: acks all for a group that holds acknowledgements back, and one that gave entries up
    before: $group; eu> XADD k * f c
    eu> XREADGROUP GROUP g c COUNT 1 STREAMS k >; eu> XREADGROUP GROUP g d NOACK STREAMS k >;
        eu> XGROUP DELCONSUMER k g c
    us> AB.POLICY SET k acks all; us> XREADGROUP GROUP g c COUNT 1 STREAMS k >
homes: a group that moves to another home and back: each entry is delivered in one of them
    before: $homed
    eu> XREADGROUP GROUP g c COUNT 1 STREAMS k >; eu> AB.HOME MOVE k GROUP g 2;
        eu> XREADGROUP GROUP g c COUNT 1 STREAMS k >; wait 200; eu> XREADGROUP GROUP g c STREAMS k >
    us> XREADGROUP GROUP g d COUNT 1 STREAMS k >; us> XACK k g {newest};
        us> AB.HOME MOVE k GROUP g 1; wait 200
homes-taken: a group that is taken while its home goes on: what both delivered is reported
    before: $homed
    cut eu us; us> AB.HOME TAKE k GROUP g FORCE; us> XREADGROUP GROUP g d STREAMS k >;
        us> XACK k g {oldest}; heal
    eu> XREADGROUP GROUP g c COUNT 1 STREAMS k >; eu> XACK k g {oldest};
        eu> XREADGROUP GROUP g c STREAMS k >
homes-of-three: a group that is taken in one region while it moves to another one
    with: three-regions
    before: $homed
    eu> XREADGROUP GROUP g c COUNT 1 STREAMS k >; eu> AB.HOME MOVE k GROUP g 2; wait 200
    ap> AB.HOME TAKE k GROUP g FORCE; ap> XREADGROUP GROUP g e COUNT 1 STREAMS k >
homes-and-power: a home that loses power while it hands over: it never delivers again what it gave
        away
    with: no-syncs
    before: $homed
    eu> AB.HOME MOVE k GROUP g 2; wait 200; crash eu; start eu;
        eu> XREADGROUP GROUP g c COUNT 1 STREAMS k >
    sync eu
    us> XREADGROUP GROUP g d COUNT 1 STREAMS k >
homes-and-full-syncs: the new home hears of the move by a full sync, which has no pending entries of
        others
    with: short-log late-full-syncs
    before: $homed
    eu> XREADGROUP GROUP g c COUNT 1 STREAMS k >; cut eu us; eu> AB.HOME MOVE k GROUP g 2; wait 200;
        snapshot eu; kill eu; start eu; heal; wait 200
    us> XREADGROUP GROUP g d STREAMS k >
skipped: entries that XGROUP SETID skips, or DELCONSUMER gives up, are not acknowledged
    before: $group
    eu> XREADGROUP GROUP g c COUNT 1 STREAMS k >; eu> XGROUP DELCONSUMER k g c
    eu> XGROUP SETID k g $; eu> XADD k * f c; eu> XREADGROUP GROUP g d STREAMS k >;
        eu> XACK k g {pending}
    us> XREADGROUP GROUP g c STREAMS k >
claims: XCLAIM, XAUTOCLAIM and XNACK of entries that another region acknowledges
    before: $group
    eu> XREADGROUP GROUP g c STREAMS k >; eu> XCLAIM k g d 0 {pending};
        eu> XNACK k g FAIL IDS 1 {oldest}
    us> XREADGROUP GROUP g c STREAMS k >; us> XACK k g {pending}
    eu> XAUTOCLAIM k g e 0 -
retries: a message that is retried in another region: one entry stays, and may be removed later
    eu> XADD k IDMP p i * f a; eu> XDEL k {oldest}
    us> XADD k IDMP p i * f a; us> XADD k IDMP p i * f a
    cut eu us; heal
retries-of-three: a message that three regions accept: all let the same entry stay, and answer alike
    with: three-regions
    cut eu ap; eu> XADD k IDMP p i * f a; us> XADD k IDMP p i * f a; ap> XADD k IDMP p i * f a;
        us> DEL k
retries-and-del: a retried message whose first entry was deleted with its key: it is answered all
        the same
    eu> XADD k IDMP p i * f a; eu> DEL k
    us> XADD k IDMP p i * f a; us> XDEL k {oldest}
retries-and-others: a retried message, after which its producer has sent others
    eu> XADD k IDMP p i * f a; eu> XADD k IDMP p j * f b; eu> XADD k IDMP p l * f c;
        eu> XADD k IDMP p m * f d
    us> XADD k IDMP p i * f a
retries-delivered: a retried message is delivered in both regions, and processed in one of them
    before: eu> XGROUP CREATE k g 0 MKSTREAM
    eu> XADD k IDMP p i * f a; eu> XREADGROUP GROUP g c STREAMS k >
    us> XADD k IDMP p i * f a; us> XREADGROUP GROUP g c STREAMS k >; us> XACK k g {pending}
dead-letters: two regions that give up the same entry: there is one copy of it, and one stays
    with: once
    before: $group; eu> AB.POLICY SET k max-deliveries 5 dead-letter l
    eu> XREADGROUP GROUP g c COUNT 1 STREAMS k >; eu> XNACK k g FATAL IDS 1 {pending}
    us> XREADGROUP GROUP g c COUNT 1 STREAMS k >; us> XNACK k g FATAL IDS 1 {pending}
scheduled: entries for later, added by the region that has scheduled them, unless they are cancelled
    with: once
    eu> AB.SCHEDULE k IN 300 ID h f a; eu> AB.SCHEDULE k IN 300 ID i f b; wait 500
    us> AB.SCHEDULE CANCEL k h; us> XADD k * f c
scheduled-twice: an entry that is due while its region cannot be reached: another one adds it, too
    with: once takeover
    eu> AB.SCHEDULE k IN 300 ID h f a; cut eu us; wait 3000; heal
    us> XADD k * f b; us> DEL k
scheduled-and-leaving: what a removed region has scheduled is added once, by others or by itself
        before
    with: once three-regions
    ap> AB.SCHEDULE k IN 300 ID h f a; eu> AB.REGION REMOVE 3 FORCE; wait 500
renames: RENAME and COPY against XADD: what arrives for the former name stays there
    with: copies
    before: eu> XADD k * f a
    eu> RENAME k l; eu> XADD k * f b
    us> XADD k * f c; us> XADD l * f d
moved-groups: a group that moves with its stream keeps pending entries, late entries and its cursor
    with: copies
    before: $group
    eu> XADD k * f c; eu> XADD k * f d; eu> XREADGROUP GROUP g c STREAMS k >; eu> COPY k l;
        eu> DUMP k; eu> RESTORE m 0 {payload} REPLACE
    eu> XGROUP DELCONSUMER k g c
    us> XADD k * f e
counters: XSETID, XTRIM and the counters of a key
    before: eu> XADD k * f a; eu> XADD k * f b
    eu> XSETID k 9999999999999-1 ENTRIESADDED 7 MAXDELETEDID 1-1; eu> XADD k * f b
    us> XTRIM k MAXLEN = 0; us> XADD k * f c; us> XDEL k {newest}
settings: XCFGSET and AB.POLICY at the same time, and against DEL: the latest setting counts
    with: forgets-tags
    before: eu> XADD k IDMP p i * f a
    eu> AB.POLICY SET k redeliver first; eu> XCFGSET k IDMP-DURATION 9; eu> DEL k
    us> AB.POLICY SET k redeliver claim; us> XCFGSET k IDMP-MAXSIZE 2; us> AB.POLICY DEL k
deadlines: EXPIRE, PERSIST and expiry at the same time: the latest deadline wins
    before: eu> XADD k * f a
    eu> PEXPIRE k 500; eu> XADD k * f b
    us> PEXPIRE k 900; us> PERSIST k
    wait 600
strings: SET against SET and EXPIRE: one write counts, with its own deadline
    before: eu> SET k a
    eu> SET k b PX 500; eu> APPEND k c
    us> SET k d; us> PEXPIRE k 900
set-or-incr: SET against INCR over a cut: the increments that SET had not seen are added
    before: us> INCR k
    cut eu us; eu> SET k 10; us> INCR k; us> INCR k; heal
    eu> INCR k
del-or-incr: DEL against INCR: what DEL had not seen stays, also of a total that goes on
    before: eu> INCR k; us> INCR k
    eu> DEL k; eu> INCR k
    us> INCR k; us> INCR k
strings-or-streams: a string and a stream that are made at once under one name: the stream hides the
        string
    before: eu> DEL k
    eu> SET k a; eu> INCR k
    us> XADD k * f b; us> DEL k
full-syncs-of-counters: a region that was away joins increments of which it has seen, and removed, a
        part
    with: short-log late-full-syncs
    before: eu> INCR k; us> INCR k; us> INCR l
    cut eu us; eu> INCR k; eu> SET k 5; eu> INCR k; snapshot eu; heal
    us> INCR k; us> DEL k; us> INCR k
sets: SADD against SREM and SPOP: a removal takes what it has seen, and no later addition
    before: eu> SADD k a b c
    eu> SADD k a; eu> SREM k b
    us> SPOP k; us> SRANDMEMBER k -5; us> SREM k c; us> SADD k b
lists: pushes, pops, LSET and LINSERT at once: one order, and a pop takes what it has seen
    before: eu> RPUSH k a b c
    eu> RPUSH k d; eu> LPOP k 2
    us> LSET k 0 x; us> LINSERT k AFTER b y
set-at-once: LSET of one item in two regions, and a third one that takes what it has seen of it
    with: three-regions
    before: eu> RPUSH k a
    eu> LSET k 0 x
    us> LSET k 0 y
    ap> LREM k 0 a; ap> LPOP k
types-that-meet: a set, a list and a stream that are made at once under one name: one is shown
    before: eu> DEL k
    eu> SADD k a; eu> RPUSH k b; eu> DEL k
    us> RPUSH k c
    us> XADD k * f d
values-renamed: RENAME of a name under which a list is hidden by a set: both have the other name
    with: copies
    before: eu> DEL k
    eu> SADD k a; eu> RENAME k l; eu> RENAME l k
    us> RPUSH k b
expiring-sets: EXPIRE and expiry of a set against additions, and a set that is made again
    before: eu> SADD k a
    eu> PEXPIRE k 500; eu> SREM k a; eu> SADD k b
    us> SADD k c
    wait 600
full-syncs-of-elements: a region that was away joins members and items of which it has taken a part
    with: short-log late-full-syncs
    before: eu> SADD k a; us> RPUSH l x; us> RPUSH l z
    cut eu us; eu> SREM k a; eu> SADD k b; eu> LPOP l; snapshot eu; heal
    us> SADD k a c; us> LSET l 0 y; us> RPOP l
full-syncs-and-del: DEL of a set, by a region that knew less, after a full sync brought the rest
    with: three-regions short-log late-full-syncs
    before: eu> SADD k a; us> SADD l a; ap> SADD m a
    cut eu us; cut eu ap; eu> SADD k b; eu> SADD k c; snapshot eu; ap> DEL k; heal
flushes: FLUSHALL against entries, groups and a key that is made again
    before: $group
    eu> FLUSHALL; eu> XADD k * f b
    us> XADD k * f c; us> XGROUP CREATE k h 0
relays: a region without a link to another one gets its effects from the third
    with: three-regions
    cut eu ap; eu> XADD k * f a; us> XADD k * f b; eu> DEL k; wait 300
twice: effects that arrive twice, and connections that end at any time
    eu> XADD k * f a; eu> XDEL k {oldest}
    us> XADD k * f b
    twice eu us
    cut eu us; heal
turns: the effects of one turn, some of them local, are applied together; windows are small
    with: small-windows
    before: eu> XGROUP CREATE k g 0 MKSTREAM
    eu> XADD k * f a | XREADGROUP GROUP g c STREAMS k > | XADD k * f b*260
    us> XADD k * f c; us> XDEL k {oldest}
    eu> XADD k * f d*300; eu> XADD k * f e*300
silence: a connection that carries nothing more, which nobody notices at first
    eu> XADD k * f a; eu> XDEL k {oldest}
    us> XADD k * f b
    silence eu us
tombstones: what may be forgotten once all regions have it, against one that is away
    with: three-regions
    before: eu> XADD k * f a
    cut eu ap; eu> DEL k; ap> XGROUP CREATE k h 0 MKSTREAM; wait 300; wait 300; heal
tombstones-and-rows: what may be forgotten, against a row that arrives before the effects which it
        reports
    with: three-regions
    before: eu> XADD k * f a
    eu> DEL k; ap> XGROUP CREATE k h 0 MKSTREAM; eu -> us; eu -> ap; ap -> eu; wait 100; wait 1000;
        wait 100
rows: status rows that arrive late: nothing is forgotten that a region lacks
    with: late-rows
    before: eu> XADD k * f a
    eu> DEL k
    us> XGROUP CREATE k h 0 MKSTREAM
    wait 100; wait 100
credit: credit and requests that arrive late, where windows are small
    with: small-windows late-credit
    eu> XADD k * f a*300; eu> XADD k * f b*300; eu> XADD k * f c*300
    us> XADD k * f d
handshakes: a link that is made again, where every frame may be late and the link may end at any
        time
    with: late-frames
    eu> XADD k * f a
    cut eu us; heal; cut eu us; heal
tombstones-and-crashes: what may be forgotten, against a region that loses what it has applied
    with: no-syncs-in-us
    before: $group
    eu> DEL k; crash us 0/0/0; start us; us> XGROUP CREATE k h 0 MKSTREAM
    wait 100; wait 100
former-epochs: what may be forgotten, against effects of an epoch that ended and that one region has
    with: three-regions no-syncs-in-us
    before: eu> XADD k * f a
    eu> DEL k; eu -> ap; wait 100; wait 100; us> XGROUP CREATE k h 0 MKSTREAM; us -> ap;
        crash us 0/0/0; start us; eu -> us; sync us; wait 100; us -> eu; wait 100
blackouts: two regions lose power, and the third has effects whose causes are gone
    with: three-regions no-syncs
    eu> XADD k * f a; eu -> us; us> XADD k * f b; us -> ap; crash eu 0/0/0; crash us 0/0/0;
        start eu; start us
power: a power failure with every part of the log that it can leave; a new epoch begins
    with: no-syncs
    eu> XADD k 9999999999999-* f a; eu> XADD k 9999999999999-* f b; crash eu; start eu;
        eu> XADD k 9999999999999-* f c
    us> XADD k * f d
epochs-in-ids: IDs of an earlier epoch stay out of those of a later one, whatever IDs it has seen
    with: no-syncs
    before: crash us 0/0/0; start us
    us> XADD k 9999999999999-* f a
    eu> XADD k 9999999999999-* f b; crash eu 0/0/0; start eu; eu> XADD k 9999999999999-* f c;
        eu> XADD k 9999999999999-* f d
power-of-three: one of three regions has effects that their own region has lost
    with: three-regions no-syncs
    eu> XADD k * f a; cut eu us; crash eu; start eu; eu> XADD k * f b
slow-disks: appendfsync always with slow disks: nothing is shown or sent before it is synced
    with: slow-disks
    eu> XADD k * f a; eu> XADD k * f b
    crash eu; start eu
kills: a process that is killed or stopped at any time has everything again
    before: $group
    eu> XREADGROUP GROUP g c COUNT 1 STREAMS k >; eu> XACK k g {pending}; kill eu; start eu
    us> XADD k * f d; snapshot us; stop us; start us
lost-disks: a region that loses its disk gets everything back before it takes writes again
    before: eu> XADD k * f a; us> XADD k * f b
    eu> XADD k * f b
    us> XADD k * f c; us> XDEL k {oldest}; kill us; lose-disk us; start us; us> XADD k * f d
lost-disks-of-three: a region that loses its disk while only a member is up that knows less than
        another
    with: three-regions
    before: eu> XADD k * f a; us> XADD k * f a
    kill ap; us> XADD k * f b; kill us; lose-disk us; kill eu; start ap; start us; wait 100;
        us> XADD k * f c; start eu
full-syncs: a region that was away joins the data of another, in pieces, with its own
    with: short-log late-full-syncs
    before: eu> XADD k * f a; us> XADD k * f a; us> XADD l * f a
    cut eu us; eu> XADD k * f b; eu> XDEL k {oldest}; snapshot eu; heal
    us> XADD k * f c; us> XDEL k {oldest}
full-syncs-broken-off: a full sync whose connection ends, or whose receiver is killed at any time
    with: short-log late-full-syncs
    before: eu> XADD k * f a; us> XADD k * f a; us> XADD l * f a
    cut eu us; eu> XADD k * f b; eu> XDEL k {oldest}; snapshot eu; heal; cut eu us; heal
    us> XADD k * f c; kill us; start us
full-syncs-of-tags: a retried message, and a region that hears of the first try by a full sync
    with: short-log
    cut eu us; eu> XADD k IDMP p i * f a; eu> XADD k * f b; snapshot eu; kill eu; start eu; heal
    us> XADD k IDMP p i * f a
leaving: a region is removed while its effects are under way, and others may not have them
    with: three-regions
    before: eu> XADD k * f a
    ap> XADD k * f b; eu> AB.REGION REMOVE 3 FORCE; us> XADD k * f c; wait 300
leaving-and-joining: a removed region joins again with an empty disk, and brings back nothing
    with: three-regions
    before: eu> XADD k * f a
    ap> XADD k * f b; eu> AB.REGION REMOVE 3 FORCE; kill ap; lose-disk ap; start ap; wait 300;
        ap> XADD k * f d
    us> DEL k
"""


def _steps(text: str) -> str:
    """Steps with everything written out."""
    text = text.replace("$group", _GROUP).replace("$homed", _HOMED)
    return re.sub(r"(\w)\*(\d+)", lambda match: match[1] * int(match[2]), text)


def _world(name: str, covers: str, lines: list[str]) -> SmallWorld:
    fields: dict[str, Any] = {}
    scripts = []
    for line in lines:
        if line.startswith("with: "):
            for word in line.split()[1:]:
                fields |= _WITH[word]
        elif line.startswith("before: "):
            fields["before"] = _steps(line.removeprefix("before: "))
        else:
            scripts.append(_steps(line))
    return SmallWorld(name, covers, tuple(scripts), **fields)


def _worlds(text: str) -> Iterator[SmallWorld]:
    """The worlds of rows; ``KeyError`` or ``ValueError`` for a row that says something else."""
    for row in re.split(r"\n(?=\S)", text.strip()):
        head, *lines = re.sub(r"\n {8}", " ", row).split("\n    ")
        name, covers = head.split(": ", 1)
        yield _world(name, covers, lines)


WORLDS: Final = tuple(_worlds(_ROWS))

SMALL: Final = ("entries", "groups-or-del", "claims", "dead-letters", "renames", "sets", "power")
"""Worlds that take some seconds together."""


def world_named(name: str) -> SmallWorld:
    """A world by its name; ValueError if there is none."""
    for world in WORLDS:
        if world.name == name:
            return world
    raise ValueError(f"there is no world {name!r}; there are {', '.join(w.name for w in WORLDS)}")
