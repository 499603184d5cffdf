"""Reading a server with SCAN and DUMP, where the server is a table of answers."""

from __future__ import annotations

import time
from typing import Any, Self

import pytest
import redis

from anabranch.cli.address import Address
from anabranch.cli.failures import Failed
from anabranch.cli.transfer import scan
from anabranch.cli.transfer.record import KeyRecord, Selection
from tests.support.payloads import encode_payload

ALL = Selection(frozenset(), None, None)


class Server:
    """One database of keys by name, and how it answers."""

    def __init__(self, pages: list[list[bytes]], **answers: Any) -> None:
        """`answers`: by command, what it answers instead of the usual."""
        self.pages = pages
        self.answers = answers
        self.asked: list[tuple[str, ...]] = []
        self.pipelines: list[int] = []

    def __call__(self, address: Address, db: int) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def info(self, section: str) -> Any:
        return self.answers.get("info", {"db0": {"keys": 7, "expires": 0}})

    def scan(self, cursor: int, match: bytes | None, count: int) -> tuple[int, list[bytes]]:
        self.asked.append(("SCAN", repr(match)))
        return (cursor + 1) % len(self.pages), self.pages[cursor]

    def pipeline(self, transaction: bool) -> Pipeline:
        assert not transaction
        return Pipeline(self)

    def answer(self, name: str, key: bytes) -> Any:
        self.asked.append((name, key.decode()))
        usual: dict[str, Any] = {
            "TYPE": b"string",
            "MEMORY": 100,
            "DUMP": encode_payload(b"value of " + key),
            "PEXPIRETIME": -1,
            "PTTL": 5000,
        }
        answer = self.answers.get(name, usual[name])
        return answer(key) if callable(answer) else answer


class Pipeline:
    """Collects questions."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.questions: list[tuple[str, bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def type(self, key: bytes) -> None:
        self.questions.append(("TYPE", key))

    def execute_command(self, name: str, *words: Any) -> None:
        self.questions.append((name, words[1] if name == "MEMORY" else words[0]))

    def execute(self, raise_on_error: bool) -> list[Any]:
        assert not raise_on_error
        self.server.pipelines.append(len(self.questions))
        return [self.server.answer(*question) for question in self.questions]


def records(
    monkeypatch: pytest.MonkeyPatch, server: Server, selection: Selection = ALL
) -> list[KeyRecord]:
    monkeypatch.setattr(scan, "connect", server)
    source = scan.ScanSource(Address(), selection)
    return list(source.records(1 << 30))


def test_a_key_that_scan_names_twice_comes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = records(monkeypatch, Server([[b"a", b"b", b"a"], [], [b"b", b"c", b"a"]]))
    assert [one.key for one in found] == [b"a", b"b", b"c"]
    assert [one.body for one in found] == [b"\x00\x0avalue of " + one.key for one in found]


def test_batches_are_bounded_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [b"%d" % number for number in range(450)]
    server = Server([keys])
    assert len(records(monkeypatch, server)) == 450
    assert server.pipelines == [900, 400, 400, 100]
    server = Server([keys[:5]], MEMORY=lambda key: (9 << 20) if key in b"0 2" else 100)
    assert len(records(monkeypatch, server)) == 5
    assert server.pipelines == [10, 4, 6]
    server = Server([keys[:40]], MEMORY=redis.ResponseError("NOPERM"))
    assert len(records(monkeypatch, server)) == 40
    assert max(server.pipelines[1:]) == 32, "a size is guessed where none is told"


def test_servers_before_7_tell_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server([[b"a", b"b"]], PEXPIRETIME=redis.ResponseError("unknown command"))
    before = time.time() * 1000
    found = records(monkeypatch, server)
    assert [one.key for one in found] == [b"a", b"b"]
    for one in found:
        assert one.expire_at_ms is not None
        assert before + 4999 <= one.expire_at_ms <= time.time() * 1000 + 5001


def test_keys_that_go_meanwhile_do_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(
        [[b"a", b"b", b"c", b"d"]],
        TYPE=lambda key: b"none" if key == b"a" else b"string",
        DUMP=lambda key: None if key == b"b" else encode_payload(b"v"),
        PEXPIRETIME=lambda key: -2 if key == b"c" else 77,
    )
    assert [(one.key, one.expire_at_ms) for one in records(monkeypatch, server)] == [(b"d", 77)]


def test_other_kinds_are_named_and_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server([[b"a", b"b"]], TYPE=lambda key: b"ReJSON-RL" if key == b"a" else b"set")
    found = records(monkeypatch, server)
    assert [(one.kind, one.body is None) for one in found] == [("ReJSON-RL", True), ("set", False)]
    assert ("DUMP", "a") not in server.asked


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ({"TYPE": redis.ResponseError("NOPERM no type")}, "NOPERM no type"),
        ({"DUMP": redis.ResponseError("NOPERM no dump")}, "NOPERM no dump"),
        ({"PEXPIRETIME": redis.ResponseError("NOPERM no time")}, "NOPERM no time"),
        ({"DUMP": b"\x00\x01v\x0f\x00" + bytes(8)}, "its payload cannot be read: RDB version 15"),
        ({"DUMP": b"\x00\x01v\x0a\x00" + b"x" * 8}, "its payload cannot be read: the checksum"),
    ],
)
def test_what_cannot_be_read_is_a_problem_of_its_key(
    monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any], problem: str
) -> None:
    (one,) = records(monkeypatch, Server([[b"k"]], **answers))
    assert (one.key, one.body) == (b"k", None)
    assert one.problem is not None
    assert one.problem.startswith(problem)


def test_only_databases_that_are_wanted_are_visited(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server([[b"k"]], info={f"db{n}": {"keys": n + 1} for n in (0, 3, 7)})
    found = records(monkeypatch, server, Selection(frozenset((3, 7, 9)), b"k*", None))
    assert [one.db for one in found] == [3, 7]
    assert server.asked[0] == ("SCAN", "b'k*'")


def test_a_server_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise redis.ConnectionError("it\nbroke")

    server = Server([[b"k"]])
    monkeypatch.setattr(server, "scan", fail)
    with pytest.raises(Failed, match=r":6379: it broke"):
        records(monkeypatch, server)
    monkeypatch.setattr(server, "info", fail)
    with pytest.raises(Failed, match=r":6379: it broke"):
        records(monkeypatch, server)
