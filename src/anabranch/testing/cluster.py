"""Several regions of an Active-Active cluster in one thread of the test process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from anabranch.testing.clock import Clock
from anabranch.testing.contents import differences
from anabranch.testing.server import Server
from anabranch.testing.startable import OwnDirectory, Startable
from anabranch.testing.worker import LoopThread

if TYPE_CHECKING:
    from anabranch.server.app import Server as LiveServer

_POLL_S: Final = 0.002
_SHOWN_MAX: Final = 20


class NotConvergedError(AssertionError):
    """Regions that should be the same are not; the text says where they differ."""


class Cluster(Startable):
    """Regions that write to the same streams; use it in ``with`` or ``async with``.

    ``Cluster()`` has the regions ``eu``, ``us`` and ``ap``, each a `Server` that is an attribute of
    that name. ``persist`` is the directory below which each keeps its data; without it, or with
    True, the data is deleted at the end. ``settings`` are directives for all of them, with
    underscores. All have one clock.
    """

    def __init__(
        self,
        *names: str,
        persist: str | Path | bool | None = None,
        seed: int | None = None,
        **settings: Any,
    ) -> None:
        """Nothing is started yet."""
        self.names = names or ("eu", "us", "ap")
        if len(set(self.names)) < max(len(self.names), 2):
            raise ValueError("a cluster has two regions or more, each with a name of its own")
        self.clock = Clock()
        self.regions: dict[str, Server] = {}
        self._kept_in = None if persist is None or isinstance(persist, bool) else Path(persist)
        self._seed = seed
        self._settings = settings
        self._own: OwnDirectory | None = None
        self._worker: LoopThread | None = None

    # -- life ---------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start all regions and return when each takes writes and knows of all others."""
        own = self._own = self._own or OwnDirectory()
        root = self._kept_in or own.path
        self._worker = LoopThread()
        try:
            for number, name in enumerate(self.names, 1):
                self.regions[name] = self._region(root / name, number, name).start()
            self._wait(lambda: [] if self._have_all_entered() else ["not all have entered"], 30)
        except BaseException:
            self.close()
            raise
        return self

    def _region(self, directory: Path, number: int, name: str) -> Server:
        first = next(iter(self.regions.values()), None)
        enters: dict[str, Any] = {"cluster_create": True}
        if first is not None:
            enters = {"join": f"{first.host}:{first.call(_gossip_port)}"}
        return Server(
            persist=directory,
            seed=None if self._seed is None else self._seed + number,
            clock=self.clock,
            worker=self._worker,
            region_id=number,
            region_name=name,
            **(enters | self._settings),
        )

    def _have_all_entered(self) -> bool:
        return all(
            int(facts["members"]) >= len(self.names) and bool(int(facts["caught_up"]))
            for facts in (region.statistics() for region in self)
        )

    def close(self) -> None:
        """Stop all regions."""
        for region in self.regions.values():
            region.close()
        self.regions.clear()
        if self._worker is not None:
            self._worker.close()
            self._worker = None
        if self._own is not None:
            self._own.remove()
            self._own = None

    # -- regions ------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Server:
        """A region by its name."""
        regions: dict[str, Server] = self.__dict__.get("regions", {})
        if name not in regions:
            raise AttributeError(f"the cluster has no region {name!r}: {', '.join(regions)}")
        return regions[name]

    def __getitem__(self, name: str) -> Server:
        """A region by its name, also if the name is not a Python name."""
        return self.regions[name]

    def __iter__(self) -> Iterator[Server]:
        """The regions, in the order of their numbers."""
        return iter(self.regions.values())

    def _others(self, name: str) -> list[str]:
        return [other for other in self.names if other != name]

    def _number(self, name: str) -> int:
        if name not in self.names:
            raise ValueError(f"the cluster has no region {name!r}: {', '.join(self.names)}")
        return self.names.index(name) + 1

    # -- links --------------------------------------------------------------------------------

    def _link(self, one: str, other: str, *words: str | int) -> None:
        """Set a fault on both ends of a link."""
        ends = [(one, self._number(other)), (other, self._number(one))]
        for name, number in ends:
            if self.regions[name].is_running:
                self.regions[name].execute("AB.LINK", number, *words)

    def cut(self, one: str, other: str) -> None:
        """Cut the link between two regions; a third that reaches both relays."""
        self._link(one, other, "PAUSE")

    def isolate(self, name: str) -> None:
        """Cut all links of a region."""
        for other in self._others(name):
            self.cut(name, other)

    def delay(self, one: str, other: str, ms: int) -> None:
        """Delay all frames between two regions by this number of milliseconds, each way."""
        self._link(one, other, "DELAY", ms)

    def heal(self) -> None:
        """Restore all links, and end all delays."""
        for one in self.names:
            for other in self._others(one):
                if self._number(one) < self._number(other):
                    self._link(one, other, "RESUME")

    # -- converging ---------------------------------------------------------------------------

    def settle(self, seconds: float = 30.0) -> None:
        """Wait until every region has applied the effects of all others.

        Raises `NotConvergedError` with the differences if that takes longer.
        """
        self._wait(self._lacking, seconds)

    def assert_converged(self) -> None:
        """Raise `NotConvergedError` with the differences if regions differ now."""
        found = self._lacking() or self._differing()
        if found:
            raise NotConvergedError(_listed(found))

    def _wait(self, what_is_wrong: Any, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while found := what_is_wrong():
            if time.monotonic() > deadline:
                raise NotConvergedError(_listed([*found, *self._differing()]))
            time.sleep(_POLL_S)

    def _lacking(self) -> list[str]:
        """The effects that each region lacks, by the region that wrote them."""
        from anabranch.keyspace.replica import region_of  # noqa: PLC0415 - with the server

        vectors = {
            name: region.call(_vector) for name, region in self.regions.items() if region.is_running
        }
        newest: dict[int, int] = {}
        for vector in vectors.values():
            for replica_id, number in vector.items():
                newest[replica_id] = max(newest.get(replica_id, 0), number)
        return [
            f"{name} lacks {number - vector.get(replica_id, 0)} effects of "
            f"{self.names[region_of(replica_id) - 1]}"
            for name, vector in vectors.items()
            for replica_id, number in newest.items()
            if vector.get(replica_id, 0) < number
        ]

    def _differing(self) -> list[str]:
        """Where the entries differ; groups have cursors of their own in every region."""
        dumps = {
            name: {
                key: value["entries"] if isinstance(value, dict) else value
                for key, value in region.dump().items()
            }
            for name, region in self.regions.items()
            if region.is_running
        }
        (first, reference), *others = dumps.items()
        return [
            f"{first} and {name} differ at {line}"
            for name, dump in others
            for line in differences(reference, dump)
        ]


def _vector(live: LiveServer) -> dict[int, int]:
    return dict(live.region.replica.vector)


def _gossip_port(live: LiveServer) -> int:
    assert live.links is not None
    return live.links.exchange.gossip_port


def _listed(found: list[str]) -> str:
    shown = found[:_SHOWN_MAX]
    if len(found) > len(shown):
        shown.append(f"... and {len(found) - len(shown)} more")
    return "the regions have not converged:\n  " + "\n  ".join(shown)
