"""Arrow rows into field parts: compared with a loop that anybody can check."""

from __future__ import annotations

import datetime
import zlib
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    DayTimeIntervalType,
    LongType,
    StructType,
    TimeType,
    VariantType,
    YearMonthIntervalType,
)

from anabranch.spark.options import ServerOptions, WriteOptions
from anabranch.spark.writing.encode import (
    EncodedRows,
    RowBytes,
    bulk,
    encode,
    runs_by_stream,
)
from anabranch.spark.writing.layout import EncodeError, Layout
from anabranch.spark.writing.plan import Plan

PAIRS = pa.list_(pa.struct([("field", pa.binary()), ("value", pa.binary())]))


def layout(columns: list[str], **changes: Any) -> Layout:
    return Layout.of(columns, WriteOptions(ServerOptions(), **changes))


def encoded(columns: dict[str, Any], **changes: Any) -> EncodedRows:
    batch = pa.record_batch(columns)
    return encode(batch, layout(batch.schema.names, **changes))


def listed(parts: RowBytes) -> list[bytes]:
    return [bytes(each) for each in parts.each(0, len(parts))]


def reference(pairs: list[tuple[bytes, bytes]]) -> bytes:
    words = [word for pair in pairs for word in pair]
    return b"*%d\r\n" % len(words) + b"".join(map(bulk, words))


hostile = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([b"", b"\r\n", b"$3\r\n", b"*2\r\n$1\r\na\r\n", b"\x00" * 130]),
)


@given(st.lists(st.tuples(st.none() | hostile, hostile, st.none() | st.text(max_size=5))))
def test_columns_become_what_a_loop_makes_of_them(rows: list[Any]) -> None:
    columns = {
        "a": pa.array([row[0] for row in rows], pa.binary()),
        "b": pa.array([row[1] for row in rows], pa.binary()),
        "": pa.array([row[2] for row in rows], pa.string()),
    }
    texts = [(a, b, None if c is None else c.encode()) for a, b, c in rows]
    expected = [
        reference([(n, v) for n, v in zip((b"a", b"b", b""), row, strict=True) if v is not None])
        for row in texts
    ]
    assert listed(encoded(columns).parts()) == expected


@given(
    st.lists(
        st.lists(st.tuples(hostile, st.none() | hostile), max_size=5).filter(
            lambda pairs: any(value is not None for _, value in pairs)
        ),
        max_size=8,
    ),
    st.integers(0, 3),
)
def test_pairs_keep_order_and_repeats(rows: list[Any], skipped: int) -> None:
    batch = pa.record_batch({"fields": pa.array(rows, PAIRS)}).slice(min(skipped, len(rows)))
    parts = encode(batch, layout(["fields"])).parts()
    kept = [[(f, v) for f, v in row if v is not None] for row in rows[skipped:]]
    assert listed(parts) == [reference(row) for row in kept]


@given(st.lists(hostile, min_size=1, max_size=20))
@example([b"\x7f\x80\xff"])
def test_a_part_equals_the_same_bytes(values: list[bytes]) -> None:
    parts = encoded({"a": pa.array(values, pa.binary())}).parts()
    for part, value in zip(parts.each(0, len(parts)), values, strict=True):
        assert part == reference([(b"a", value)])


@given(st.lists(hostile, min_size=1, max_size=20), st.data())
def test_a_payload_is_count_ends_and_parts(values: list[bytes], data: st.DataObject) -> None:
    parts = encoded({"a": pa.array(values, pa.binary())}).parts()
    start = data.draw(st.integers(0, len(values)))
    stop = data.draw(st.integers(start, len(values)))
    payload = parts.payload(start, stop)
    count = int.from_bytes(payload[:4], "little")
    ends = np.frombuffer(payload, "<u4", count, 4)
    body = payload[4 + 4 * count :]
    expected = [reference([(b"a", value)]) for value in values[start:stop]]
    assert [body[left:right] for left, right in zip([0, *ends], ends, strict=False)] == expected
    assert len(body) == (ends[-1] if count else 0)
    before = parts.crc(0, start, 0)
    assert parts.crc(start, stop, before) == zlib.crc32(parts.between(0, stop))


@given(st.integers(1, 9), st.integers(1, 200), st.lists(hostile, min_size=1, max_size=20))
def test_runs_respect_both_limits_and_cover_everything(
    rows_max: int, bytes_max: int, values: list[bytes]
) -> None:
    parts = encoded({"a": pa.array(values, pa.binary())}).parts()
    at = 0
    while at < len(parts):
        stop = parts.reach(at, rows_max, bytes_max)
        assert at < stop <= at + rows_max
        assert stop == at + 1 or len(parts.between(at, stop)) <= bytes_max
        full = stop == at + rows_max or stop == len(parts)
        assert full or len(parts.between(at, stop + 1)) > bytes_max
        at = stop
    assert at == len(parts)


