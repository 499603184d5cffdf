"""A directory knows which region it belongs to: a restart needs no more than it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.region_processes import quiet_ports
from tests.support.servers import AnabranchServer, ServerFailed, server_in


def facts(server: AnabranchServer) -> list[bytes]:
    with server.client() as client:
        return [
            client.call("CONFIG", "GET", name)[1][1][1]
            for name in ("region-id", "region-name", "gossip-port")
        ]


def test_a_restart_needs_only_the_directory(tmp_path: Path) -> None:
    (port,) = quiet_ports(1)
    words = ("--region-id", "7", "--region-name", "eu", "--gossip-port", str(port))
    server = server_in(tmp_path, *words, "--cluster-create", "yes").start()
    with server.client() as client:
        entry_id = client.call("XADD", "s", "*", "f", "v")[1]
    assert entry_id.endswith(b"-7")
    server.stop()
    again = server_in(tmp_path).start()
    assert facts(again) == [b"7", b"eu", b"%d" % port]
    with again.client() as client:
        assert client.call("XADD", "s", "5-*", "f", "v")[0] == "-"
        assert client.call("XADD", "s", "*", "f", "v")[1].endswith(b"-7")
        assert client.call("XLEN", "s") == (":", 2)
    again.stop()
    # The same words are welcome.
    same = server_in(tmp_path, *words).start()
    assert facts(same) == [b"7", b"eu", b"%d" % port]
    same.stop()


@pytest.mark.parametrize(
    ("name", "value"), [("region-id", "8"), ("region-id", "0"), ("region-name", "us"),
                        ("gossip-port", "1234")],
)  # fmt: skip
def test_words_that_name_another_region_are_refused(tmp_path: Path, name: str, value: str) -> None:
    (port,) = quiet_ports(1)
    words = ("--region-id", "7", "--region-name", "eu", "--gossip-port", str(port))
    server_in(tmp_path, *words, "--cluster-create", "yes").start().stop()
    other = server_in(tmp_path, f"--{name}", value)
    with pytest.raises(ServerFailed) as failure:
        other.start()
    noted = {"region-id": "7", "region-name": "eu", "gossip-port": str(port)}[name]
    assert f"belongs to the region with {name} {noted}, and {name} {value} was given" in str(
        failure.value
    )
    assert "(command line)" in str(failure.value)


def test_a_note_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (port,) = quiet_ports(1)
    words = ("--region-id", "7", "--gossip-port", str(port), "--cluster-create", "yes")
    server_in(tmp_path, *words).start().stop()
    note = tmp_path / "data" / "appendonlydir" / "region"
    note.write_text('{"region-id": 7')
    with pytest.raises(ServerFailed, match=r"cannot read .*appendonlydir/region"):
        server_in(tmp_path).start()
    note.unlink()
    with pytest.raises(ServerFailed, match="region"):
        server_in(tmp_path).start()
    server_in(tmp_path, *words).start().stop()
    assert note.exists()
