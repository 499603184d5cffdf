"""The names of Redis's commands that this server does not have.

Rules of users may name them, and the error of a request for one tells what it is for. The source of
the names: COMMAND LIST of Redis 8.10 with the modules that it comes with, and what the release
notes of Redis 8.12 add. ``tests/differential`` compares them with the list of a redis-server.
"""

from __future__ import annotations

from typing import Final

from anabranch.engine import texts
from anabranch.errors import CommandError

_FAMILIES: Final = {
    "hashes": """
        hdel hexists hexpire hexpireat hexpiretime hget hgetall hgetdel hgetex himport hincrby
        hincrbyfloat hkeys hlen hmget hmset hpersist hpexpire hpexpireat hpexpiretime hpttl
        hrandfield hscan hset hsetex hsetnx hstrlen httl hvals""",
    "sorted sets": """
        bzmove bzmpop bzpopmax bzpopmin zadd zcard zcount zdiff zdiffstore zincrby zinter zintercard
        zinterstore zlexcount zmove zmovemember zmpop zmscore zpopmax zpopmin zrandmember zrange
        zrangebylex zrangebyscore zrangestore zrank zrem zremrangebylex zremrangebyrank
        zremrangebyscore zrevrange zrevrangebylex zrevrangebyscore zrevrank zscan zscore zunion
        zunionstore""",
    "geospatial indexes": """
        geoadd geodist geohash geopos georadius georadius_ro georadiusbymember
        georadiusbymember_ro geosearch geosearchstore""",
    "bitmaps": "bitcount bitfield bitfield_ro bitop bitpos bitrangeintarray getbit setbit",
    "HyperLogLogs": "pfadd pfcount pfdebug pfmerge pfselftest",
    "arrays": """
        arcount ardel ardelrange arget argetrange argrep arinfo arinsert arlastitems arlen armget
        armset arnext arop arring arscan arseek arset""",
    "vector sets": """
        vadd vcard vdim vemb vgetattr vinfo vismember vlinks vrandmember vrange vrem vsetattr
        vsim""",
    "JSON": """
        json.arrappend json.arrindex json.arrinsert json.arrlen json.arrpop json.arrtrim
        json.clear json.debug json.del json.forget json.get json.merge json.mget json.mset
        json.numincrby json.nummultby json.numpowby json.objkeys json.objlen json.resp json.set
        json.strappend json.strlen json.toggle json.type""",
    "search": """
        ft._aliasaddifnx ft._aliasdelifx ft._alterifnx ft._createifnx ft._dropifx ft._dropindexifx
        ft._list ft.add ft.aggregate ft.aliasadd ft.aliasdel ft.aliaslist ft.aliasupdate ft.alter
        ft.config ft.create ft.cursor ft.del ft.dictadd ft.dictdel ft.dictdump ft.drop ft.dropindex
        ft.explain ft.explaincli ft.get ft.hybrid ft.info ft.mget ft.profile ft.safeadd ft.search
        ft.spellcheck ft.sugadd ft.sugdel ft.sugget ft.suglen ft.synadd ft.syndump ft.synupdate
        ft.tagvals _ft.config _ft.cursor _ft.debug search.clusterinfo search.clusterrefresh
        search.clusterset""",
    "time series": """
        timeseries.clusterset timeseries.refreshcluster
        ts.add ts.alter ts.create ts.createrule ts.decrby ts.del ts.deleterule ts.get ts.incrby
        ts.info ts.madd ts.mget ts.mrange ts.mrevrange ts.nrange ts.nrevrange ts.queryindex
        ts.querylabels ts.range ts.read ts.revrange""",
    "probabilistic types": """
        bf.add bf.card bf.debug bf.exists bf.info bf.insert bf.loadchunk bf.madd bf.mexists
        bf.reserve bf.scandump
        cf.add cf.addnx cf.compact cf.count cf.debug cf.del cf.exists cf.info cf.insert cf.insertnx
        cf.loadchunk cf.mexists cf.reserve cf.scandump
        cms.incrby cms.info cms.initbydim cms.initbyprob cms.merge cms.query
        tdigest.add tdigest.byrank tdigest.byrevrank tdigest.cdf tdigest.create tdigest.info
        tdigest.max tdigest.merge tdigest.min tdigest.quantile tdigest.rank tdigest.reset
        tdigest.revrank tdigest.trimmed_mean
        topk.add topk.count topk.incrby topk.info topk.list topk.query topk.reserve""",
    "": """
        backup bless blmovem blmpop delex digest gcra gcrasetvalue hotkeys increx lcs lmovem lmpop
        migrate msetex restore-asking saddex sdiffcard sdiffstore sexpire sexpireat sexpiretime
        sintercard sinterstore sort sort_ro spersist spexpire spexpireat spexpiretime spttl sttl
        substr sunioncard sunionstore trimslots""",
}

