"""Replies as bytes: every type by its documented form, and through hiredis and back."""

from __future__ import annotations

import math
from typing import Any

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.resp import encode as enc
from anabranch.resp.values import Map, PushMessage, Raw, SetReply, Status, Verbatim

FORMS: list[tuple[Any, bytes, bytes]] = [
    (b"ab", b"$2\r\nab\r\n", b"$2\r\nab\r\n"),
    (b"", b"$0\r\n\r\n", b"$0\r\n\r\n"),
    (bytearray(b"ab"), b"$2\r\nab\r\n", b"$2\r\nab\r\n"),
    ("\u00e9", b"$2\r\n\xc3\xa9\r\n", b"$2\r\n\xc3\xa9\r\n"),
    ("\udcff", b"$1\r\n\xff\r\n", b"$1\r\n\xff\r\n"),
    (5, b":5\r\n", b":5\r\n"),
    (-(2**63), b":-9223372036854775808\r\n", b":-9223372036854775808\r\n"),
    (None, b"$-1\r\n", b"_\r\n"),
    (True, b":1\r\n", b"#t\r\n"),
    (False, b":0\r\n", b"#f\r\n"),
    (1.5, b"$3\r\n1.5\r\n", b",1.5\r\n"),
    (2.0, b"$1\r\n2\r\n", b",2\r\n"),
    (math.inf, b"$3\r\ninf\r\n", b",inf\r\n"),
    (-math.inf, b"$4\r\n-inf\r\n", b",-inf\r\n"),
    ([], b"*0\r\n", b"*0\r\n"),
    ([1, [b"a"]], b"*2\r\n:1\r\n*1\r\n$1\r\na\r\n", b"*2\r\n:1\r\n*1\r\n$1\r\na\r\n"),
    ((1,), b"*1\r\n:1\r\n", b"*1\r\n:1\r\n"),
    (Status("OK"), b"+OK\r\n", b"+OK\r\n"),
    (Raw(b":7\r\n"), b":7\r\n", b":7\r\n"),
    ({"a": 1}, b"*2\r\n$1\r\na\r\n:1\r\n", b"%1\r\n$1\r\na\r\n:1\r\n"),
    ({}, b"*0\r\n", b"%0\r\n"),
    (
        Map([("a", 1), ("a", 2)]),
        b"*4\r\n$1\r\na\r\n:1\r\n$1\r\na\r\n:2\r\n",
        b"%2\r\n$1\r\na\r\n:1\r\n$1\r\na\r\n:2\r\n",
    ),
    (SetReply([1]), b"*1\r\n:1\r\n", b"~1\r\n:1\r\n"),
    (PushMessage([b"message"]), b"*1\r\n$7\r\nmessage\r\n", b">1\r\n$7\r\nmessage\r\n"),
    (Verbatim("ab"), b"$2\r\nab\r\n", b"=6\r\ntxt:ab\r\n"),
    (Verbatim("\u00e9"), b"$2\r\n\xc3\xa9\r\n", b"=6\r\ntxt:\xc3\xa9\r\n"),
]


@pytest.mark.parametrize(
    ("value", "resp2", "resp3"),
    FORMS,
    ids=[f"{at}-{type(row[0]).__name__}" for at, row in enumerate(FORMS)],
)
def test_the_form_of_every_type(value: Any, resp2: bytes, resp3: bytes) -> None:
    assert enc.encode(value, False) == resp2
    assert enc.encode(value, True) == resp3
    # and inside another value
    assert enc.encode([value, {"k": value}], True) == (
        b"*2\r\n" + resp3 + b"%1\r\n$1\r\nk\r\n" + resp3
    )


def test_what_has_no_form_is_our_mistake() -> None:
    with pytest.raises(TypeError, match="no RESP form for object"):
        enc.encode(object(), False)


def test_the_small_pieces() -> None:
    assert enc.bulk(b"ab") == enc.encode(b"ab", False)
    assert enc.integer(-5) == b":-5\r\n"
    assert enc.array_header(3) == b"*3\r\n"
    assert (enc.map_header(3, False), enc.map_header(3, True)) == (b"*6\r\n", b"%3\r\n")
    assert (enc.null(False), enc.null(True)) == (b"$-1\r\n", b"_\r\n")
    assert (enc.null_array(False), enc.null_array(True)) == (b"*-1\r\n", b"_\r\n")
    assert (enc.OK, enc.QUEUED, enc.ZERO, enc.ONE) == (
        b"+OK\r\n",
        b"+QUEUED\r\n",
        b":0\r\n",
        b":1\r\n",
    )
    assert enc.EMPTY_ARRAY == b"*0\r\n"


@given(text=st.binary(max_size=30))
def test_an_error_is_always_one_line(text: bytes) -> None:
    line = enc.error(b"ERR " + text)
    assert line[:5] == b"-ERR "
    assert line.endswith(b"\r\n")
    assert not set(line[:-2]) & set(b"\r\n")
    assert len(line) == len(text) + 7


values = st.recursive(
    st.one_of(st.binary(max_size=9), st.integers(-(2**63), 2**63 - 1), st.none()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.binary(max_size=4), inner, max_size=4),
    ),
    max_leaves=12,
)


def _flat(value: Any) -> Any:
    """What RESP2 makes of maps."""
    if isinstance(value, dict):
        return [part for key, item in value.items() for part in (key, _flat(item))]
    return [_flat(item) for item in value] if isinstance(value, list) else value


@given(value=values)
def test_clients_read_what_was_meant(value: Any) -> None:
    for resp3, expected in ((True, value), (False, _flat(value))):
        reader = hiredis.Reader()
        reader.feed(enc.encode(value, resp3))
        assert reader.gets() == expected
        assert not reader.has_data()
