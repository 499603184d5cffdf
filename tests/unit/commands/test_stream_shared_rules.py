"""What all stream commands have in common (specification §2)."""

from __future__ import annotations

import pytest

from anabranch.engine.key_extraction import streams_at
from tests.support.streams import (
    INVALID_ID,
    NO_SUCH_KEY,
    NOT_INTEGER,
    SYNTAX,
    WRONGTYPE,
    Streams,
    words,
)

ARITY = "ERR wrong number of arguments for '{}' command"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("xadd", "XADD"),
        ("xadd", "XADD s * f"),
        ("xtrim", "XTRIM s MAXLEN"),
        ("xdel", "XDEL s"),
        ("xdelex", "XDELEX s IDS 1"),
        ("xackdel", "XACKDEL s g IDS 1"),
        ("xlen", "XLEN"),
        ("xlen", "XLEN s t"),
        ("xrange", "XRANGE s -"),
        ("xrevrange", "XREVRANGE s +"),
        ("xread", "XREAD STREAMS s"),
        ("xreadgroup", "XREADGROUP GROUP g c STREAMS s"),
        ("xack", "XACK s g"),
        ("xnack", "XNACK s g FAIL IDS 1"),
        ("xpending", "XPENDING s"),
        ("xclaim", "XCLAIM s g c 0"),
        ("xautoclaim", "XAUTOCLAIM s g c 0"),
        ("xsetid", "XSETID s"),
        ("xcfgset", "XCFGSET"),
        ("xidmprecord", "XIDMPRECORD s p i"),
        ("xidmprecord", "XIDMPRECORD s p i 1-1 x"),
        ("xgroup", "XGROUP"),
        ("xinfo", "XINFO"),
        ("xidmp", "XIDMP"),
        ("xgroup|create", "XGROUP CREATE s g"),
        ("xgroup|setid", "xgroup SetId s g"),
        ("xgroup|destroy", "XGROUP DESTROY s"),
        ("xgroup|destroy", "XGROUP DESTROY s g x"),
        ("xgroup|createconsumer", "XGROUP CREATECONSUMER s g"),
        ("xgroup|createconsumer", "XGROUP CREATECONSUMER s g c x"),
        ("xgroup|delconsumer", "XGROUP DELCONSUMER s g"),
        ("xgroup|delconsumer", "XGROUP DELCONSUMER s g c x"),
        ("xgroup|help", "XGROUP HELP x"),
        ("xinfo|stream", "XINFO STREAM"),
        ("xinfo|groups", "XINFO GROUPS"),
        ("xinfo|groups", "XINFO GROUPS s x"),
        ("xinfo|consumers", "XINFO CONSUMERS s"),
        ("xinfo|consumers", "XINFO CONSUMERS s g x"),
        ("xinfo|help", "XINFO HELP x"),
        ("xidmp|cfgset", "XIDMP CFGSET"),
        ("xidmp|cfgget", "XIDMP CFGGET"),
    ],
)
def test_too_few_or_too_many_arguments_are_refused(name: str, line: str) -> None:
    """§2.1, §2.2."""
    assert Streams().fails(line) == ARITY.format(name)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("XGROUP FOO", "ERR unknown subcommand 'FOO'. Try XGROUP HELP."),
        ("xgroup foo s g 0", "ERR unknown subcommand 'foo'. Try XGROUP HELP."),
        ("XINFO Foo s", "ERR unknown subcommand 'Foo'. Try XINFO HELP."),
        ("XIDMP FOO s", "ERR unknown subcommand 'FOO'. Try XIDMP HELP."),
    ],
)
def test_an_unknown_subcommand_points_to_help(line: str, error: str) -> None:
    """§2.1."""
    assert Streams().fails(line) == error


