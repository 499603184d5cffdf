"""Where the regions of a cluster serve clients, told by what one of them says of all."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.spark import replicas
from anabranch.spark.client import ServerRefused
from anabranch.spark.options import ServerOptions
from anabranch.spark.replicas import ReplicaError, discover


class FakeClient:
    """Answers AB.REGION LIST."""

    has_bulk = True

    def __init__(self, members: list[tuple[str, str, str]] | None) -> None:
        self._members = members

    def command(self, *words: str, repeatable: bool = False) -> Any:
        if words == ("AB.INFO",):
            return [b"region", 0 if self._members is None else 1]
        assert words == ("AB.REGION", "LIST")
        if self._members is None:
            raise ServerRefused("this server is on its own")
        return [
            [b"name", name.encode(), b"address", address.encode(), b"state", state.encode()]
            for name, address, state in self._members
        ]

    def __enter__(self) -> FakeClient:
        return self

    def __exit__(self, *_: object) -> None:
        return


def found(
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    *members: tuple[str, str, str],
    alone: bool = False,
) -> dict[str, str]:
    monkeypatch.setattr(replicas, "connect", lambda _: FakeClient(list(members) or None))
    return discover(ServerOptions(url=url), alone=alone)


def test_others_serve_clients_below_their_gossip_port(monkeypatch: pytest.MonkeyPatch) -> None:
    urls = found(
        monkeypatch,
        "rediss://user:p%40ss@proxy:7000/3",
        ("eu", "10.0.0.1:16379", "myself"),
        ("us", "10.0.0.2:16380", "in_sync"),
        ("ap", "fd00::5:16379", "unreachable"),
        ("old", "10.0.0.9:16379", "removed"),
    )
    assert urls == {
        "eu": "rediss://user:p%40ss@proxy:7000/3",
        "us": "rediss://user:p%40ss@10.0.0.2:6380/3",
        "ap": "rediss://user:p%40ss@[fd00::5]:6379/3",
    }


def test_a_gossip_port_that_tells_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ReplicaError, match="gossip port 7946"):
        found(monkeypatch, "redis://a", ("eu", "a:16379", "myself"), ("us", "b:7946", "in_sync"))


def test_a_server_of_its_own_has_no_regions_to_find(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ReplicaError, match="Name the servers to compare by --region-urls"):
        found(monkeypatch, "redis://a")
    assert found(monkeypatch, "redis://a", alone=True) == {"": "redis://a"}
