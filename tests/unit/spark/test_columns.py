"""Columns: reserved ones, casts, and the three ways to treat what does not fit."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from anabranch.spark.decoding.columns import ColumnError, Projection
from anabranch.spark.decoding.pages import ParsedEntries

UTC = pa.timestamp("us", "UTC")
_NAIVE = dt.datetime(2024, 1, 1, 10, tzinfo=dt.UTC).replace(tzinfo=None)
PAIRS = pa.list_(pa.field("element", pa.struct([("field", pa.binary()), ("value", pa.binary())])))


def entries(*rows, first=1_000):
    reply = [
        [b"%d-%d" % (first + at, at), [word for pair in row for word in pair]]
        for at, row in enumerate(rows)
    ]
    return ParsedEntries(reply)


def column(kind, *texts, **settings):
    """One column `x` of these values; None leaves the field out."""
    rows = [[(b"pad", b"")] if text is None else [(b"x", text)] for text in texts]
    projection = Projection(pa.schema([("x", kind)]), **settings)
    return projection.batch(entries(*rows), "s", "").column(0).to_pylist()


@pytest.mark.parametrize(
    ("kind", "pairs"),
    [
        (pa.binary(), [(b"\xff\x00", b"\xff\x00"), (b"", b"")]),
        (pa.string(), [("é".encode(), "é"), (b"\xff", None), (b"", "")]),
        (pa.bool_(), [(b"true", True), (b"False", False), (b"maybe", None)]),
        (pa.int8(), [(b"-128", -128), (b"128", None), (b"+7", 7), (b"1.0", None)]),
        (pa.int16(), [(b"7", 7), (b"", None)]),
        (pa.int32(), [(b"007", 7), (b"1e3", None), (b"0x10", None), (b"0X1F", None)]),
        (pa.int32(), [(b"+5", 5), (b"+0", 0), (b"-5", -5), (b"+", None), (b"+-5", None)]),
        (pa.int64(), [(b"9223372036854775807", 2**63 - 1), (b"9223372036854775808", None)]),
        (pa.float32(), [(b"1.5", 1.5), (b"x", None)]),
        (pa.float64(), [(b"1e300", 1e300), (b"-inf", float("-inf")), (b"1,5", None)]),
        (
            pa.decimal128(10, 2),
            [
                (b"1.5", Decimal("1.50")),
                (b"1.234", Decimal("1.23")),
                (b"+1.235", Decimal("1.24")),
                (b"-1.225", Decimal("-1.23")),
                (b".0049999", Decimal(0)),
                (b"12.3456e-1", Decimal("1.23")),
                (b"99999999.994999", Decimal("99999999.99")),
                (b"99999999.995", None),
                (b"1e999999999", None),
                (b"1e-999999999", Decimal(0)),
                (b"0x10", None),
                (b"NaN", None),
                (b"1.2.3", None),
                (b"", None),
            ],
        ),
        (pa.decimal128(38, 0), [(b"9" * 38 + b".4", Decimal("9" * 38)), (b"0.5", Decimal(1))]),
        (pa.decimal128(38, 38), [(b"0." + b"1" * 60, Decimal("0." + "1" * 38)), (b"1", None)]),
        (pa.date32(), [(b"2024-02-29", dt.date(2024, 2, 29)), (b"2023-02-29", None)]),
        (
            UTC,
            [
                (b"2024-01-01", dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
                (b"2024-01-01T10:00:00Z", dt.datetime(2024, 1, 1, 10, tzinfo=dt.UTC)),
                (b"2024-01-01 10:00:00.5+01:00", dt.datetime(2024, 1, 1, 9, 0, 0, 500_000, dt.UTC)),
                (b"noon", None),
            ],
        ),
        (pa.timestamp("us"), [(b"2024-01-01 10:00:00", _NAIVE), (b"", None)]),
    ],
    ids=str,
)
def test_values_are_cast_and_what_does_not_fit_becomes_null(kind, pairs):
    texts = [text for text, _ in pairs]
    assert column(kind, *texts, None) == [value for _, value in pairs] + [None]
    for text, value in pairs:
        if value is None:
            with pytest.raises(ColumnError, match=r"entry 1000-0: .* in column x is no"):
                column(kind, text, mode="FAILFAST")
        else:
            assert column(kind, text, mode="FAILFAST") == [value]


@pytest.mark.parametrize(
    ("text", "days"),
    [
        (b"+10000-01-01", 2_932_897),
        (b"10000-02-29", 2_932_956),
        (b"+29349-01-26", 10_000_000),
        (b"-0005-01-01", -721_354),
        (b"+2024-02-29", 19_782),
        (b"9999-12-31", 2_932_896),
        (b"+10001-02-29", None),
        (b"+999999-01-01", 364_522_607),
    ],
)
def test_years_may_have_a_sign_and_more_than_four_digits(text, days):
    def read(kind, *texts):
        rows = entries(*([(b"x", each)] for each in texts))
        projection = Projection(pa.schema([("x", kind)]))
        number = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        return projection.batch(rows, "s", "").column(0).cast(number).to_pylist()

    assert read(pa.date32(), text, b"1970-01-02") == [days, 1]
    far = days is None or days > 100_000_000  # for a time stamp
    for kind in (UTC, pa.timestamp("us")):
        us = None if far else days * 86_400_000_000 + 3_600_000_000
        assert read(kind, text + b" 01:00:00", b"1970-01-01 00:00:01") == [us, 1_000_000]
    assert read(UTC, text + b"T01:00:00+01:00") == [None if far else days * 86_400_000_000]


def test_a_missing_field_is_null_and_no_corruption():
    assert column(pa.int32(), None, b"1", mode="FAILFAST") == [None, 1]
    assert column(pa.int32(), None, b"1", mode="DROPMALFORMED") == [None, 1]


def test_malformed_entries_can_be_dropped():
    assert column(pa.int32(), b"1", b"x", None, b"2", mode="DROPMALFORMED") == [1, None, 2]


def test_the_whole_entry_of_a_bad_value_is_kept_as_text():
    projection = Projection(
        pa.schema([("x", pa.int32()), ("bad", pa.string())]), corrupt_column="bad"
    )
    batch = projection.batch(entries([(b"x", b"1")], [(b"x", b"?"), (b"y", b"\xff")]), "s", "")
    assert batch.to_pylist() == [
        {"x": 1, "bad": None},
        {"x": None, "bad": '[["x", "?"], ["y", "\\\\xff"]]'},
    ]


def test_reserved_columns_come_from_the_entry_and_the_first_of_repeated_fields_counts():
    schema = pa.schema(
        [
            ("fields", PAIRS),
            ("position", pa.int64()),
            ("seq", pa.int64()),
            ("ts", UTC),
            ("id", pa.string()),
            ("region", pa.string()),
            ("stream", pa.string()),
            ("a", pa.string()),
        ]
    )
    (row,) = Projection(schema).batch(entries([(b"a", b"1"), (b"a", b"2")]), "s", "eu").to_pylist()
    assert row == {
        "fields": [{"field": b"a", "value": b"1"}, {"field": b"a", "value": b"2"}],
        "position": None,
        "seq": 0,
        "ts": dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC),
        "id": "1000-0",
        "region": "eu",
        "stream": "s",
        "a": "1",
    }


def test_ids_beyond_all_times_keep_their_text():
    most = 2**64 - 1
    late = (2**63 - 1) // 1000 + 1  # in microseconds it has 64 bits
    found = ParsedEntries([[b"%d-0" % late, [b"a", b"1"]], [b"%d-%d" % (most, most), [b"a", b"1"]]])
    schema = pa.schema([("id", pa.string()), ("ts", UTC), ("seq", pa.int64())])
    assert Projection(schema).batch(found, "s", "").to_pylist() == [
        {"id": f"{late}-0", "ts": None, "seq": 0},
        {"id": f"{most}-{most}", "ts": None, "seq": None},
    ]


def test_a_field_with_a_reserved_name_is_read_through_a_mapping():
    projection = Projection(pa.schema([("user", pa.string())]), field_mapping={"user": "id"})
    assert projection.batch(entries([(b"id", b"u1")]), "s", "").to_pylist() == [{"user": "u1"}]


def test_a_field_with_the_name_of_a_reserved_column_in_capitals_is_read_through_a_mapping():
    projection = Projection(pa.schema([("ID", pa.string())]), field_mapping={"ID": "ID"})
    assert projection.batch(entries([(b"ID", b"u1")]), "s", "").to_pylist() == [{"ID": "u1"}]


def test_batches_are_cut_by_size_and_lose_nothing():
    found = entries(*([(b"x", b"%d" % at * 50)] for at in range(100)))
    projection = Projection(pa.schema([("x", pa.string())]))
    batches = list(projection.batches(found, "s", "", 1_000))
    assert len(batches) > 5
    assert [row for each in batches for row in each.column(0).to_pylist()] == [
        str(at) * 50 for at in range(100)
    ]


@pytest.mark.parametrize(
    ("schema", "settings", "text"),
    [
        ([("ts", pa.string())], {}, "ts is reserved"),
        ([("fields", pa.string())], {}, "fieldMapping"),
        ([("m", pa.map_(pa.string(), pa.string()))], {}, "from_json"),
        ([("bad", pa.int32())], {"corrupt_column": "bad"}, "make it string"),
        ([("a", pa.string())], {"field_mapping": {"b": "c"}}, "column b, which the schema lacks"),
        ([("id", pa.string())], {"field_mapping": {"id": "a"}}, "column id, .*no "),
        ([("x", pa.string())], {"field_mapping": {"x": "a"}, "corrupt_column": "x"}, "column x, "),
        ([("a", pa.string()), ("b", pa.int8()), ("a", pa.int8())], {}, "two columns a"),
        ([("TS", UTC)], {}, 'not ts, .*"TS": "TS"'),
        ([("_Change_Type", pa.string())], {}, "lower case"),
        ([], {}, "no column"),
    ],
)
def test_schemas_that_cannot_be_filled_are_refused(schema, settings, text):
    with pytest.raises(ColumnError, match=text):
        Projection(pa.schema(schema), **settings)


def test_a_value_that_must_be_there_and_is_not_is_named():
    projection = Projection(pa.schema([pa.field("x", pa.string(), nullable=False)]))
    with pytest.raises(ColumnError, match="NOT NULL, but entry 1001-1 has no value"):
        projection.batch(entries([(b"x", b"")], [(b"y", b"")]), "s", "")


def test_a_malformed_value_that_must_be_there_is_dropped_if_that_is_asked_for():
    schema = pa.schema([pa.field("x", pa.int32(), nullable=False)])
    projection = Projection(schema, "DROPMALFORMED")
    found = projection.batch(entries([(b"x", b"?")], [(b"x", b"2")]), "s", "")
    assert found.to_pylist() == [{"x": 2}]
    with pytest.raises(ColumnError, match="NOT NULL, but entry 1001-1 has no value"):
        projection.batch(entries([(b"x", b"?")], [(b"y", b"")]), "s", "")