def test_the_command_of_a_row_has_its_own_words_before_its_fields() -> None:
    rows = encoded({"a": pa.array([b"1", None, b"3"]), "b": pa.array([b"x", b"y", b"z"])})
    tokens = pa.array([b"t0", b"t1", b"t22"])
    commands = rows.slice(1, 3).commands(
        bulk(b"XADD") + bulk(b"k"), 2, [tokens.slice(1), b"MAXLEN", b"*"]
    )
    assert listed(commands) == [
        b"*7\r\n" + b"".join(map(bulk, (b"XADD", b"k", b"t1", b"MAXLEN", b"*", b"b", b"y"))),
        b"*9\r\n"
        + b"".join(map(bulk, (b"XADD", b"k", b"t22", b"MAXLEN", b"*", b"a", b"3", b"b", b"z"))),
    ]


UTC = datetime.UTC


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([True, False], pa.bool_(), ["true", "false"]),
        ([-128, 127], pa.int8(), ["-128", "127"]),
        ([2**63 - 1], pa.int64(), ["9223372036854775807"]),
        ([0.0, -0.0, 1.0, 0.1, 1e-3, 9999999.0], pa.float64(), None),
        ([1e7, 123456789.0, 1e-4, 0.00012, 1.5e300], pa.float64(), None),
        ([Decimal("0.00000001"), Decimal("-1.20")], pa.decimal128(20, 8), None),
        ([datetime.date(2024, 2, 29)], pa.date32(), ["2024-02-29"]),
        (
            [datetime.datetime(2024, 2, 29, 1, 2, 3, 120000, UTC)],
            pa.timestamp("us", "Asia/Tokyo"),
            ["2024-02-29 01:02:03.12Z"],
        ),
        (
            [datetime.datetime(2024, 2, 29, 10, 20, 30)],  # noqa: DTZ001 - a time without zone
            pa.timestamp("us"),
            ["2024-02-29 10:20:30"],
        ),
    ],
)
def test_values_have_the_text_that_spark_gives_them(
    values: list[Any], kind: Any, expected: list[str] | None
) -> None:
    by_hand = {
        0.1: "0.1", 1.0: "1.0", 1e-3: "0.001", 9999999.0: "9999999.0", 1e7: "1.0E7",
        123456789.0: "1.23456789E8", 1e-4: "1.0E-4", 0.00012: "1.2E-4", 1.5e300: "1.5E300",
        Decimal("0.00000001"): "0.00000001", Decimal("-1.20"): "-1.20000000",
    }  # fmt: skip
    if expected is None:
        expected = [str(v) if v == 0 else by_hand[v] for v in values]
    parts = listed(encoded({"v": pa.array(values, kind)}).parts())
    assert parts == [reference([(b"v", text.encode())]) for text in expected]


DAY_US = 86_400_000_000


@pytest.mark.parametrize(
    ("days", "date"),
    [
        (2_932_896, "9999-12-31"),
        (2_932_897, "+10000-01-01"),
        (10_000_000, "+29349-01-26"),
        (-719_528, "0000-01-01"),
        (-721_354, "-0005-01-01"),
    ],
)
def test_years_of_more_than_four_digits_have_a_sign(days: int, date: str) -> None:
    moments = pa.array([days * DAY_US, None], pa.int64())
    columns = {
        "d": pa.array([days, None], pa.int32()).cast(pa.date32()),
        "t": moments.cast(pa.timestamp("us", "UTC")),
        "n": moments.cast(pa.timestamp("us")),
    }
    texts = (date, f"{date} 00:00:00Z", f"{date} 00:00:00")
    fields = [(name.encode(), text.encode()) for name, text in zip(columns, texts, strict=True)]
    rows = encoded({**columns, "x": pa.array([1, 2])})
    assert listed(rows.parts())[0] == reference([*fields, (b"x", b"1")])


@pytest.mark.parametrize("sign", [1, -1])
def test_a_year_that_would_be_written_as_another_one_is_refused(sign: int) -> None:
    day = sign * 20_000_000
    for column in (
        pa.array([day], pa.int32()).cast(pa.date32()),
        pa.array([day * DAY_US]).cast(pa.timestamp("us", "UTC")),
    ):
        with pytest.raises(EncodeError, match=r"column a has a time .* cast it to string first"):
            encoded({"a": column})