ON_WRONG_TYPE = [
    "XADD k * f v",
    "XADD k NOMKSTREAM * f v",
    "XADD k IDMP p i * f v",
    "XTRIM k MAXLEN 1",
    "XDEL k 1-1",
    "XDEL k no-id",
    "XDELEX k IDS 1 1-1",
    "XDELEX k what is this",
    "XACKDEL k g IDS 1 1-1",
    "XACKDEL k g what is this",
    "XLEN k",
    "XRANGE k - +",
    "XRANGE k - + COUNT 0",
    "XREVRANGE k + -",
    "XREAD STREAMS k 0",
    "XREAD STREAMS k $",
    "XREAD STREAMS k +",
    "XREAD STREAMS k >",
    "XREADGROUP GROUP g c STREAMS k >",
    "XREADGROUP GROUP g c STREAMS k no-id",
    "XACK k g 1-1",
    "XNACK k g WHAT IDS 1 1-1",
    "XPENDING k g",
    "XPENDING k g - + 1",
    "XCLAIM k g c no-number 1-1",
    "XAUTOCLAIM k g c 0 -",
    "XSETID k 1-1",
    "XCFGSET k",
    "XIDMPRECORD k p i 1-1",
    "XIDMP CFGSET k",
    "XIDMP CFGGET k",
    "XGROUP CREATE k g 0",
    "XGROUP CREATE k g 0 MKSTREAM",
    "XGROUP SETID k g 0",
    "XGROUP DESTROY k g",
    "XGROUP CREATECONSUMER k g c",
    "XGROUP DELCONSUMER k g c",
    "XINFO STREAM k",
    "XINFO STREAM k FULL",
    "XINFO STREAM k WHAT",
    "XINFO GROUPS k",
    "XINFO CONSUMERS k g",
]


@pytest.mark.parametrize("line", ON_WRONG_TYPE)
def test_a_key_of_another_type_is_refused(line: str) -> None:
    """§2.1."""
    s = Streams()
    s.run("SET k v")
    assert s.fails(line) == WRONGTYPE


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("XADD k no-id f v", INVALID_ID),
        ("XADD k 0-0 f v", "ERR The ID specified in XADD must be greater than 0-0"),
        ("XTRIM k MAXLEN x", NOT_INTEGER),
        ("XTRIM k WHAT 1", SYNTAX),
        ("XRANGE k x +", INVALID_ID),
        ("XRANGE k - + COUNT x", NOT_INTEGER),
        ("XREAD COUNT x STREAMS k 0", NOT_INTEGER),
        ("XPENDING k g - + x", NOT_INTEGER),
        ("XAUTOCLAIM k g c x -", "ERR Invalid min-idle-time argument for XAUTOCLAIM"),
        ("XAUTOCLAIM k g c 0 - COUNT 0", "ERR COUNT must be > 0"),
        ("XSETID k x", INVALID_ID),
        ("XSETID k 1-1 ENTRIESADDED x", NOT_INTEGER),
        ("XIDMPRECORD k p i x", INVALID_ID),
        ("XGROUP CREATE k g 0 ENTRIESREAD x", NOT_INTEGER),
    ],
)
def test_where_arguments_are_read_first_their_error_wins(line: str, error: str) -> None:
    """§2.1, §3, §5: argument errors before the type check."""
    s = Streams()
    s.run("SET k v")
    assert s.fails(line) == error