_SUBCOMMANDS: Final = {
    "backup": "abort cleanup help list seal start status",
    "bless": "clear get help scan set",
    "ft.config": "get help set",
    "_ft.config": "get help set",
    "ft.cursor": "del gc read",
    "_ft.cursor": "del gc read",
    "_ft.debug": """
        bg_scan_controller clear_pending_topology coord_threads delete_local_coord_cursors
        delete_local_cursors disk_flush disk_io_control docidtoid docinfo dump_deleted_ids
        dump_geomidx dump_hnsw dump_invidx dump_numidx dump_numidxtree dump_phonetic_hash
        dump_prefix_trie dump_schema dump_suffix_trie dump_tagidx dump_terms ft.aggregate ft.hybrid
        ft.profile ft.search gc_clean_numeric gc_continue_schedule gc_forcebginvoke gc_forceinvoke
        gc_stop_schedule gc_wait_for_jobs get_hide_user_data_from_logs get_max_doc_id git_sha help
        idtodocid indexer_sleep_before_yield_micros indexes info info_tagidx invidx_summary
        numidx_summary pause_topology_updater query_controller register_test_scorers
        resume_topology_updater set_max_indexes set_monitor_expiration shard_connection_states
        spec_invidxes_info ttl ttl_expire ttl_pause vecsim_info vecsim_mock_timeout workers
        yields_counter _ft.aggregate _ft.hybrid _ft.profile _ft.search""",
    "himport": "discard discardall prepare set",
    "hotkeys": "get help reset start stop",
    "module": "load loadex unload",
    "script": "debug",
}
"""Those of commands above, and those that commands of this server lack."""

ABSENT: Final[dict[str, str]] = {
    name: family for family, names in _FAMILIES.items() for name in names.split()
}
"""Lower-case name of a command -> what it is for.

What it is for is empty if this server has other commands for the same type.
"""

ABSENT_CONTAINERS: Final = frozenset(name.encode() for name in _SUBCOMMANDS if name in ABSENT)
"""The commands that have sub-commands."""

ABSENT_NAMES: Final = frozenset(
    name.encode()
    for name in (
        *ABSENT,
        *(f"{name}|{sub}" for name, subs in _SUBCOMMANDS.items() for sub in subs.split()),
    )
)
"""The names of commands and, as ``command|sub-command``, of sub-commands."""


# -- the error for a command that does not exist --------------------------------------------------

_SHOWN_BYTES = 128

_PAGE = "docs/commands.md lists its commands"


def unknown_command(args: list[bytes]) -> CommandError:
    """The error for a request whose first word is no command.

    The words are Redis's: the name and the first arguments, cut at about 128 bytes. If the name is
    a command of Redis, one sentence follows, so that users do not look for a mistake of theirs.
    """
    shown = b""
    for arg in args[1:]:
        if len(shown) >= _SHOWN_BYTES:
            break
        shown += b"'%b' " % texts.shown(arg)[: _SHOWN_BYTES - len(shown)]
    text = b"ERR unknown command '%b'" % texts.shown(args[0])[:_SHOWN_BYTES]
    if len(args) > 1:
        text += b", with args beginning with: " + shown
    sentence = hint(args[0])
    if sentence:
        text = text.rstrip(b" ") + b" " + sentence
    return CommandError(text)


def hint(name: bytes) -> bytes:
    """The sentence for a command that Redis has and this server has not; empty for all others."""
    family = ABSENT.get(name.lower().decode("latin-1"))
    if family is None:
        return b""
    what = f"has no {family}" if family else "does not have every command of Redis"
    return f"(Anabranch is a stream server and {what}; {_PAGE})".encode()
