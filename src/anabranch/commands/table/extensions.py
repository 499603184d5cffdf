"""The rows of the command table: the commands that Redis does not have (AB.*)."""

from __future__ import annotations

from functools import partial

from anabranch.commands.extensions import (
    bulk,
    producer_info,
    regional_info,
    regional_read,
    regions,
    verifying,
)
from anabranch.commands.extensions.verifying import repair
from anabranch.commands.request.help import help_row
from anabranch.commands.request.spec import Command, KeySpec

__all__ = ["COMMANDS"]

Row = partial(Command, group="stream", since="0.1.0")


COMMANDS: list[Command] = [
    # extensions/bulk.py
    Row(
        "ab.offsets",
        bulk.offsets,
        arity=-3,
        flags="readonly blocking",
        keys=(KeySpec("RO access", begin=("STREAMS", 1), last=-1),),
        summary="Returns the positions of streams for each region.",
        complexity="O(1) for each region of each stream.",
        syntax="[BLOCK milliseconds AFTER total] [FROM vector LIMIT entries] STREAMS key [key ...]",
    ),
    Row(
        "ab.export",
        bulk.export,
        arity=-5,
        flags="readonly",
        keys=(KeySpec("RO access"),),
        summary="Returns entries between two positions as the server keeps them.",
        complexity="O(log(N)+M), M being the bytes read.",
        syntax="key region from to [MAXBYTES bytes] [CODEC <NONE | NODES | ZSTD>]",
    ),
    Row(
        "ab.import",
        bulk.import_,
        arity=-3,
        flags="write denyoom",
        keys=(KeySpec("RW insert"),),
        summary="Appends many entries at once; a producer's batch exactly once.",
        complexity="O(N), N being the entries added.",
        syntax="key [PRODUCER pid BATCH batch EXPECT rows [CRC crc]] "
        "[<MAXLEN | MINID> [= | ~] threshold] payload",
    ),
    Row(
        "ab.ledger",
        bulk.ledger,
        arity=2,
        flags="readonly",
        keys=(KeySpec("RO access"),),
        summary="Lists the bulk producers of a stream and their newest batches.",
        complexity="O(N), N being the producers.",
        syntax="key",
    ),
    # extensions/producer_info.py
    Row(
        "ab.producers",
        producer_info.producers,
        arity=2,
        flags="readonly",
        keys=(KeySpec("RO access"),),
        summary="Shows the records of each producer, and what two regions accepted concurrently.",
        complexity="O(N), N being the idempotent IDs that are remembered.",
        syntax="key",
    ),
    # extensions/regional_info.py
    Row(
        "ab.info",
        regional_info.info,
        arity=-1,
        flags="readonly",
        keys=(KeySpec("RO access"),),
        summary="Shows what this region has applied, or the state of a stream by region.",
        complexity="O(R+G), R being the regions, G the groups with their intervals.",
        syntax="[key]",
        tips=("nondeterministic_output",),
    ),
    Row(
        "ab.lag",
        regional_info.lag,
        arity=-2,
        flags="readonly",
        keys=(KeySpec("RO access"),),
        summary="Counts the entries that consumer groups must still deliver, by region.",
        complexity="O(I log N) amortised for each group, I being its intervals of deliveries.",
        syntax="key [group [group ...]]",
    ),
    Row(
        "ab.equalids",
        regional_info.equal_ids,
        arity=2,
        flags="readonly",
        keys=(KeySpec("RO access"),),
        summary="Counts the entries that get another ID where each ID can be there once: in the "
        "payload of DUMP, and by RENAME and COPY.",
        complexity="O(N) where several regions have entries, N being all; otherwise O(1).",
        syntax="key",
    ),
    Row(
        "ab.digest",
        regional_info.digest,
        arity=-2,
        flags="readonly",
        keys=(KeySpec("RO access", last=-1),),
        summary="Returns digests of keys; equal in regions that have applied the same effects.",
        complexity="O(N), N being the entries.",
        syntax="key [key ...]",
    ),
    # extensions/regional_read.py
    Row(
        "ab.read",
        regional_read.read,
        arity=-4,
        flags="readonly blocking movablekeys",
        keys=(KeySpec("RO access", begin=("STREAMS", 1), last=-1, step=1, limit=2),),
        summary="Returns entries that cursors do not cover, each once, in any region.",
        complexity="O(log N) for each region of each stream, then a memory copy of what is "
        "returned.",
        syntax="[COUNT count] [MAXCOUNT maxcount] [MAXSIZE maxsize] [BLOCK milliseconds] "
        "STREAMS key [key ...] cursor [cursor ...]",
    ),
    Row(
        "ab.count",
        regional_read.count_,
        arity=4,
        flags="readonly",
        keys=(KeySpec("RO access"),),
        summary="Counts the entries of a stream within a range of IDs.",
        complexity="O(R log N) amortised, R being the regions.",
        syntax="key start end",
    ),
    Row(
        "ab.token",
        regional_read.token,
        arity=1,
        flags="readonly fast",
        summary="Returns a token of everything that this region has applied.",
        complexity="O(R), R being the regions.",
        tips=("nondeterministic_output",),
    ),
    Row(
        "ab.waitfor",
        regional_read.waitfor,
        arity=3,
        flags="readonly blocking",
        summary="Waits until this region has applied everything that a token covers.",
        complexity="O(R), R being the regions.",
        syntax="token milliseconds",
        tips=("nondeterministic_output",),
    ),
    # extensions/regions.py
    Row(
        "ab.peers",
        regions.peers,
        arity=1,
        flags="loading stale",
        categories="dangerous",
        group="server",
        summary="Shows link and lag of every other region.",
        complexity="O(R), R being the regions.",
        tips=("nondeterministic_output",),
    ),
    Row(
        "ab.region",
        None,
        arity=-2,
        group="server",
        summary="Commands about the members of an Active-Active cluster.",
        subcommands=[
            Row(
                "list",
                regions.region_list,
                arity=2,
                flags="loading stale",
                categories="dangerous",
                group="server",
                summary="Lists the members of the cluster, and regions that were removed.",
                complexity="O(R), R being the regions.",
                tips=("nondeterministic_output",),
            ),
            Row(
                "remove",
                regions.region_remove,
                arity=-3,
                flags="admin noscript no_multi",
                group="server",
                summary="Removes a region from the cluster, with FORCE one that is out of reach.",
                complexity="O(R), R being the regions.",
                syntax="region [FORCE]",
            ),
            Row(
                "features",
                regions.region_features,
                arity=2,
                flags="loading stale",
                categories="dangerous",
                group="server",
                summary="Shows every member's version of effects, and the oldest members.",
                complexity="O(R), R being the regions.",
                tips=("nondeterministic_output",),
            ),
            Row(
                "repair",
                repair,
                arity=5,
                flags="admin noscript no_multi blocking",
                keys=(KeySpec("RW update", begin=2),),
                group="server",
                summary="Takes over another region's version of a key that must not differ.",
                complexity="O(N), N being the entries.",
                syntax="key FROM region",
                tips=("nondeterministic_output",),
            ),
            help_row("0.1.0"),
        ],
    ),
    Row(
        "ab.link",
        regions.link,
        arity=-3,
        flags="admin noscript loading stale",
        group="server",
        summary="Injects faults into the link with another region, for tests.",
        syntax="region <PAUSE | RESUME | DELAY ms [jitter] | LOSS percent | RATE bytes-per-second>",
    ),
    # extensions/verifying.py
    Row(
        "ab.verify",
        verifying.verify,
        arity=-2,
        flags="readonly noscript no_multi blocking",
        keys=(KeySpec("RO access", begin=2, last=-1),),
        group="server",
        summary="Compares keys, or everything, with another region.",
        complexity="O(N), N being the entries that changed since they were last looked at.",
        syntax="region [key [key ...]]",
        tips=("nondeterministic_output",),
    ),
]