INTEGERS = {
    "XADD s MAXLEN {} * f v": NOT_INTEGER,
    "XADD s MAXLEN ~ 1 LIMIT {} * f v": NOT_INTEGER,
    "XTRIM s MAXLEN {}": NOT_INTEGER,
    "XTRIM s MINID ~ 1 LIMIT {}": NOT_INTEGER,
    "XRANGE s - + COUNT {}": NOT_INTEGER,
    "XREAD COUNT {} STREAMS s 0": NOT_INTEGER,
    "XREAD MAXCOUNT {} STREAMS s 0": NOT_INTEGER,
    "XREAD MAXSIZE {} STREAMS s 0": NOT_INTEGER,
    "XREAD BLOCK {} STREAMS s 0": "ERR timeout is not an integer or out of range",
    "XREADGROUP GROUP g c CLAIM {} STREAMS s >": (
        "ERR min-idle-time is not an integer or out of range"
    ),
    "XPENDING s g IDLE {} - + 1": NOT_INTEGER,
    "XPENDING s g - + {}": NOT_INTEGER,
    "XCLAIM s g c {} 1-1": "ERR Invalid min-idle-time argument for XCLAIM",
    "XCLAIM s g c 0 1-1 IDLE {}": "ERR Invalid IDLE option argument for XCLAIM",
    "XCLAIM s g c 0 1-1 TIME {}": "ERR Invalid TIME option argument for XCLAIM",
    "XCLAIM s g c 0 1-1 RETRYCOUNT {}": "ERR Invalid RETRYCOUNT option argument for XCLAIM",
    "XAUTOCLAIM s g c {} -": "ERR Invalid min-idle-time argument for XAUTOCLAIM",
    "XAUTOCLAIM s g c 0 - COUNT {}": "ERR COUNT must be > 0",
    "XNACK s g FAIL IDS {} 1-1": "ERR numids must be a positive integer",
    "XNACK s g FAIL IDS 1 1-1 RETRYCOUNT {}": NOT_INTEGER,
    "XDELEX s IDS {} 1-1": "ERR Number of IDs must be a positive integer",
    "XACKDEL s g IDS {} 1-1": "ERR Number of IDs must be a positive integer",
    "XSETID s 1-1 ENTRIESADDED {}": NOT_INTEGER,
    "XCFGSET s IDMP-DURATION {}": NOT_INTEGER,
    "XCFGSET s IDMP-MAXSIZE {}": NOT_INTEGER,
    "XGROUP CREATE s h 0 ENTRIESREAD {}": NOT_INTEGER,
    "XGROUP SETID s g 0 ENTRIESREAD {}": NOT_INTEGER,
    "XINFO STREAM s FULL COUNT {}": NOT_INTEGER,
}
NO_INTEGERS = [
    "x", "''", "1.5", "+5", "-0", "05", "00", "' 5'", "'5 '", "0x5", "1e3", "--5", "-",
    "9223372036854775808", "-9223372036854775809", "1" * 30, "٣",
]  # fmt: skip


@pytest.mark.parametrize("line", INTEGERS)
def test_a_number_is_a_canonical_signed_64_bit_decimal(line: str) -> None:
    """§2.1: no leading zeros, ``+5``, ``-0`` or blanks."""
    s = Streams()
    s.run("XGROUP CREATE s g 0 MKSTREAM")
    errors = {raw: s.fails(line.format(raw)) for raw in NO_INTEGERS}
    assert errors == dict.fromkeys(NO_INTEGERS, INTEGERS[line])


@pytest.mark.parametrize(
    ("line", "fine"),
    [
        ("XRANGE s - + COUNT {}", ["9223372036854775807", "-9223372036854775808", "0", "-1"]),
        ("XADD s MAXLEN {} * f v", ["9223372036854775807", "0"]),
        ("XINFO STREAM s FULL COUNT {}", ["9223372036854775807", "-9223372036854775808"]),
        ("XCLAIM s g c {} 1-1", ["9223372036854775807", "-9223372036854775808"]),
        ("XNACK s g FAIL IDS 1 1-1 RETRYCOUNT {}", ["9223372036854775807", "0"]),
    ],
)
def test_the_extremes_of_64_bits_are_numbers(line: str, fine: list[str]) -> None:
    """§2.1."""
    s = Streams()
    s.run("XGROUP CREATE s g 0 MKSTREAM")
    for raw in fine:
        s.run(line.format(raw))


