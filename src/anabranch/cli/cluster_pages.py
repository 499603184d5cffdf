"""The ports of the pages of a cluster on this machine."""

from __future__ import annotations

import secrets
import socket
from dataclasses import replace
from importlib.util import find_spec
from typing import Final

from anabranch.cli.cluster_files import HOST, ClusterFailed, Member

FIRST_PAGE_PORT: Final = 8080
BLOCKS: Final = 20
BLOCK: Final = 100
"""The distance of the first ports of two tries."""

HOW_TO_INSTALL: Final = "pip install 'anabranch[web]'"
_NEEDS: Final = ("starlette", "uvicorn", "prometheus_client")


def can_serve() -> bool:
    """Whether the extra ``anabranch[web]`` is installed."""
    return all(find_spec(each) is not None for each in _NEEDS)


def with_pages(members: list[Member], first: int | None) -> list[Member]:
    """The regions with the ports of their pages, and one token that lets these act.

    ``first`` is the port of the first page, the others follow; 0: there are none. None: where the
    pages were before, or else the first free ports from 8080 on, if the extra is installed.

    Raises :class:`ClusterFailed` if a page is asked for that cannot be served.
    """
    if first is None and not can_serve():
        first = 0
    if first == 0:
        return [replace(each, http_port=0, http_token="") for each in members]
    if first is None and all(each.http_port for each in members):
        return members
    if first is None:
        first = _free_ports(members)
    elif not can_serve():
        raise ClusterFailed(f"--http-port needs an extra that is not installed: {HOW_TO_INSTALL}")
    token = members[0].http_token or secrets.token_hex(16)
    return [
        replace(each, http_port=first + index, http_token=token)
        for index, each in enumerate(members)
    ]


def _free_ports(members: list[Member]) -> int:
    """The first port of a block of free ports."""
    taken = {port for each in members for port in (each.port, each.gossip_port)}
    starts = [FIRST_PAGE_PORT + BLOCK * number for number in range(BLOCKS)]
    for start in starts:
        block = range(start, start + len(members))
        if taken.isdisjoint(block) and all(map(_is_free, block)):
            return start
    raise ClusterFailed(
        f"no ports for pages are free between {starts[0]} and {starts[-1]}: choose with "
        "--http-port, 0 for none"
    )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
