"""CONFIG REWRITE and ACL SAVE of a real server: a restart grants what was granted, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.inspection import mistakes
from tests.support.servers import AnabranchServer

SEPARATORS = ["\x1c", "\x1e", "\x1f", "\x85", "\xa0", "\u2003", "\u2028", "\u3000"]


class Configured(AnabranchServer):
    """A server with a configuration file."""

    def __init__(self, directory: Path, *lines: bytes) -> None:
        super().__init__(directory)
        self.conf = directory / "my.conf"
        self.conf.write_bytes(b"".join([line + b"\n" for line in lines]))

    def command(self) -> list[str]:
        program, _, module, serve, *rest = super().command()
        return [program, "-m", module, serve, str(self.conf), *rest]


def user_lines(server: Configured) -> list[bytes]:
    return [line for line in server.conf.read_bytes().split(b"\n") if line.startswith(b"user")]


@pytest.mark.parametrize("way", ["CONFIG REWRITE", "ACL SAVE"])
def test_a_restart_grants_no_more(tmp_path: Path, way: str) -> None:
    file = (b"aclfile users.acl",) if way == "ACL SAVE" else ()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "users.acl").touch()
    before = []
    with Configured(tmp_path, b"# by hand \xff", b"appendonly no", *file) as server:
        with server.client() as client:
            for number, blank in enumerate(SEPARATORS):
                rule = f"~own{blank}~*{blank}+@all{blank}nopass"
                reply = client.call(
                    "ACL", "SETUSER", f"u{number}{blank}", "on", ">pw", rule, "+get"
                )
                assert reply == ("+", b"OK")
            client.call("SET", "secret", "x")
            before = client.call("ACL", "LIST")[1]
            assert client.call(*way.split()) == ("+", b"OK")
        server.kill()
        server.start()
        with server.client() as client:
            assert client.call("ACL", "LIST")[1] == before
            for number, blank in enumerate(SEPARATORS):
                with server.client() as user:
                    assert user.call("AUTH", f"u{number}{blank}", "guess")[0] == "-"
                    assert user.call("AUTH", f"u{number}{blank}", "pw") == ("+", b"OK")
                    assert user.call("GET", "secret")[1].startswith(b"NOPERM")
                    assert user.call("SET", "own", "x")[1].startswith(b"NOPERM")
            # What a restart has read is written in the same bytes.
            users = user_lines(server)
            assert client.call("CONFIG", "REWRITE") == ("+", b"OK")
            assert user_lines(server) == users
        assert not mistakes(server)


def test_any_bytes_of_a_setting_survive(tmp_path: Path) -> None:
    password = bytes(range(256)) + "\u2028 \u2003".encode()
    with Configured(tmp_path, b"appendonly no") as server:
        with server.client() as client:
            assert client.call("CONFIG", "SET", "requirepass", password) == ("+", b"OK")
            assert client.call("CONFIG", "REWRITE") == ("+", b"OK")
            assert client.call("CONFIG", "SET", "requirepass", "") == ("+", b"OK")
        assert server.process is not None
        server.process.kill()
        server.process.wait()
        text = server.conf.read_text("ascii")
        server.conf.write_text(text.replace("requirepass", "tls-ca-cert-dir"))
        server.start()
        with server.client() as client:
            shown = client.call("CONFIG", "GET", "tls-ca-cert-dir")[1][1]
        assert shown == ("$", password)
        assert not mistakes(server)


def test_a_nul_byte_in_the_file_is_refused(tmp_path: Path) -> None:
    server = Configured(tmp_path, b"port 7000\0 evil")
    with pytest.raises(AssertionError, match="there is a NUL byte"):
        server.start()


def test_users_of_an_included_file_stay_there(tmp_path: Path) -> None:
    (tmp_path / "users.conf").write_text("user app on >pw ~a* +get\n")
    with Configured(tmp_path, b"include users.conf", b"user ops on >pw +@all") as server:
        with server.client() as client:
            before = client.call("ACL", "LIST")[1]
            assert client.call("CONFIG", "REWRITE") == ("+", b"OK")
            assert [line.split()[1] for line in user_lines(server)] == [b"ops"]
        server.kill()
        server.start()
        with server.client() as client:
            assert client.call("ACL", "LIST")[1] == before
            client.call("ACL", "SETUSER", "app", "+set")
            kind, why = client.call("CONFIG", "REWRITE")
            assert kind == "-"
            assert b"user 'app' has changed since the start" in why