@pytest.mark.parametrize(
    "line",
    [
        "XDEL s 1-0 2-0 bad",
        "XACK s g 1-0 2-0 bad",
        "XDELEX s IDS 3 1-0 2-0 bad",
        "XACKDEL s g IDS 3 1-0 2-0 bad",
        "XNACK s g FAIL IDS 3 1-0 2-0 bad",
        "XCLAIM s g d 0 1-0 2-0 LASTID bad",
        "XADD s MAXLEN 0 NOMKSTREAM bad f v",
        "XTRIM s MAXLEN 0 WHAT",
        "XCFGSET s IDMP-DURATION 5 IDMP-MAXSIZE 0",
        "XREADGROUP GROUP g d STREAMS s t > bad",
        "XREAD STREAMS s t 0 >",
        "XSETID s 9-9 ENTRIESADDED 9 MAXDELETEDID bad",
    ],
)
def test_a_refused_command_changes_nothing(line: str) -> None:
    """§2.1: all or nothing."""
    s = Streams()
    for key in ("s", "t"):
        s.count_to(key, 3)
        s.run(f"XGROUP CREATE {key} g 0", f"XREADGROUP GROUP g c COUNT 2 STREAMS {key} >")
    before = s.run("XINFO STREAM s FULL")
    changes = s.region.context.changes
    s.fails(line)
    assert s.run("XINFO STREAM s FULL") == before
    assert s.region.context.changes == changes


# -- the command table ------------------------------------------------------------------------

TABLE = """
xadd             -5  write denyoom fast   write stream fast
xtrim            -4  write                write stream slow
xdel             -3  write fast           write stream fast
xdelex           -5  write fast           write stream fast
xackdel          -6  write fast           write stream fast
xlen              2  readonly fast        read stream fast
xrange           -4  readonly             read stream slow
xrevrange        -4  readonly             read stream slow
xread            -4  readonly blocking movablekeys  read stream slow blocking
xreadgroup       -7  write blocking movablekeys     write stream slow blocking
xack             -4  write fast           write stream fast
xnack            -7  write fast           write stream fast
xpending         -3  readonly             read stream slow
xclaim           -6  write fast           write stream fast
xautoclaim       -6  write fast           write stream fast
xsetid           -3  write denyoom fast   write stream fast
xcfgset          -2  write fast           write stream fast
xidmprecord       5  write denyoom fast   write stream fast
xgroup|create    -5  write denyoom        write stream slow
xgroup|setid     -5  write                write stream slow
xgroup|destroy    4  write                write stream slow
xgroup|createconsumer 5  write denyoom    write stream slow
xgroup|delconsumer    5  write            write stream slow
xinfo|stream     -3  readonly             read stream slow
xinfo|groups      3  readonly             read stream slow
xinfo|consumers   4  readonly             read stream slow
xgroup           -2                       slow
xinfo            -2                       slow
xgroup|help       2  loading stale        stream slow
xinfo|help        2  loading stale        stream slow
"""


@pytest.mark.parametrize("row", TABLE.strip().splitlines())
def test_arity_flags_and_categories(row: str) -> None:
    """§2.2. ``fast`` is a flag as well as a category."""
    name, arity, *rest = row.split()
    split = next((i for i, word in enumerate(rest) if word in ("stream", "slow")), 0)
    if rest[split - 1] in ("read", "write"):
        split -= 1
    entry = next(
        e for e in Streams().region.dispatcher.all_entries() if e.command.full_name == name
    )
    assert entry.command.arity == int(arity)
    assert set(entry.command.flags) == set(rest[:split])
    assert set(entry.command.categories) == set(rest[split:])


@pytest.mark.parametrize(
    "name", ["xadd", "xtrim", "xpending", "xclaim", "xautoclaim", "xinfo|consumers"]
)
def test_replies_that_depend_on_the_moment_say_so(name: str) -> None:
    """§2.2: the tip nondeterministic_output."""
    entries = Streams().region.dispatcher.all_entries()
    command = next(e.command for e in entries if e.command.full_name == name)
    assert "nondeterministic_output" in command.tips