def test_numbers_that_are_none_have_javas_names() -> None:
    values = pa.array([float("nan"), float("inf"), float("-inf"), None], pa.float32())
    parts = listed(encoded({"v": values, "w": pa.array([1, 2, 3, 4])}).parts())
    assert [each.split(b"\r\n")[4] for each in parts[:3]] == [b"NaN", b"Infinity", b"-Infinity"]
    assert parts[3] == reference([(b"w", b"4")])


def test_null_value_stands_for_null() -> None:
    columns = {"a": pa.array([None, "x"]), "n": pa.nulls(2)}
    assert listed(encoded(columns, null_value="-").parts()) == [
        reference([(b"a", b"-"), (b"n", b"-")]),
        reference([(b"a", b"x"), (b"n", b"-")]),
    ]


def test_a_row_without_a_field_is_refused() -> None:
    with pytest.raises(EncodeError, match=r"row 1 .* nullValue"):
        encoded({"a": pa.array(["x", None])})


def test_what_has_no_text_form_is_refused() -> None:
    with pytest.raises(EncodeError, match=r"column a .* to_json"):
        encoded({"a": pa.array([[1]])})


@pytest.mark.parametrize(
    ("columns", "changes", "message"),
    [
        (["stream"], {}, "no column to write"),
        (["fields", "a"], {}, "drop the one or the other"),
        (["a"], {"lane_column": "b"}, "laneColumn names 'b'; the columns are a"),
        (["a"], {"preserve_ids": True}, "column id"),
        (["a"], {"field_mapping": {"b": "c"}}, "fieldMapping names b"),
        (["a", "Stream"], {"stream": "t"}, "column Stream is not stream.*lower case, or with fie"),
        (["stream", "FIELDS"], {}, "column FIELDS is not fields"),
    ],
)
def test_a_table_that_cannot_be_written_says_why(
    columns: list[str], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(EncodeError, match=message):
        layout(columns, **changes)


def test_columns_of_a_read_are_no_payload_beside_fields() -> None:
    names = ["stream", "region", "id", "ts", "seq", "position", "fields"]
    assert layout(names).payload == ()


def test_a_reserved_column_with_a_field_name_is_payload() -> None:
    assert layout(["id", "a"], field_mapping={"id": "key"}).payload == (("id", b"key"), ("a", b"a"))
    assert layout(["stream", "id", "ts"]).payload == (("id", b"id"), ("ts", b"ts"))
    assert layout(["id", "ts"], preserve_ids=True).payload == (("ts", b"ts"),)
    assert layout(["Stream"], field_mapping={"Stream": "s"}).payload == (("Stream", b"s"),)


@given(st.lists(st.tuples(st.sampled_from(["x", "y", "z", None]), st.integers(0, 9)), max_size=30))
def test_rows_go_to_their_streams_in_order(rows: list[Any]) -> None:
    columns = {
        "stream": pa.array([row[0] for row in rows], pa.string()),
        "v": pa.array([str(row[1]) for row in rows], pa.string()),
    }
    found = {
        name: listed(run.parts()) for name, run in runs_by_stream(encoded(columns), default="d")
    }
    expected: dict[bytes, list[bytes]] = {}
    for stream, value in rows:
        part = reference([(b"v", b"%d" % value)])
        expected.setdefault((stream or "d").encode(), []).append(part)
    assert found == expected


def test_a_row_without_a_stream_is_refused() -> None:
    rows = encoded({"stream": pa.array(["x", None]), "v": pa.array([1, 2])})
    with pytest.raises(EncodeError, match="NULL in a row"):
        list(runs_by_stream(rows, None))


def test_ids_and_lanes_must_be_there() -> None:
    columns = {"id": pa.array(["1-1", None]), "v": pa.array([1, 2])}
    with pytest.raises(EncodeError, match="preserveIds needs a value"):
        encoded(columns, preserve_ids=True)
    with pytest.raises(EncodeError, match="column id is NULL in a row; laneColumn needs a value"):
        encoded(columns, lane_column="id")
    assert encoded({"id": pa.array([""])}, lane_column="id").lanes == pa.array([b""])


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        (ArrayType(LongType()), "array<bigint>.* use to_json"),
        (StructType(), "to_json"),
        (VariantType(), "to_json"),
        (TimeType(), "or cast it"),
        (YearMonthIntervalType(), "or cast it"),
        (DayTimeIntervalType(), "interval day to second.* or cast it"),
    ],
)
def test_columns_without_a_text_form_are_refused_before_the_first_row(kind, remedy):
    schema = StructType().add("n", LongType()).add("x", kind)
    with pytest.raises(EncodeError, match=f"column x is .*{remedy}"):
        Plan.of({"stream": "s"}, schema)
