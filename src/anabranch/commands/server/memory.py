"""MEMORY: the memory of keys and of the process.

Sizes of keys are estimates (``keyspace/memory.py``).
"""

from __future__ import annotations

from anabranch.commands.server.info import human_bytes
from anabranch.engine import texts
from anabranch.engine.arguments import integer, options_of
from anabranch.engine.context import Context
from anabranch.errors import CommandError
from anabranch.keyspace.memory import key_bytes
from anabranch.resp.encode import OK, null
from anabranch.resp.encode import integer as integer_reply
from anabranch.resp.values import Verbatim

_SAMPLES_DEFAULT = 5
_NEAR_LIMIT = 0.9


def usage(ctx: Context, args: list[bytes]) -> bytes:
    """MEMORY USAGE key [SAMPLES count]; 0 samples measure everything."""
    samples = _SAMPLES_DEFAULT
    for _, values in options_of(args[3:], {b"SAMPLES": 1}):
        samples = integer(values[0])
        if samples < 0:
            raise CommandError(texts.SYNTAX)
    key = args[2]
    value = ctx.lookup(key)
    if value is None:
        return null(ctx.resp3)
    return integer_reply(key_bytes(key, value, samples))


def stats(ctx: Context, _args: list[bytes]) -> bytes:
    """MEMORY STATS: what the memory is used for, in bytes."""
    facts = _sizes(ctx)
    keys = sum(len(database.values) for database in ctx.keyspace.databases)
    used, resident = facts["used"], facts["resident"]
    allocated = used + facts["program"]
    dataset = ctx.keyspace.account.used_bytes
    figures: dict[str, object] = {
        "peak.allocated": facts["peak"],
        "total.allocated": used,
        "startup.allocated": 0,  # nothing is counted at the start
        "replication.backlog": 0,
        "clients.slaves": 0,
        "clients.normal": facts["buffers"],
        "cluster.links": 0,
        "aof.buffer": 0,
        "lua.caches": ctx.server.scripts.used_bytes,
        "functions.caches": 0,
        "streams.opened": ctx.keyspace.block_cache.held,
    }
    held = ctx.server.holdings.rows()
    figures |= {f"overhead.{holder}": size for holder, size in held.items()}
    for database in ctx.keyspace.databases:
        if database.values:
            figures[f"db.{database.index}"] = {
                "overhead.hashtable.main": database.values.__sizeof__(),
                "overhead.hashtable.expires": database.deadlines.__sizeof__(),
            }
    figures |= {
        "overhead.db.hashtable.lut": 0,
        "overhead.db.hashtable.rehashing": 0,
        "db.dict.rehashing.count": 0,
        "overhead.total": used - dataset,
        "keys.count": keys,
        "keys.bytes-per-key": dataset // keys if keys else 0,
        "dataset.bytes": dataset,
        "dataset.percentage": 100 * dataset / max(used, 1),
        "peak.percentage": 100 * used / max(facts["peak"], 1),
        "allocator.allocated": allocated,
        "allocator.active": resident,
        "allocator.resident": resident,
        "allocator.muzzy": 0,
        "allocator-fragmentation.ratio": 1.0,  # the heap of Python tells only its whole size
        "allocator-fragmentation.bytes": 0,
        "allocator-rss.ratio": 1.0,
        "allocator-rss.bytes": 0,
        "rss-overhead.ratio": 1.0,
        "rss-overhead.bytes": 0,
        "fragmentation": resident / max(allocated, 1),
        "fragmentation.bytes": resident - allocated,
    }
    return ctx.reply(figures)


def _sizes(ctx: Context) -> dict[str, int]:
    facts = ctx.server.host.process_info()
    ctx.count_memory()
    used = ctx.server.dispatcher.used_memory()
    resident = _size(facts.get("rss_bytes"))
    return {
        "used": used,
        "peak": max(ctx.stats.used_memory_peak, used),
        "resident": resident,
        "peak_resident": max(_size(facts.get("peak_rss_bytes")), resident),
        "program": min(_size(facts.get("startup_rss_bytes")), resident),
        "buffers": _size(facts.get("client_buffer_bytes")),
        "system": _size(facts.get("total_system_memory")),
    }


def _size(fact: object) -> int:
    return fact if isinstance(fact, int) else 0


def doctor(ctx: Context, _args: list[bytes]) -> bytes:
    """MEMORY DOCTOR: advice for operators, in sentences."""
    facts = _sizes(ctx)
    maxmemory = ctx.settings.maxmemory
    findings = []
    if maxmemory and facts["used"] >= _NEAR_LIMIT * maxmemory:
        findings.append(
            f"Data and buffers hold {human_bytes(facts['used'])} of the {human_bytes(maxmemory)} "
            "that maxmemory allows: writes are, or soon will be, refused. Trim streams or raise it."
        )
    if facts["system"] and facts["resident"] >= _NEAR_LIMIT * facts["system"]:
        findings.append(
            f"The process uses {human_bytes(facts['resident'])} of the machine's "
            f"{human_bytes(facts['system'])}: the system may start swapping or end it."
        )
    if facts["peak_resident"] > 2 * max(facts["resident"], 1):
        findings.append(
            f"At its peak the process used {human_bytes(facts['peak_resident'])}, now "
            f"{human_bytes(facts['resident'])}: plan for the peak."
        )
    text = "\n".join(f"- {finding}" for finding in findings) or "No memory issue was found."
    return ctx.reply(Verbatim(text + "\n"))


def purge(ctx: Context, _args: list[bytes]) -> bytes:
    """MEMORY PURGE: return memory now, not only when the server rests."""
    ctx.server.host.give_back_memory()
    return OK


def malloc_stats(ctx: Context, _args: list[bytes]) -> bytes:
    """MEMORY MALLOC-STATS: a line that says that there are no such figures."""
    return ctx.reply(Verbatim("Python's allocator keeps no statistics to show.\n"))
