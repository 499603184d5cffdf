"""Decoding by vectors against a parser of ten lines, on entries made to deceive it."""

from __future__ import annotations

import random
import struct
from contextlib import suppress
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
import pyzstd
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.spark.decoding import wire_entries
from anabranch.spark.decoding.exports import MalformedReply, parse_export
from anabranch.spark.decoding.pages import ParsedEntries
from anabranch.spark.decoding.wire_entries import WireEntries
from tests.unit.spark.exports import chunk, columns, fragment, node, payload

hostile = st.one_of(
    st.sampled_from([b"", b"\r\n", b"$3\r\nabc\r\n", b"*2\r\n$3\r\n1-1\r\n", b"a", b"$", b"\x00"]),
    st.binary(max_size=12),
    st.binary(min_size=90, max_size=120),
)
name_pool = st.sampled_from([b"a", b"b", b"ab", b"", b"\r\n", b"sensor", b"$1\r\na"])
field_lists = st.lists(st.tuples(name_pool, hostile), min_size=1, max_size=5)
entry_lists = st.lists(field_lists, min_size=1, max_size=40)


def exported(rows, rng):
    """The rows as one export of several chunks in all forms, and their positions and IDs."""
    entries, position = [], rng.randrange(100)
    ms = rng.randrange(10**13) + rng.choice((0, 2**63 - 10**12, 2**64 - 10**13 - 4000))
    for fields in rows:
        entries.append((position, ms, rng.randrange(5), fields))
        position += 1
        ms += rng.randrange(1, 100)
    chunks, at = [], 0
    while at < len(entries):
        some = entries[at : at + rng.randrange(1, 15)]
        at += len(some)
        if rng.random() < 0.3:  # columns: as many as have the same names
            names = [name for name, _ in some[0][3]]
            alike = 1
            while alike < len(some) and [name for name, _ in some[alike][3]] == names:
                alike += 1
            at -= len(some) - alike
            chunks.append(node(some[:alike], kind="C", run=False))
            continue
        if rng.random() < 0.5:
            if run := rng.random() < 0.5:
                where = range(at - len(some), at)
                some = [(each[0], some[0][1], i, each[3]) for i, each in enumerate(some)]
                entries[where.start : where.stop] = some
            longest = max(len(fragment(*each[1:])) for each in some)
            chunks.append(
                node(
                    some,
                    kind="Q" if longest > 65535 else "H" if longest > 255 else rng.choice("BHQ"),
                    run=run,
                )
            )
            continue
        chunks.append(
            chunk(
                some,
                packed=rng.random() < 0.5,
                width=8 if rng.random() < 0.5 else 2,
                explicit=rng.random() < 0.5,
                base=rng.randrange(1000),
            )
        )
    return payload(chunks, position), entries


def reference(data):
    """One entry's fields: the obvious way."""
    _, _, rest = data.partition(b"\r\n")
    words = []

    def bulk(rest):
        length, _, rest = rest[1:].partition(b"\r\n")
        return rest[: int(length)], rest[int(length) + 2 :]

    _, rest = bulk(rest)
    count, _, rest = rest[1:].partition(b"\r\n")
    for _ in range(int(count)):
        word, rest = bulk(rest)
        words.append(word)
    assert rest == b""
    return list(zip(words[::2], words[1::2], strict=True))


def lossless(entries):
    offsets, names, values = entries.fields()
    pairs = list(zip(names.to_pylist(), values.to_pylist(), strict=True))
    return [pairs[low:high] for low, high in pairwise(offsets)]


def first_values(rows, name):
    return [next((value for each, value in row if each == name), None) for row in rows]


def compressed(whole):
    """The same export with the other codec."""
    return whole[:1] + b"\1" + whole[2:16] + pyzstd.compress(whole[16:])


