"""Keyspace events where several regions write: the same as with one, wherever a thing was done."""

from __future__ import annotations

import pytest

from anabranch.engine.session import Session
from anabranch.region.region import Region
from tests.support.mesh import Mesh, Node
from tests.support.region_harness import Harness, decode_all

EVERYWHERE = """
    XADD s 1-1 f v
    XADD s 2-1 f v
    XADD s 3-1 f v
    XADD s 4-1 f v
    XADD s 5-1 f v
    XDEL s 1-1 2-1
    XDEL s 1-1
    XTRIM s MAXLEN 2
    XTRIM s MAXLEN 2
    XDELEX s IDS 1 4-1
    XADD s MAXLEN 1 6-1 f v
    XGROUP CREATE s g 0
    XGROUP DESTROY s g
    XGROUP DESTROY s g
    XSETID s 9-9
    EXPIRE s 1000
    PERSIST s
    XGROUP CREATE new g $ MKSTREAM
    XADD new 1-1 f v
    DEL s new none
    SADD m a b
    SREM m a
    RPUSH l a b
    LPOP l
"""
HERE = """
    XADD s 1-1 f v
    XGROUP CREATE s g 0
    XGROUP CREATECONSUMER s g c
    XREADGROUP GROUP g c STREAMS s >
    XACK s g 1-1
    XGROUP SETID s g $
    XGROUP DELCONSUMER s g c
    COPY s t
    COPY s t REPLACE
    RENAME t u
    MOVE u 1
    FLUSHALL
"""


class Ear:
    """A connection that hears all keyspace events of a region."""

    def __init__(self, region: Region) -> None:
        self._session: Session = region.open_session("127.0.0.1:50001", "127.0.0.1:6379")
        region.execute(
            self._session,
            [
                [b"CONFIG", b"SET", b"notify-keyspace-events", b"EAnmoc"],
                [b"PSUBSCRIBE", b"__key*"],
            ],
        )
        self._session.outbox.clear()
        self._region = region

    def heard(self) -> list[str]:
        """``event key`` of what was published since."""
        data = b"".join(self._session.outbox)
        self._session.outbox.clear()
        return [
            f"{channel.decode().partition(':')[2]} {key.decode()}"
            for _, _, channel, key in decode_all(data)
        ]


@pytest.fixture
def mesh() -> Mesh:
    return Mesh(2, xadd_id_uniqueness_mode="liberal")


def do(node: Node, line: str) -> object:
    (reply,) = node.ask(line.split())
    return reply


def test_what_others_did_is_told_as_if_it_were_done_here(mesh: Mesh) -> None:
    alone = Harness()
    ears = [Ear(each.region) for each in (alone, *mesh.nodes.values())]
    told = set()
    for line in EVERYWHERE.strip().splitlines():
        alone.raw(*line.split())
        do(mesh.nodes[1], line)
        mesh.send(1, 2)
        expected, here, there = (ear.heard() for ear in ears)
        assert (line, here) == (line, expected)
        assert (line, there) == (line, expected)
        told.update(event.split()[0] for event in expected)
    assert told == set(
        "new xadd xdel xtrim xgroup-create xgroup-destroy xsetid expire persist del "
        "sadd srem rpush lpop".split()
    )


def test_what_concerns_one_region_is_told_there_as_with_one_region(mesh: Mesh) -> None:
    alone = Harness()
    ears = [Ear(each.region) for each in (alone, mesh.nodes[1])]
    for line in HERE.strip().splitlines():
        alone.raw(*line.split())
        do(mesh.nodes[1], line)
        expected, here = (ear.heard() for ear in ears)
        assert (line, here) == (line, expected)


def test_values_that_move_arrive_as_what_they_are_made_of(mesh: Mesh) -> None:
    for line in ("XADD s 1-1 f v", "XADD s 2-1 f v", "XGROUP CREATE s g 0"):
        do(mesh.nodes[1], line)
    mesh.send(1, 2)
    ear = Ear(mesh.nodes[2].region)
    do(mesh.nodes[1], "RENAME s t")
    mesh.send(1, 2)
    assert ear.heard() == ["new t", "xadd t", "xadd t", "xsetid t", "del s"]
    do(mesh.nodes[1], "FLUSHALL")
    mesh.send(1, 2)
    assert ear.heard() == ["del t"]


def test_what_others_did_need_not_be_told(mesh: Mesh) -> None:
    do(mesh.nodes[2], "CONFIG SET notify-remote-effects no")
    ears = [Ear(node.region) for node in mesh.nodes.values()]
    do(mesh.nodes[1], "XADD s 1-1 f v")
    mesh.send(1, 2)
    assert [ear.heard() for ear in ears] == [["new s", "xadd s"], []]
    do(mesh.nodes[2], "XADD s 2-1 f v")
    mesh.send(2, 1)
    assert [ear.heard() for ear in ears] == [["xadd s"], ["xadd s"]]


@pytest.mark.parametrize(
    ("here", "there", "told"),
    [
        ("XDEL s 1-1", "XDEL s 1-1", []),
        ("XDEL s 1-1", "XDEL s 1-1 2-1", ["xdel s"]),
        ("XTRIM s MAXLEN 1", "XDEL s 1-1", []),
        ("XDEL s 2-1", "XTRIM s MAXLEN 1", ["xtrim s"]),
        ("XGROUP DESTROY s g", "XGROUP DESTROY s g", []),
        ("DEL s", "XGROUP CREATE s h 0", []),  # removal wins
        ("DEL s", "XGROUP DESTROY s g", []),
        ("DEL s", "DEL s", []),
        ("DEL s", "EXPIRE s 1000", []),
        ("DEL s", "XADD s 9-1 f v", ["new s", "xadd s"]),
        ("DEL s", "XSETID s 9-9", ["new s", "xsetid s"]),
        ("FLUSHALL", "XGROUP CREATE s h 0", []),
    ],
)
def test_what_arrives_too_late_to_change_anything_is_not_told(
    mesh: Mesh, here: str, there: str, told: list[str]
) -> None:
    for line in ("XADD s 1-1 f v", "XADD s 2-1 f v", "XGROUP CREATE s g 0"):
        do(mesh.nodes[1], line)
    mesh.send(1, 2)
    do(mesh.nodes[1], here)
    do(mesh.nodes[2], there)
    ear = Ear(mesh.nodes[1].region)
    mesh.send(2, 1)
    assert ear.heard() == told