@pytest.mark.parametrize(
    ("line", "keys"),
    [
        ("XREAD STREAMS a b 0 0", "a b"),
        ("XREAD COUNT 1 BLOCK 0 STREAMS a 0", "a"),
        ("XREADGROUP GROUP STREAMS c STREAMS a b > >", "a b"),
        ("XREADGROUP GROUP g STREAMS STREAMS a >", "a"),
        ("XREADGROUP GROUP g c NOACK STREAMS a >", "a"),
        ("XREADGROUP NOACK GROUP g c CLAIM 5 MAXCOUNT 5 MAXSIZE 5 STREAMS STREAMS >", "STREAMS"),
    ],
)
def test_keys_stand_behind_streams_by_the_grammar(line: str, keys: str) -> None:
    """§2.2: a group or consumer may be called STREAMS."""
    args = [word.encode() for word in words(line)]
    first = streams_at(args)
    found = args[first : first + (len(args) - first) // 2]
    assert b" ".join(found).decode() == keys


@pytest.mark.parametrize("line", ["XREAD COUNT 1 STREAMS", "XREAD COUNT STREAMS", "XREAD"])
def test_without_streams_there_are_no_keys(line: str) -> None:
    """§2.2."""
    assert streams_at([word.encode() for word in words(line)]) == 0


def test_only_commands_that_may_grow_memory_are_refused_over_the_limit() -> None:
    """§2.1, §2.2: the flag denyoom."""
    s = Streams()
    s.fill("s", "1-0")
    s.run("XGROUP CREATE s g 0")
    s.run("CONFIG SET maxmemory 1mb")
    s.region.dispatcher.used_memory = lambda: 2 << 20
    oom = "OOM command not allowed when used memory > 'maxmemory'."
    for line in (
        "XADD s * f v",
        "XSETID s 9-0",
        "XIDMPRECORD s p i 1-0",
        "XGROUP CREATE s h 0",
        "XGROUP CREATECONSUMER s g c",
    ):
        assert s.fails(line) == oom
    for line in (
        "XTRIM s MAXLEN 5",
        "XREADGROUP GROUP g c STREAMS s >",
        "XCLAIM s g d 0 1-0",
        "XAUTOCLAIM s g d 0 -",
        "XNACK s g FAIL IDS 1 1-0",
        "XCFGSET s IDMP-DURATION 5",
        "XGROUP SETID s g 0",
        "XACK s g 1-0",
        "XDEL s 1-0",
    ):
        s.run(line)


# -- state ------------------------------------------------------------------------------------


def test_a_stream_key_is_never_removed_because_it_is_empty() -> None:
    """§2.3."""
    s = Streams()
    s.count_to("s", 2)
    s.run("XGROUP CREATE s g 0", "XDEL s 1-0", "XTRIM s MAXLEN 0", "XGROUP DESTROY s g")
    assert s.run("EXISTS s") == 1
    assert s.run("TYPE s") == "stream"
    assert s.run("XLEN s") == 0


def test_names_are_binary_safe_case_sensitive_and_may_be_empty() -> None:
    """§2.3; they are listed in bytewise order."""
    s = Streams()
    s.fill("s", "1-0")
    names = [b"", b"\x00\r\n", b"B", b"a", b"b", b"\xff\xfe"]
    for name in reversed(names):
        s.do("XGROUP", "CREATE", "s", name, "0")
    for name in reversed(names):
        s.do("XGROUP", "CREATECONSUMER", "s", "a", name)
    assert [row[1] for row in s.do("XINFO", "GROUPS", "s")] == names
    assert [row[1] for row in s.do("XINFO", "CONSUMERS", "s", "a")] == names
    assert s.do("XREADGROUP", "GROUP", b"", b"", "STREAMS", "s", ">")
    assert s.do("XPENDING", "s", b"") == [1, b"1-0", b"1-0", [[b"", b"1"]]]


def test_a_missing_key_is_named_by_commands_that_need_one() -> None:
    """§2.1."""
    s = Streams()
    for line in (
        "XSETID s 1-1",
        "XCFGSET s",
        "XIDMPRECORD s p i 1-1",
        "XIDMP CFGSET s",
        "XIDMP CFGGET s",
        "XINFO STREAM s",
        "XINFO STREAM s WHAT",
        "XINFO GROUPS s",
        "XINFO CONSUMERS s g",
    ):
        assert s.fails(line) == NO_SUCH_KEY
