"""SUBSCRIBE and its kin, PUBLISH, PUBSUB."""

from __future__ import annotations

import pytest

from tests.support.region_harness import Harness


@pytest.fixture
def h() -> Harness:
    return Harness()


def test_acknowledgements_count_channels_and_patterns(h: Harness) -> None:
    s = h.connect()
    h.raw("SUBSCRIBE", "a", "b", "a", session=s)
    assert h.raw("PSUBSCRIBE", "x*", session=s).endswith(b":3\r\n")
    assert h.raw("SSUBSCRIBE", "c", session=s).endswith(b":1\r\n")
    assert h.raw("UNSUBSCRIBE", "nosuch", session=s).endswith(b":3\r\n")


def test_one_push_for_each_name(h: Harness) -> None:
    s = h.connect(resp3=True)
    assert h.raw("SUBSCRIBE", "a", "b", session=s) == (
        b">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n>3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n"
    )
    assert h.do("PING", session=s) == b"PONG"


def test_unsubscribing_from_everything(h: Harness) -> None:
    s = h.connect()
    h.raw("SUBSCRIBE", "b", "a", session=s)
    assert h.raw("UNSUBSCRIBE", session=s) == (
        b"*3\r\n$11\r\nunsubscribe\r\n$1\r\nb\r\n:1\r\n"
        b"*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:0\r\n"
    )
    assert h.raw("UNSUBSCRIBE", session=s) == b"*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n"
    assert h.do("GET", "k", session=s) is None
    assert not h.region.channels.channels
    assert s.plain


def test_messages(h: Harness) -> None:
    old, new = h.connect(), h.connect(resp3=True)
    h.raw("SUBSCRIBE", "news", session=old)
    h.raw("PSUBSCRIBE", "n*", "*", session=new)
    assert h.do("PUBLISH", "news", "hello") == 3
    assert h.replies(old) == [[b"message", b"news", b"hello"]]
    assert h.received(new).startswith(b">4\r\n$8\r\npmessage\r\n$2\r\nn*\r\n$4\r\nnews\r\n")
    assert h.do("PUBLISH", "other", "hello") == 1
    assert h.do("PUBLISH", "", "hello") == 0


def test_shard_channels_are_apart(h: Harness) -> None:
    s = h.connect()
    h.raw("SSUBSCRIBE", "c", session=s)
    assert h.do("PUBLISH", "c", "m") == 0
    assert h.do("SPUBLISH", "c", "m") == 1
    assert h.replies(s) == [[b"smessage", b"c", b"m"]]
    assert h.do("PUBSUB", "SHARDCHANNELS") == [b"c"]
    assert h.do("PUBSUB", "SHARDNUMSUB", "c") == [b"c", 1]
    assert h.do("PUBSUB", "CHANNELS") == []
    h.raw("SUNSUBSCRIBE", session=s)
    assert h.do("SPUBLISH", "c", "m") == 0


def test_subscribers_of_the_old_protocol_may_do_little(h: Harness) -> None:
    s = h.connect()
    h.raw("SUBSCRIBE", "a", session=s)
    assert h.error("GET", "k", session=s).startswith("ERR Can't execute 'get': only (P|S)")
    assert h.do("PING", session=s) == [b"pong", b""]


def test_questions(h: Harness) -> None:
    s = h.connect()
    h.raw("SUBSCRIBE", "a", "b", session=s)
    h.raw("PSUBSCRIBE", "a*", "b*", session=s)
    assert h.do("PUBSUB", "CHANNELS") == [b"a", b"b"]
    assert h.do("PUBSUB", "CHANNELS", "b*") == [b"b"]
    assert h.do("PUBSUB", "NUMSUB", "a", "c") == [b"a", 1, b"c", 0]
    assert h.do("PUBSUB", "NUMPAT") == 2
    assert h.do("PUBSUB", "HELP")
    h.region.close_session(s)
    assert h.do("PUBSUB", "NUMPAT") == 0


def test_silence_does_not_cover_pushes(h: Harness) -> None:
    s = h.connect(resp3=True)
    h.raw("CLIENT", "REPLY", "OFF", session=s)
    assert h.raw("PING", session=s) == b""
    assert h.raw("SUBSCRIBE", "a", session=s).startswith(b">3\r\n")
    h.do("PUBLISH", "a", "m")
    assert h.received(s).startswith(b">3\r\n$7\r\nmessage\r\n")


def test_skipping_one_reply(h: Harness) -> None:
    s = h.connect(resp3=True)
    h.raw("CLIENT", "REPLY", "SKIP", session=s)
    assert h.raw("SUBSCRIBE", "a", session=s).startswith(b">3\r\n")
    assert h.raw("PING", session=s) == b"+PONG\r\n"


def test_shard_channels_are_refused_inside_a_transaction(h: Harness) -> None:
    h.do("MULTI")
    h.do("SSUBSCRIBE", "z")
    (refusal,) = h.do("EXEC")
    assert str(refusal) == "ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"
    assert not h.session.shard_channels


def test_subscribing_inside_a_transaction(h: Harness) -> None:
    s = h.connect(resp3=True)
    h.raw("MULTI", session=s)
    h.raw("SUBSCRIBE", "a", session=s)
    assert h.raw("EXEC", session=s) == b"*1\r\n>3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"
