"""A server killed, its files damaged: what ``anabranch inspect`` says is true, and it helps."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from anabranch.cli.group import command
from tests.support.servers import AnabranchServer
from tests.support.terminal import Terminal

ANABRANCH = [sys.executable, "-m", "anabranch"]
SECONDS = 60
ENTRIES = 300
TOGETHER = 3
SERVER = ("--oplog-segment-bytes", "4096", "--appendfsync", "no", "--save", "")


class Kept:
    """A server that wrote entry after entry, was killed, and the files it left."""

    def __init__(self, folder: Path) -> None:
        self.server = AnabranchServer(folder, SERVER)
        self.folder = folder / "data" / "appendonlydir"

    def write(self, first: int, count: int) -> None:
        """Entries ``first-0`` and on, a turn each; every tenth is delivered to a consumer."""
        with self.server.client() as client:
            for number in range(first, first + count):
                client.call("XADD", "s", f"{number}-0", "n", str(number), b"\xff", b"\x00\\")
                if number == 1:
                    client.call("XGROUP", "CREATE", "s", "g", "0")
                    client.call("MULTI")  # entries that are written as one run
                    for other in range(1, TOGETHER + 1):
                        client.call("XADD", "together", f"{other}-0", "f", "v")
                    client.call("SET", "after", "them")
                    client.call("EXEC")
                if number % 10 == 0:
                    client.call("XREADGROUP", "GROUP", "g", "c", "COUNT", "1", "STREAMS", "s", ">")

    @contextmanager
    def standing_still(self) -> Iterator[int]:
        """Stop the running server, which writes what is synced at moments of its own."""
        assert self.server.process is not None
        pid = self.server.process.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield pid
        finally:
            os.kill(pid, signal.SIGCONT)

    def logs(self) -> list[Path]:
        return sorted(self.folder.glob("log-*.ablog"))

    def snapshot(self) -> Path:
        (path,) = self.folder.glob("snapshot-*.absnap")
        return path

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """``anabranch inspect`` without a terminal."""
        return subprocess.run(
            [*ANABRANCH, "inspect", *map(str, arguments)],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env=dict(self.server.environment()),
        )

    def inspect(self, *arguments: str | Path, status: int) -> subprocess.CompletedProcess[str]:
        """The same, with the exit status it must have."""
        done = self.run(*arguments)
        assert done.returncode == status, (done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done

    def refusal(self) -> str:
        """What a start says that is refused."""
        done = subprocess.run(
            self.server.command(),
            check=False,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env=dict(self.server.environment()),
        )
        assert done.returncode == 1
        return done.stderr

    def numbers(self) -> list[int]:
        """The entries that a start brings back."""
        self.server.start()
        try:
            with self.server.client() as client:
                kind, entries = client.call("XRANGE", "s", "-", "+")
                assert kind == "*"
                return [int(entry[1][0][1].split(b"-")[0]) for entry in entries]
        finally:
            self.server.kill()


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    one = Kept(tmp_path)
    one.server.start()
    try:
        one.write(1, ENTRIES)
        one.server.kill()
        yield one
    finally:
        one.server.kill()


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "lock"}


def added(dump: str) -> list[tuple[int, int]]:
    """Position and number of every entry of the long stream in a dump."""
    found = []
    for line in dump.splitlines():
        effect = json.loads(line)
        if effect["kind"] == "Add" and effect["fields"]["key"] == "s":
            found.append((effect["position"], int(effect["fields"]["entry_id"].split("-")[0])))
    return found


# -- looking ------------------------------------------------------------------------------------


def test_a_killed_server_leaves_files_that_are_sound(kept: Kept) -> None:
    before = contents(kept.folder)
    assert len(kept.logs()) > 3
    report = kept.inspect(kept.folder, status=0).stdout
    assert len(re.findall(r"  result +sound\n", report)) == len(kept.logs())
    assert re.search(r"result +a start reads the log up to position \d+\n$", report)
    objects = [
        json.loads(line)
        for line in kept.inspect(kept.folder, "--json", status=0).stdout.splitlines()
    ]
    *files, directory = objects
    assert sum(each["kinds"]["Add"] for each in files) == ENTRIES + TOGETHER
    assert directory["fate"] == "sound"
    assert directory["end_position"] == files[-1]["end_position"]
    assert contents(kept.folder) == before


def test_the_directory_of_the_server_will_do(kept: Kept) -> None:
    for path in (kept.folder, kept.folder.parent):
        report = kept.inspect(path, status=0).stdout
        assert str(kept.logs()[0]) in report


def test_the_dump_tells_everything_in_order(kept: Kept) -> None:
    dump = kept.inspect(kept.folder, "--dump", status=0).stdout
    assert [number for _, number in added(dump)] == list(range(1, ENTRIES + 1))
    effects = [json.loads(line) for line in dump.splitlines()]
    positions = [effect["position"] for effect in effects]
    assert positions == sorted(positions)
    numbers = [effect["number"] for effect in effects if effect["number"] is not None]
    assert numbers == list(range(1, len(numbers) + 1))
    assert effects[1]["fields"]["fields"] == ["n", "1", "\\xff", "\0\\\\"]
    first = kept.inspect(kept.folder, "--dump", "--limit", "5", status=0).stdout
    assert dump.startswith(first)
    assert first.count("\n") == 5


def test_the_dump_can_be_narrowed(kept: Kept) -> None:
    whole = added(kept.inspect(kept.folder, "--dump", status=0).stdout)
    low, high = whole[40][0], whole[50][0]
    bounds = ("--from", str(low), "--to", str(high))
    part = kept.inspect(kept.folder, "--dump", *bounds, status=0).stdout
    assert added(part) == whole[40:50]
    for key, count in (("s", ENTRIES), ('"\\x73"', ENTRIES), ("t", 0)):
        dump = kept.inspect(kept.folder, "--dump", "--key", key, status=0)
        assert len(added(dump.stdout)) == count


def test_a_snapshot_is_shown(kept: Kept) -> None:
    kept.server.start()
    with kept.server.client() as client:
        client.call("SET", b"\xfe", b"v" * 100, "EX", "1000")
        assert client.call("SAVE") == ("+", b"OK")
    kept.server.kill()
    report = kept.inspect(kept.snapshot(), status=0).stdout
    figures = dict(line.split(maxsplit=1) for line in report.splitlines()[1:])
    assert figures["entries"] == f"{ENTRIES + TOGETHER:,}"
    assert [figures[name] for name in ("groups", "consumers", "pending")] == ["1", "1", "30"]
    assert [figures[name] for name in ("keys", "deadlines", "databases")] == ["4", "1", "0"]
    dump = kept.inspect(kept.snapshot(), "--dump", status=0).stdout
    (string,) = [line for line in dump.splitlines() if '"STRING"' in line and r"\\xfe" in line]
    assert json.loads(string)["fields"]["values"][3] == "v" * 100
    assert kept.inspect(kept.folder, "--dump", status=0).stdout.count("STRING") == 0
    dump = kept.inspect(kept.snapshot(), "--dump", "--key", "s", status=0).stdout
    records = [json.loads(line) for line in dump.splitlines()]
    entries = [each for record in records for each in record["fields"].get("entries", ())]
    assert [entry["id"] for entry in entries] == [f"{number}-0" for number in range(1, ENTRIES + 1)]
    (pending,) = [each["fields"]["values"] for each in records if each["kind"] == "PENDING"]
    assert pending[2] == ["c"]
    assert len(pending[3]) == 30


def test_a_running_server_may_be_looked_at_but_not_written_to(kept: Kept) -> None:
    kept.server.start()
    kept.write(ENTRIES + 1, 20)
    kept.inspect(kept.folder, status=0)
    with kept.standing_still() as pid:
        before = contents(kept.folder)
        refusal = kept.inspect(kept.folder, "--write", "--yes", status=1).stderr
        assert f"another server (pid {pid}) is using" in refusal
        assert "Stop that server first" in refusal
        assert contents(kept.folder) == before
    with kept.server.client() as client:
        assert client.call("XLEN", "s") == (":", ENTRIES + 20)


def test_a_copy_made_while_the_server_runs_is_a_backup(kept: Kept, tmp_path: Path) -> None:
    kept.server.start()
    target = tmp_path / "copy" / "data" / "appendonlydir"
    with ThreadPoolExecutor(1) as writer:
        writing = writer.submit(kept.write, ENTRIES + 1, 200)
        shutil.copytree(kept.folder, target)
        writing.result()
    kept.server.kill()
    other = Kept(tmp_path / "copy")
    report = other.run(target)
    # The log may end within a turn, or before the position that the manifest, copied later, names.
    said = report.stdout
    assert report.returncode == 0 or "A start cuts off" in said or "anabranch restore" in said
    assert CliRunner().invoke(command, ["restore", str(target)]).exit_code == 0
    numbers = other.numbers()
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= ENTRIES


def test_what_a_running_server_is_writing_is_no_damage(kept: Kept) -> None:
    kept.server.start()
    with kept.standing_still():
        with kept.logs()[-1].open("ab") as file:
            file.write(b"AB\x01")
        assert "a server is writing it" in kept.inspect(kept.folder, status=0).stdout


# -- torn and damaged ---------------------------------------------------------------------------


def test_a_torn_end_is_told_and_left_to_the_start(kept: Kept) -> None:
    last = kept.logs()[-1]
    data = last.read_bytes()
    last.write_bytes(data[:-3])
    done = kept.inspect(kept.folder, status=1)
    match = re.search(r"torn at byte (\d+): cut off. A start cuts off the (\d+) bytes", done.stdout)
    assert match is not None
    offset, size = map(int, match.groups())
    assert offset + size == len(data) - 3
    assert last.read_bytes() == data[:-3]
    kept.server.start()
    kept.write(ENTRIES + 1, 1)
    kept.server.kill()
    assert last.read_bytes().startswith(data[:offset] + b"AB")
    assert kept.inspect(kept.folder, status=0)


@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_damaged_log_is_cut_where_a_refused_start_says(kept: Kept, which: int) -> None:
    kept.server.start()
    kept.server.stop()  # the log says that all of it is on the disk
    dump = added(kept.inspect(kept.folder, "--dump", status=0).stdout)
    path = kept.logs()[which]
    before = contents(kept.folder)
    flip(path, len(before[path.name]) // 2)
    damaged = contents(kept.folder)
    refusal = kept.refusal()
    assert contents(kept.folder) == damaged
    (advice,) = re.findall(r"'anabranch (inspect [^']+)'", refusal)
    command = shlex.split(advice)[1:]
    offset = re.search(r"is damaged at byte (\d+): ", refusal)
    assert offset is not None
    looked = kept.inspect(*command, status=1).stdout
    assert f"damaged at byte {offset[1]}: " in looked
    assert "A start is refused" in looked

    asks = kept.inspect(*command, "--write", status=2).stderr
    assert "there is no terminal: add --yes" in asks
    assert contents(kept.folder) == damaged

    done = kept.inspect(*command, "--write", "--yes", "--json", status=0)
    result = json.loads(done.stdout)
    position = result["position"]
    later = [each.name for each in kept.logs() if each.name > path.name]
    assert later == []
    after = contents(kept.folder)
    assert after[path.name] == damaged[path.name][: int(offset[1])]
    for name, target in result["kept"].items():
        assert after.get(name, b"") + after[target] == damaged[name]
    assert len(result["kept"]) == len(
        [name for name in damaged if name >= path.name and "log-" in name]
    )
    wanted = [number for at, number in dump if at < position]
    assert 0 < len(wanted) < ENTRIES
    assert result["lost_turns"] >= ENTRIES - len(wanted) - 1
    assert kept.inspect(kept.folder, status=0)
    assert kept.numbers() == wanted
    # What was put aside is not looked at, and new entries go behind the cut.
    kept.server.start()
    kept.write(ENTRIES + 1, 5)
    kept.server.kill()
    assert kept.numbers() == [*wanted, *range(ENTRIES + 1, ENTRIES + 6)]


def test_only_the_first_damage_can_be_cut(kept: Kept) -> None:
    first, second = kept.logs()[1:3]
    for path in (first, second):
        flip(path, 1000)
    done = kept.inspect(second, "--write", "--yes", status=1)
    assert f"{first} is damaged first" in done.stderr
    kept.inspect(first, "--write", "--yes", status=0)
    assert not second.exists()
    assert kept.numbers() == list(range(1, len(kept.numbers()) + 1))


def test_on_a_terminal_it_asks(kept: Kept) -> None:
    path = kept.logs()[1]
    flip(path, 500)
    damaged = contents(kept.folder)
    command = [*ANABRANCH, "inspect", str(kept.folder), "--write"]
    paths = dict(kept.server.environment())["PYTHONPATH"]
    with Terminal(command, PYTHONPATH=paths) as terminal:
        terminal.expect("to be cut at byte")
        terminal.expect("Cut it off")
        terminal.type("n")
        terminal.expect("nothing was changed")
        assert terminal.end() == 1
    assert contents(kept.folder) == damaged
    with Terminal(command, PYTHONPATH=paths) as terminal:
        terminal.expect("Cut it off")
        terminal.type("y")
        terminal.expect("the server can be started")
        assert terminal.end() == 0
    assert 0 < len(kept.numbers()) < ENTRIES


def test_a_missing_file_can_be_done_without(kept: Kept) -> None:
    dump = added(kept.inspect(kept.folder, "--dump", status=0).stdout)
    gone = kept.logs()[2]
    gone.unlink()
    report = kept.inspect(kept.folder, status=1).stdout
    assert "just before this file, is missing" in report
    done = kept.inspect(kept.folder, "--write", "--yes", "--json", status=0)
    position = json.loads(done.stdout)["position"]
    assert position == int(gone.name.removeprefix("log-").removesuffix(".ablog"))
    assert kept.numbers() == [number for at, number in dump if at < position]


def test_a_damaged_snapshot_is_not_cut(kept: Kept) -> None:
    kept.server.start()
    with kept.server.client() as client:
        client.call("SAVE")
    kept.server.kill()
    flip(kept.snapshot(), kept.snapshot().stat().st_size // 2)
    damaged = contents(kept.folder)
    (advice,) = re.findall(r"'anabranch (inspect [^']+)'", kept.refusal())
    looked = kept.inspect(*shlex.split(advice)[1:], status=1).stdout
    assert "Restore a backup of the directory" in looked
    refused = kept.inspect(kept.folder, "--write", "--yes", status=1).stderr
    assert "nothing can be cut from a snapshot. Restore a backup" in refused
    assert (
        contents(kept.folder).items()
        >= {name: data for name, data in damaged.items() if name != "lock"}.items()
    )


# -- wrong usage --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["nosuch"],
        [".", "--limit", "5"],
        [".", "--yes"],
        [".", "--write", "--dump"],
        [".", "--dump", "--from", "x"],
        [".", "--dump", "--key", '"open'],
        [],
    ],
)
def test_wrong_usage_ends_with_2(tmp_path: Path, arguments: list[str]) -> None:
    done = subprocess.run(
        [*ANABRANCH, "inspect", *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=SECONDS,
        env=dict(AnabranchServer(tmp_path).environment()),
    )
    assert done.returncode == 2, done.stderr
    assert "Usage: " in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_told_by_its_first_bytes(kept: Kept) -> None:
    other = kept.folder / "notes"
    shutil.copy(kept.logs()[0], other)
    assert re.search(r"type +log\n", kept.inspect(other, status=0).stdout)
    other.write_text("hello")
    assert "damaged at byte 0" in kept.inspect(other, status=1).stdout
    refused = kept.inspect(other, "--write", "--yes", status=2).stderr
    assert "no file of a log by its name" in refused