@settings(max_examples=300, deadline=None)
@given(entry_lists, st.randoms(use_true_random=False), st.booleans())
def test_decoding_agrees_with_the_reference(rows, rng, smaller):
    whole, entries = exported(rows, rng)
    export = parse_export(compressed(whole) if smaller else whole)
    block = WireEntries(export)
    wanted = [reference(fragment(ms, seq, fields)) for _, ms, seq, fields in entries]
    assert lossless(block) == wanted == [list(map(tuple, row)) for row in rows]
    assert export.positions.tolist() == [each[0] for each in entries]
    assert block.ids[0].tolist() == [each[1] for each in entries]
    assert block.ids[1].tolist() == [each[2] for each in entries]
    names = [b"a", b"sensor", b"", b"missing"]
    for name, column in zip(names, block.values(names), strict=True):
        assert column.type == pa.binary()
        column.validate(full=True)
        assert column.to_pylist() == first_values(rows, name)


@pytest.mark.parametrize("shapes", [1, 2, 64, 65, 80, 400])
def test_many_shapes_are_decoded_too(shapes):
    rows = [[(b"f%d" % (at % shapes), b"v%d" % at), (b"x", b"%d" % at)] for at in range(400)]
    entries = [(at, at + 1, 0, fields) for at, fields in enumerate(rows)]
    whole = payload([chunk(entries, packed=True, width=8, explicit=False, base=0)], 400)
    block = WireEntries(parse_export(whole))
    assert block.values([b"x", b"f0"])[0].to_pylist() == [b"%d" % at for at in range(400)]
    assert block.values([b"f0"])[0].to_pylist() == first_values(rows, b"f0")
    assert lossless(block) == rows


def whole_of(rows):
    entries = [(at, at + 1, 0, fields) for at, fields in enumerate(rows)]
    return payload([chunk(entries, packed=True, width=8, explicit=False, base=0)], len(rows))


@pytest.mark.parametrize("count", [1, 20, 50])
def test_entries_of_thousands_of_fields_are_decoded_too(count):
    rng = random.Random(count)
    rows = [
        [(b"f%d" % rng.randrange(3_000), b"v" * rng.choice((0, 9, 10, 99, 100, 1_000)))
         for _ in range(rng.choice((1, 15, 16, 17, 400, 2_000)))]
        for _ in range(count)
    ]  # fmt: skip
    block = WireEntries(parse_export(whole_of(rows)))
    assert lossless(block) == rows
    names = [b"f%d" % each for each in range(0, 3_000, 50)]
    for name, column in zip(names, block.values(names), strict=True):
        assert column.to_pylist() == first_values(rows, name)


def test_damage_in_one_of_thousands_of_fields_is_found():
    rows = [[(b"f%d" % each, b"v") for each in range(2_000)] + [(b"x", b"x")] for _ in range(3)]
    whole = whole_of(rows)
    at = whole.rindex(b"$1\r\nx\r\n")
    block = WireEntries(parse_export(whole[:at] + b"$2" + whole[at + 2 :]))
    for read in (block.fields, lambda: block.values([b"x"])):
        with pytest.raises(MalformedReply):
            read()


def test_fields_behind_the_wanted_ones_cost_nothing(monkeypatch):
    steps = []
    step = WireEntries._next_fields
    monkeypatch.setattr(
        WireEntries, "_next_fields", lambda self, at: steps.append(len(at)) or step(self, at)
    )
    rows = [[(b"f%d" % each, b"%d" % at) for each in range(5_000)] for at in range(40)]
    rows[7].insert(1, (b"g", b"7"))
    block = WireEntries(parse_export(whole_of(rows)))
    found = block.values([b"f2", b"f0"])
    assert [each.to_pylist() for each in found] == [[b"%d" % at for at in range(40)]] * 2
    assert steps == [40, 40, 40, 1]


def decoded(whole):
    """All fields, or None where the reply is damaged."""
    try:
        return lossless(WireEntries(parse_export(whole)))
    except MalformedReply:
        return None


@pytest.mark.parametrize("size", [5, 12, 105])
def test_alike_entries_with_any_damage_are_read_as_those_that_differ(monkeypatch, size):
    rows = [[(b"sensor", b"v" * size), (b"t", b"1")] for _ in range(2)]
    whole = whole_of(rows)
    begin = whole.index(b"*2\r\n")
    damaged = [
        whole[:at] + byte + whole[at + 1 :]
        for at in range(begin, len(whole))
        for byte in (b"0", b"9", b"\r", b"$", bytes([whole[at] ^ 0x10]))
        if whole[at : at + 1] != b"v"
    ]
    assert decoded(whole) == rows
    found = list(map(decoded, damaged))
    monkeypatch.setattr(wire_entries, "_TEXT_MAX", 0)  # then each number is read by itself
    assert found == list(map(decoded, damaged))


