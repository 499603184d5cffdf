"""The error for a command that does not exist, and the commands of Redis that do not exist here."""

from __future__ import annotations

from anabranch.commands.request import texts
from anabranch.errors import CommandError

__all__ = ["ABSENT", "unknown_command"]

_SHOWN_BYTES = 128

_FAMILIES = {
    "hashes": """
        hdel hexists hexpire hexpireat hexpiretime hget hgetall hgetdel hgetex himport hincrby
        hincrbyfloat hkeys hlen hmget hmset hpersist hpexpire hpexpireat hpexpiretime hpttl
        hrandfield hscan hset hsetex hsetnx hstrlen httl hvals""",
    "sorted sets": """
        bzmpop bzpopmax bzpopmin zadd zcard zcount zdiff zdiffstore zincrby zinter zintercard
        zinterstore zlexcount zmpop zmscore zpopmax zpopmin zrandmember zrange zrangebylex
        zrangebyscore zrangestore zrank zrem zremrangebylex zremrangebyrank zremrangebyscore
        zrevrange zrevrangebylex zrevrangebyscore zrevrank zscan zscore zunion zunionstore""",
    "geospatial indexes": """
        geoadd geodist geohash geopos georadius georadius_ro georadiusbymember
        georadiusbymember_ro geosearch geosearchstore""",
    "bitmaps": "bitcount bitfield bitfield_ro bitop bitpos getbit setbit",
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
        json.numincrby json.nummultby json.objkeys json.objlen json.resp json.set json.strappend
        json.strlen json.toggle json.type""",
    "search": """
        ft._list ft.aggregate ft.aliasadd ft.aliasdel ft.aliaslist ft.aliasupdate ft.alter
        ft.config ft.create ft.cursor ft.dictadd ft.dictdel ft.dictdump ft.dropindex ft.explain
        ft.explaincli ft.hybrid ft.info ft.profile ft.search ft.spellcheck ft.sugadd ft.sugdel
        ft.sugget ft.suglen ft.syndump ft.synupdate ft.tagvals""",
    "time series": """
        ts.add ts.alter ts.create ts.createrule ts.decrby ts.del ts.deleterule ts.get ts.incrby
        ts.info ts.madd ts.mget ts.mrange ts.mrevrange ts.nrange ts.nrevrange ts.queryindex
        ts.querylabels ts.range ts.read ts.revrange""",
    "probabilistic types": """
        bf.add bf.card bf.exists bf.info bf.insert bf.loadchunk bf.madd bf.mexists bf.reserve
        bf.scandump
        cf.add cf.addnx cf.count cf.del cf.exists cf.info cf.insert cf.insertnx cf.loadchunk
        cf.mexists cf.reserve cf.scandump
        cms.incrby cms.info cms.initbydim cms.initbyprob cms.merge cms.query
        tdigest.add tdigest.byrank tdigest.byrevrank tdigest.cdf tdigest.create tdigest.info
        tdigest.max tdigest.merge tdigest.min tdigest.quantile tdigest.rank tdigest.reset
        tdigest.revrank tdigest.trimmed_mean
        topk.add topk.count topk.incrby topk.info topk.list topk.query topk.reserve""",
    "": """
        backup bless blmovem blmpop delex digest gcra gcrasetvalue hotkeys increx lcs lmovem lmpop
        migrate msetex restore-asking sdiffcard sdiffstore sintercard sinterstore sort sort_ro
        substr sunioncard sunionstore trimslots""",
}

ABSENT: dict[str, str] = {
    name: family for family, names in _FAMILIES.items() for name in names.split()
}
"""Commands of Redis 8.10 that this server does not have: lower-case name -> what it is for.

What it is for is empty if this server has other commands for the same type.
"""

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
    family = ABSENT.get(args[0].lower().decode("latin-1"))
    if family is not None:
        what = f"has no {family}" if family else "does not have every command of Redis"
        text = text.rstrip(b" ") + f" (Anabranch is a stream server and {what}; {_PAGE})".encode()
    return CommandError(text)