def test_what_is_no_digit_is_no_size_beside_one():
    rows = [[(b"sensor", b"123456789"), (b"t", b"11")] for _ in range(2)]
    before, separator, after = whole_of(rows).rpartition(b"$9\r\n123456789\r\n$1\r\nt\r\n$2\r\n11")
    assert separator
    assert decoded(before + separator + after) == rows
    assert decoded(before + b"$:\r\n1234567890\r\n$1\r\nt\r\n$1\r\n1" + after) is None


@pytest.mark.parametrize("shapes", [1, 65])
def test_columns_beside_many_shapes_are_decoded_too(shapes):
    rows = [[(b"f%d" % (at // 20 * 20 % shapes), b"v%d" % at), (b"x", b"")] for at in range(200)]
    rows += [[(b"f%d" % (at % shapes), b"v%d" % at), (b"x", b"1")] for at in range(200)]
    entries = [(at, at + 1, 0, fields) for at, fields in enumerate(rows)]
    nodes = [node(entries[at : at + 20], kind="C", run=False) for at in range(0, 200, 20)]
    rest = chunk(entries[200:], packed=True, width=8, explicit=False, base=0)
    export = parse_export(payload([*nodes, rest], 400))
    block = WireEntries(export)
    assert lossless(block) == rows
    assert block.values([b"f0"])[0].to_pylist() == first_values(rows, b"f0")
    assert block.values([b"x"])[0].to_pylist() == first_values(rows, b"x")
    assert export.positions.tolist() == list(range(400))


def test_columns_of_more_entries_than_fit_are_refused():
    contents = struct.pack("<QQIcB", 7, 0, 1 << 30, b"C", 1) + columns([[(b"a", b"")]])
    frame = pyzstd.compress(contents)
    chunk_of = struct.pack("<IBBBBQQQQ", 1 << 30, 2, 0, 0, 0, 0, 0, 0, len(frame)) + frame
    with pytest.raises(MalformedReply, match="lengths disagree"):
        parse_export(payload([chunk_of], 1 << 30))


@given(st.integers(0, 10**9), st.integers(0, 255))
def test_damaged_columns_are_refused_or_harmless(place, byte):
    rows = [[(b"sensor", b"s%d" % (at % 200)), (b"", b"x" * (at % 3))] for at in range(30)]
    whole = bytearray(columns(rows))
    whole[place % len(whole)] = byte
    contents = struct.pack("<QQIcB", 7, 0, 30, b"C", 1) + whole[: len(whole) - byte % 2]
    frame = pyzstd.compress(contents)
    chunk_of = struct.pack("<IBBBBQQQQ", 30, 2, 0, 0, 0, 0, 0, 0, len(frame)) + frame
    with suppress(MalformedReply):
        block = WireEntries(parse_export(payload([chunk_of], 30)))
        assert len(block) == len(block.values([b"sensor"])[0]) == len(lossless(block)) == 30


@pytest.mark.parametrize("size", [7, 40, 64, 65, 300, 100_000])
def test_a_long_name_before_short_entries_is_decoded(size):
    rows = [[(b"n" * size, b"long")], *([(b"a", b"%d" % (at % 10))] for at in range(500))]
    entries = [(at, at + 1, 0, fields) for at, fields in enumerate(rows)]
    whole = payload([chunk(entries, packed=True, width=8, explicit=False, base=0)], 501)
    block = WireEntries(parse_export(whole))
    assert block.values([b"a"])[0].to_pylist() == first_values(rows, b"a")
    assert lossless(block) == rows


def test_an_export_without_entries_has_columns_without_rows():
    block = WireEntries(parse_export(payload([], 7)))
    assert len(block) == 0
    assert [column.to_pylist() for column in block.values([b"a", b"b"])] == [[], []]
    assert lossless(block) == []


@settings(max_examples=150, deadline=None)
@given(entry_lists, st.randoms(use_true_random=False), st.data())
def test_a_torn_payload_is_refused(rows, rng, data):
    whole, _ = exported(rows, rng)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(MalformedReply):
        parse_export(whole[:cut])
    with pytest.raises(MalformedReply):
        parse_export(whole + b"x")
    smaller = compressed(whole)
    cut = data.draw(st.integers(0, len(smaller) - 1))
    with pytest.raises(MalformedReply):
        parse_export(smaller[:cut])
    with pytest.raises(MalformedReply, match="cut off or damaged"):
        parse_export(smaller + b"x")
    with pytest.raises(MalformedReply):
        parse_export(compressed(whole[:-1]))


def test_a_frame_that_claims_too_much_is_refused():
    claim = b"\x28\xb5\x2f\xfd\xe0" + (1 << 60).to_bytes(8, "little") + b"\x01\0\0"
    with pytest.raises(MalformedReply, match="cut off or damaged"):
        parse_export(payload([], 7)[:1] + b"\1" + bytes(14) + claim)


def test_a_codec_of_the_future_is_refused_with_the_way_out():
    with pytest.raises(MalformedReply, match=r"form 2\.7, this .* reads 2\.0 and 2\.1: install"):
        parse_export(payload([], 7)[:1] + b"\7" + bytes(14))


@settings(max_examples=200, deadline=None)
@given(entry_lists, st.randoms(use_true_random=False), st.data())
def test_damaged_bytes_are_refused_or_decoded_but_never_read_past(rows, rng, data):
    entries = [(at, at + 1, 0, fields) for at, fields in enumerate(rows)]
    whole = bytearray(
        payload([chunk(entries, packed=True, width=8, explicit=False, base=0)], len(rows))
    )
    place = data.draw(st.integers(16 + 40 + 16 * len(rows), len(whole) - 1))
    whole[place] = data.draw(st.integers(0, 255))
    try:
        block = WireEntries(parse_export(bytes(whole)))
        found = lossless(block)
        block.values([b"a"])
    except MalformedReply:
        return
    assert len(found) == len(rows)


def test_entries_that_do_not_end_where_the_ends_say_are_refused():
    entries = [(at, at + 1, 0, [(b"a", b"v" * 9)]) for at in range(3)]
    whole = bytearray(
        payload([chunk(entries, packed=True, width=8, explicit=False, base=0)], len(entries))
    )
    first_value = whole.index(b"$9")
    whole[first_value : first_value + 2] = b"$8"  # the value's last byte is left over
    block = WireEntries(parse_export(bytes(whole)))
    with pytest.raises(MalformedReply):
        block.fields()
    longer = bytearray(whole)
    longer[first_value : first_value + 2] = b"$9"
    count = longer.index(b"*2\r\n$1\r\na")
    longer[count : count + 2] = b"*0"  # no fields, and yet bytes follow
    with pytest.raises(MalformedReply, match="does not end where it should"):
        WireEntries(parse_export(bytes(longer))).fields()


@pytest.mark.parametrize("version", [0, 1, 3])
def test_another_form_of_export_is_refused(version):
    whole = bytearray(payload([], 0))
    whole[0] = version
    with pytest.raises(MalformedReply, match="install"):
        parse_export(bytes(whole))


@settings(max_examples=100, deadline=None)
@given(entry_lists.filter(bool))
def test_replies_of_xrange_give_the_same_columns(rows):
    reply = [
        [b"%d-%d" % (at + 1, at), [word for pair in row for word in pair]]
        for at, row in enumerate(rows)
    ]
    parsed = ParsedEntries(reply)
    assert lossless(parsed) == [list(map(tuple, row)) for row in rows]
    for name, column in zip(
        [b"a", b"sensor", b""], parsed.values([b"a", b"sensor", b""]), strict=True
    ):
        assert column.to_pylist() == first_values(rows, name)
    assert parsed.ids[0].tolist() == [at + 1 for at in range(len(rows))]
    assert parsed.ids[1].tolist() == list(range(len(rows)))
    assert parsed.positions is None
    assert parsed.ids[1].dtype == np.uint64
