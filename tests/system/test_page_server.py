"""What the page asks: the feed, single commands, and who may do what."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest
import redis

from anabranch.testing import Cluster
from tests.support.http import Answer, ask
from tests.support.inspection import mistakes, wait_until
from tests.support.page_server import TOKEN, page_server
from tests.support.servers import REPOSITORY, AnabranchServer, free_port

pytest.importorskip("starlette", reason="the extra web is not installed")

STATIC = REPOSITORY / "src/anabranch/web/static"


class Site:
    """A server with its page."""

    def __init__(self, server: AnabranchServer, port: int) -> None:
        self.server = server
        self.port = port
        self.client = redis.Redis(port=server.port, decode_responses=True)

    def run(self, *words: object, **headers: str) -> Answer:
        return ask(
            self.port, "/api/command", "POST", {"command": words}, X_Anabranch_Act="1", **headers
        )

    @contextmanager
    def events(self, query: str = "", **headers: str) -> Iterator[HTTPResponse]:
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request("GET", f"/events{query}", headers=headers)
            yield connection.getresponse()


def next_event(feed: HTTPResponse, name: str) -> Any:
    while True:
        line = feed.readline()
        assert line, "the feed has ended"
        if line == f"event: {name}\n".encode():
            return json.loads(feed.readline().removeprefix(b"data: "))


def bearer(token: str) -> str:
    return f"Bearer {token}"


def basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture(scope="module")
def started() -> Iterator[Site]:
    with page_server() as (server, port):
        site = Site(server, port)
        yield site
        site.client.close()


@pytest.fixture
def site(started: Site) -> Iterator[Site]:
    """The same, without data and users."""
    yield started
    started.client.flushall()
    for user in set(started.client.acl_users()) - {"default"}:
        started.client.acl_deluser(user)


def test_the_page_is_whole_and_small(site: Site) -> None:
    whole = 0
    for path in (
        "/",
        "/page.css",
        "/dark.css",
        "/page.js",
        "/uplot.js",
        "/uplot.css",
        "/favicon.ico",
    ):
        answer = ask(site.port, path)
        assert answer.status == 200
        whole += len(answer.body)
        assert ask(site.port, path, If_None_Match=answer.headers["etag"]).status == 304
    assert whole < 140_000
    html = ask(site.port, "/").body.decode()
    assert not re.search(r"https?://|<style|<script>|\son\w+=|\sstyle=", html), "nothing inline"


def test_the_script_never_makes_html_of_data() -> None:
    script = (STATIC / "page.js").read_text("utf-8")
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert way not in script


def test_without_a_token_the_page_reads_and_changes_nothing(site: Site) -> None:
    site.client.xadd("s", {"f": "v"}, id="1-1")
    assert site.run("XRANGE", "s", "-", "+").json == {"reply": [["1-1", ["f", "v"]]]}
    for words in (
        ("XADD", "s", "*", "f", "v"),
        ("DEL", "s"),
        ("FLUSHALL",),
        ("CONFIG", "SET", "port", "1"),
        ("CONFIG", "GET", "requirepass"),
        ("KEYS", "*"),
        ("ACL", "LIST"),
        ("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">"),
        ("SHUTDOWN",),
    ):
        answer = site.run(*words)
        assert (answer.status, answer.json["error_code"]) == (403, "read_only"), words
    assert site.client.xlen("s") == 1


def test_the_name_of_a_user_without_a_password_is_no_proof(site: Site) -> None:
    site.client.acl_setuser("bob", enabled=True, nopass=True, keys=["*"], commands=["+@all"])
    for user in ("default", "bob"):
        authorization = basic(user, "anything")
        answer = site.run("SET", "a", "b", Authorization=authorization)
        assert (answer.status, answer.json["error_code"]) == (403, "read_only"), user
        assert site.run("EXISTS", "a", Authorization=authorization).json == {"reply": 0}
        with site.events(Authorization=authorization) as feed:
            assert not next_event(feed, "status")["may_act"]


def test_with_the_token_or_a_user_it_acts(site: Site) -> None:
    site.client.acl_setuser("ann", enabled=True, passwords=["+pw"], keys=["*"], commands=["+@all"])
    for authorization in (bearer(TOKEN), basic("ann", "pw")):
        answer = site.run("XADD", "s", "*", "f", "v", Authorization=authorization)
        assert re.fullmatch(r"\d+-\d+", answer.json["reply"])
    assert site.client.xlen("s") == 2
    wrong = (bearer("another-token-of-this"), basic("ann", "no"), basic("nobody", "pw"), "Basic !")
    for authorization in wrong:
        assert site.run("PING", Authorization=authorization).status == 401
    assert site.client.acl_log()[0]["reason"] == "auth", "failures are logged as for any client"


def test_bytes_that_are_no_text_come_and_go_unchanged(site: Site) -> None:
    raw = {"b64": b64encode(b"\xff\x00").decode()}
    site.run("XADD", raw, "1-1", "f", raw, Authorization=bearer(TOKEN))
    assert site.run("XRANGE", raw, "-", "+").json == {"reply": [["1-1", ["f", raw]]]}
    key = raw["b64"].replace("/", "%2F")
    with site.events(f"?key64={key}") as feed:
        assert next_event(feed, "entries")["entries"][0]["fields"] == ["f", raw]


def test_commands_of_a_connection_and_bad_requests_are_refused(site: Site) -> None:
    for words in (("SUBSCRIBE", "c"), ("MULTI",), ("AUTH", "x"), ("CLIENT", "LIST")):
        answer = site.run(*words, Authorization=bearer(TOKEN))
        assert (answer.status, answer.json["error_code"]) == (403, "not_here"), words
    for body in ([], {}, {"command": []}, {"command": [None]}, {"command": "PING"}, "x"):
        answer = ask(site.port, "/api/command", "POST", body, X_Anabranch_Act="1")
        assert (answer.status, answer.json["error_code"]) == (400, "bad_request"), body
    assert site.run("NOTHING").json["error"].startswith("ERR unknown command")
    assert site.run("XREAD", "BLOCK", "50", "STREAMS", "s", "$").json == {"reply": None}


def test_a_client_that_sends_too_much_reads_why(site: Site) -> None:
    for size in (1 << 20, 16 << 20):
        answer = site.run("ECHO", "x" * size)
        assert (answer.status, answer.json["error_code"]) == (413, "too_large")


def test_a_reply_of_very_many_parts_is_refused(site: Site) -> None:
    site.client.rpush("l", *range(60_000))
    assert "too large" in site.run("LRANGE", "l", 0, -1).json["error"]
    assert len(site.run("LRANGE", "l", 0, 39_999).json["reply"]) == 40_000
    assert "error" not in site.run("COMMAND", "DOCS").json


def test_rules_of_a_user_hold_for_what_it_sees(site: Site) -> None:
    site.client.xadd("mine:1", {"f": "v"})
    site.client.xadd("other", {"f": "secret" * 20_000})
    site.client.xgroup_create("other", "hidden-group", "0")
    site.client.xreadgroup("hidden-group", "hidden-consumer", {"other": ">"})
    site.client.acl_setuser(
        "ann", enabled=True, passwords=["+pw"], keys=["mine:*"], commands=["+@all", "-debug"]
    )
    me = {"Authorization": basic("ann", "pw")}
    keys = lambda: [row["key"] for row in ask(site.port, "/api/streams", **me).json["streams"]]  # noqa: E731
    with site.events("?key=other", **me) as feed:  # surveys go on while somebody looks
        refused = next_event(feed, "entries")
        assert refused["error"].startswith("NOPERM")
        assert refused["entries"] == []
        wait_until(lambda: keys() == ["mine:1"], "the survey has it")
        status = next_event(feed, "status")
        while not status["memory_by_cause"]:  # it was sent before the first survey
            status = next_event(feed, "status")
        assert status["user"] == "ann"
        assert 0 < status["memory_by_cause"]["entries"] < 10_000, "the other one has 100 KB"
        assert not status["sees_all"]
        assert "secret" not in json.dumps(status)
        assert "other" not in json.dumps(status)
        assert "hidden" not in json.dumps(status)
        assert site.run("XLEN", "other", **me).json["error"].startswith("NOPERM")
        site.client.acl_setuser("ann", enabled=False)
        while feed.readline():  # it ends: the user is off
            pass
    site.client.acl_setuser("bob", enabled=True, nopass=True, keys=["*"], commands=["+xrange"])
    for path in ("/status.json", "/events", "/metrics"):
        answer = ask(site.port, path, Authorization=basic("bob", "x"))
        assert (answer.status, answer.json["error_code"]) == (403, "no_permission")


def test_the_browser_asks_for_a_password_where_the_page_does_not(site: Site) -> None:
    wrong = basic("nobody", "wrong")
    for headers, scheme in (({}, "Basic"), ({"X_Anabranch_Act": "1"}, "Bearer")):
        answer = ask(site.port, "/status.json", Authorization=wrong, **headers)
        assert answer.status == 401
        assert answer.headers["www-authenticate"].startswith(f"{scheme} realm=")


def test_a_password_of_the_default_user_closes_the_page(site: Site) -> None:
    site.client.config_set("requirepass", "secret")
    try:
        for path in ("/status.json", "/events", "/metrics", "/api/streams"):
            answer = ask(site.port, path)
            assert answer.status == 401
            assert answer.headers["www-authenticate"].startswith("Basic ")
        assert site.run("PING").status == 401
        assert ask(site.port, "/readyz").status == 200
        assert ask(site.port, "/status.json", Authorization=basic("", "secret")).status == 200
        assert ask(site.port, "/metrics", Authorization=bearer(TOKEN)).status == 200
        site.client.acl_setuser("bob", enabled=True, nopass=True, commands=["+info"])
        with site.events(Authorization=basic("bob", "x")) as feed:
            assert next_event(feed, "status")["user"] == "bob"
    finally:
        site.client.config_set("requirepass", "")


def test_a_tail_shows_each_entry_once_and_its_groups(site: Site) -> None:
    site.client.xadd("s", {"n": "0"})
    site.client.xgroup_create("s", "g", "0")
    with site.events("?key=s") as feed:
        first = next_event(feed, "entries")
        assert (first["first"], [each["fields"] for each in first["entries"]]) == (
            True,
            [["n", "0"]],
        )
        assert first["groups"] == [
            {"name": "g", "at": "0-0", "lag": 1, "pending": 0, "consumers": 0}
        ]
        seen: list[list[str]] = []
        for number in range(1, 21):
            site.client.xadd("s", {"n": str(number)})
        while len(seen) < 20:
            event = next_event(feed, "entries")
            assert not event["first"]
            seen += [each["fields"] for each in event["entries"]]
        assert seen == [["n", str(number)] for number in range(1, 21)]


def test_groups_are_shown_to_who_may_ask_for_them(site: Site) -> None:
    site.client.xadd("s", {"n": "0"})
    site.client.xgroup_create("s", "g", "0")
    commands = ["+info", "+ab.read", "+xrevrange"]
    for rules, count in ((commands, 0), ([*commands, "+xinfo|groups"], 1)):
        site.client.acl_setuser("ann", enabled=True, passwords=["+pw"], keys=["*"], commands=rules)
        with site.events("?key=s", Authorization=basic("ann", "pw")) as feed:
            shown = next_event(feed, "entries")
        assert len(shown["entries"]) == 1
        assert len(shown["groups"]) == count


def test_the_length_is_shown_to_who_may_ask_for_it(site: Site) -> None:
    site.client.xadd("s", {"n": "0"})
    commands = ["+info", "+ab.read", "+xrevrange"]
    for rules, length in ((commands, None), ([*commands, "+xinfo|stream"], 1)):
        site.client.acl_setuser("ann", enabled=True, passwords=["+pw"], keys=["*"], commands=rules)
        with site.events("?key=s", Authorization=basic("ann", "pw")) as feed:
            shown = next_event(feed, "entries")
        assert len(shown["entries"]) == 1
        assert (shown.get("length"), shown.get("added")) == (length, length)


def test_very_long_names_are_cut(site: Site) -> None:
    names = [f"{number}" + "n" * 1_000_000 for number in range(5)] + ["n" * 1024]
    for name in names:
        site.client.xadd(name, {"f": "v"})
        site.client.xgroup_create(name, name, "0")
        site.client.xreadgroup(name, name, {name: ">"})
    with site.events("?key=" + names[-1]) as feed:
        while len((status := next_event(feed, "status"))["streams"]) < len(names):
            pass
        assert next_event(feed, "entries")["groups"][0]["name"] == names[-1]
    listed = ask(site.port, "/api/streams").json["streams"]
    for rows in (status["streams"], status["heat"], listed):
        shown = {json.dumps(row["key"]) for row in rows}
        assert shown >= {
            json.dumps(names[-1]),
            json.dumps({"cut": names[0][:100], "size": 1_000_001}),
        }
    assert len(json.dumps([status, listed])) < 30_000


def test_figures_are_new_without_an_open_page(site: Site) -> None:
    def entries() -> tuple[int, int]:
        status, listed = (ask(site.port, path).json for path in ("/status.json", "/api/streams"))
        return status["survey"]["entries"], sum(row["length"] for row in listed["streams"])

    for count in (1, 2):
        site.client.xadd("s", {"n": "0"})
        wait_until(lambda count=count: entries() == (count, count), "the figures are of now")


def test_the_feed_tells_how_far_other_regions_are() -> None:
    """The ticks of the timeline: an entry is in another region once its vector covers it."""
    port = free_port()
    with Cluster("eu", "us") as cluster, redis.Redis(port=cluster.eu.port) as eu:
        eu.config_set("http-port", port)
        eu.xadd("s", {"n": "0"})
        cluster.cut("eu", "us")
        with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            connection.request("GET", "/events?key=s")
            feed = connection.getresponse()
            next_event(feed, "entries")
            eu.xadd("s", {"n": "1"})
            while not (entries := (event := next_event(feed, "entries"))["entries"]):
                pass
            (entry,) = entries

            def has_it(event: Any) -> bool:
                vectors = {row["region"]: dict(row["vector"]) for row in event["applied"]}
                applied: int = vectors[2].get(entry["replica_id"], 0)
                return applied >= entry["number"]

            assert entry["region"] == 1
            assert not has_it(event)
            cluster.heal()
            while not has_it(event):
                event = next_event(feed, "entries")
            assert event["now_ms"] >= entry["at"]


def test_a_flood_is_passed_over_and_counted(site: Site) -> None:
    site.client.xadd("s", {"n": "0"})
    with site.events("?key=s") as feed:
        next_event(feed, "entries")
        pipe = site.client.pipeline(transaction=False)
        for _ in range(3000):
            pipe.xadd("s", {"f": "v"})
        pipe.execute()
        shown = passed_over = 0
        while shown + passed_over < 3000:
            event = next_event(feed, "entries")
            assert len(event["entries"]) <= 200
            shown += len(event["entries"])
            passed_over += event["passed_over"]
        assert shown + passed_over == 3000
        assert passed_over >= 2000


def test_large_entries_are_shown_as_far_as_they_fit(site: Site) -> None:
    def add(count: int, size: int) -> None:
        pipe = site.client.pipeline(transaction=True)
        for _ in range(count):
            pipe.xadd("s", {"f": "v" * size})
        pipe.execute()

    add(200, 40_000)
    newest = site.client.xrevrange("s", count=1)[0][0]
    with site.events("?key=s") as feed:
        first = next_event(feed, "entries")
        assert 95 < len(first["entries"]) < 105, "4 MiB hold so many"
        assert first["entries"][-1]["id"] == newest
        # What comes in one go is shown as far as it fits, or counted, and the feed goes on.
        for count, size, shown_at_least in ((200, 40_000, 50), (1, 5_000_000, 0), (1, 10, 1)):
            add(count, size)
            shown = passed_over = 0
            while shown + passed_over < count:
                event = next_event(feed, "entries")
                assert "error" not in event
                shown += len(event["entries"])
                passed_over += event["passed_over"]
            assert shown + passed_over == count
            assert shown >= shown_at_least
    with site.events("?key=s") as feed:
        assert len(next_event(feed, "entries")["entries"]) == 1, "none behind a huge one"


def test_nothing_is_left_of_pages_that_were_closed(site: Site) -> None:
    site.client.xadd("s", {"f": "v"})
    before = len(site.client.client_list())
    with site.events("?key=s") as feed:
        next_event(feed, "entries")
        names = [each["name"] for each in site.client.client_list()]
        assert "web" in names
    wait_until(lambda: len(site.client.client_list()) == before, "its session is closed")


NOTES_IMPORTS = """
import os
import sys

if "serve" in sys.orig_argv:
    def note(event, args):
        if event == "import":
            with open(os.environ["IMPORTS"], "a") as file:
                print(args[0], file=file)

    sys.addaudithook(note)
"""
"""As the module ``sitecustomize``: writes the names of modules that are imported."""


def test_no_request_waits_for_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An import would hold up all clients, for example of the server's first scrape."""
    (tmp_path / "sitecustomize.py").write_text(NOTES_IMPORTS)
    imports, port = tmp_path / "imports", free_port()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("IMPORTS", str(imports))
    with AnabranchServer(extra=["--http-port", str(port)]) as server:
        site = Site(server, port)
        site.client.xadd("s", {"f": "v"})
        site.client.info()
        ask(port, "/healthz")
        before = imports.read_text()
        assert "starlette" in before
        for path in ("/", "/metrics", "/status.json", "/api/streams"):
            assert ask(port, path).status == 200
        with site.events("?key=s") as feed:
            assert next_event(feed, "entries")["entries"]
        site.run("XLEN", "s")
        assert imports.read_text() == before
        site.client.close()


def test_figures_of_the_status_are_those_of_the_data(site: Site) -> None:
    for number in range(30):
        site.client.xadd("s", {"f": str(number)})
    site.client.execute_command("XADD", "s", "IDMP", "p", "a", "*", "f", "v")
    site.client.execute_command("XADD", "s", "IDMP", "p", "a", "*", "f", "v")
    site.client.xgroup_create("s", "g", "0")
    site.client.xreadgroup("g", "c", {"s": ">"}, count=10)
    with site.events() as feed:
        while True:
            status = next_event(feed, "status")
            rows = {row["key"]: row for row in status["streams"]}
            if rows.get("s", {}).get("pending") == 10:
                break
        row = rows["s"]
        assert (row["length"], row["added"], row["lag"], row["groups"]) == (31, 31, 21, 1)
        assert (row["duplicates"], row["attempts"], row["remembered"]) == (1, 2, 1)
        assert (row["window_ms"], row["duration_s"], row["room"]) == (100_000, 100, 100)
        (heat,) = status["heat"]
        assert sum(heat["ages"]) == heat["deliveries"][0] == heat["count"] == 10
        assert set(status["memory_by_cause"]) == {
            *("entries", "compressed entries", "pending", "consumers", "groups", "producers"),
            "tombstones",
        }
        assert status["memory_by_cause"]["tombstones"] == 0
        assert row["regions"] == [0]
        assert status["survey"]["entries"] == 31
        assert status["durability"]["appendfsync"] == "everysec"


def test_a_stop_ends_the_feed_at_once() -> None:
    port = free_port()
    with AnabranchServer(extra=["--http-port", str(port)]) as server:
        site = Site(server, port)
        site.client.close()
        with site.events() as feed:
            next_event(feed, "status")
            server.stop()
            with suppress(OSError):
                while feed.readline():
                    pass
        assert not mistakes(server)


def entries(site: Site, query: str, **headers: str) -> Any:
    return ask(site.port, f"/api/entries?{query}", **headers).json


def walked(site: Site, query: str, direction: str) -> list[str]:
    """The IDs of all parts of a walk; no part is repeated."""
    at: str | None = ""
    found, parts = [], 0
    while at is not None:
        part = entries(site, f"{query}&direction={direction}" + (f"&from={at}" if at else ""))
        found += [each["id"] for each in part["entries"]]
        at, parts = part[direction], parts + 1
        assert parts < 1000
    return found


def test_a_filter_looks_at_all_entries_in_parts(site: Site) -> None:
    pipe = site.client.pipeline(transaction=False)
    for number in range(12_000):
        pipe.xadd("s", {"n": number, "kind": "odd" if number % 2 else "even"}, id=f"{number + 1}-0")
    pipe.execute()
    part = entries(site, "key=s&field=n&value=5")
    assert (part["entries"], part["length"]) == ([], 12_000)
    assert 0 < part["looked_at"] < 12_000, "one request does not look at everything"
    assert walked(site, "key=s&field=n&value=5", "older") == ["6-0"]
    assert walked(site, "key=s&field=n&value=5", "newer") == ["6-0"]
    assert walked(site, "key=s&value=5", "older") == ["6-0"], "in any field"
    ends = [f"{number + 1}-0" for number in range(12_000) if "1199" in str(number)]
    assert walked(site, "key=s&field=n&value=1199&match=part", "newer") == ends
    assert walked(site, "key=s&field=kind&limit=200", "newer")[-1] == "12000-0"
    every = [f"{number + 1}-0" for number in range(12_000)]
    assert walked(site, "key=s&limit=200", "newer") == every
    assert walked(site, "key=s&limit=190&value=even", "older") == every[-2::-2]


def test_a_walk_goes_on_in_both_directions(site: Site) -> None:
    for number in range(1, 6):
        site.client.xadd("s", {"f": "v"}, id=f"{number}-{number}")
    part = entries(site, "key=s&from=3&direction=older&limit=1")
    assert [each["id"] for each in part["entries"]] == ["3-3"]
    assert (part["older"], part["newer"]) == ("3-2", "4-0")
    beyond = entries(site, "key=s&from=9&direction=newer")
    assert (beyond["entries"], beyond["newer"], beyond["length"]) == ([], None, 5)
    assert beyond["older"] == "8-18446744073709551615"
    for query, why in (
        ("from=x", "from is"),
        ("direction=up", "older or"),
        ("match=x", "equal or"),
    ):
        assert why in entries(site, f"key=s&{query}")["description"]
    assert "key names" in entries(site, "")["description"]


def test_an_entry_too_large_to_read_is_named(site: Site) -> None:
    site.client.xadd("s", {"f": "small"}, id="1-0")
    site.client.xadd("s", {"f": "x" * 5_000_000}, id="2-0")
    site.client.xadd("s", {f"f{number}": "" for number in range(60_000)}, id="3-0")
    found = entries(site, "key=s")["entries"]
    assert [each["id"] for each in found] == ["3-0", "2-0", "1-0"]
    assert found[1]["too_large"] > 5_000_000
    assert found[0]["too_large"] > 60_000
    assert found[2]["fields"] == ["f", "small"]


def test_a_walk_reads_as_its_user(site: Site) -> None:
    site.client.xadd("secret", {"f": "v"})
    site.client.acl_setuser(
        "ann", enabled=True, passwords=["+pw"], keys=["open"], commands=["+@all"]
    )
    answer = ask(site.port, "/api/entries?key=secret", Authorization=basic("ann", "pw"))
    assert (answer.status, answer.json["error_code"]) == (403, "no_permission")


def test_a_command_that_deletes_is_asked_about(site: Site) -> None:
    site.client.xadd("s", {"f": "v"})

    def asked(*words: object) -> Any:
        body = {"command": words, "ask": True}
        headers = {"X_Anabranch_Act": "1", "Authorization": bearer(TOKEN)}
        return ask(site.port, "/api/command", "POST", body, **headers).json

    for words, name in (
        (("DEL", "s"), "s"),
        (("unlink", "s", "t"), "UNLINK"),
        (("XDEL", "s", "1-1", "1-2"), "s"),
        (("XGROUP", "DESTROY", "s", "g"), "s"),
        (("xgroup", "delconsumer", "s", "g", "c"), "s"),
        (("XTRIM", "s", "MAXLEN", 0), "s"),
        (("XADD", "s", "maxlen", 0, "*", "f", "v"), "s"),
        (("RENAME", "s", "t"), "RENAME"),
        (("EXPIRE", "s", 0), "s"),
        (("FLUSHDB",), "FLUSHDB"),
        (("ACL", "DELUSER", "ann"), "ACL DELUSER"),
    ):
        question = asked(*words)["ask"]
        assert question["name"] == name, words
        assert "regions" not in question["what"]
    assert site.client.xlen("s") == 1
    assert asked("XLEN", "s") == {"reply": 1}
    assert "reply" in asked("XADD", "s", "*", "f", "v")
    assert asked("NOSUCH", "s")["error"].startswith("ERR unknown command")
    assert asked("XTRIM")["error"].startswith("ERR wrong number")


def test_streams_with_equal_figures_are_in_the_order_of_lag_and_length(site: Site) -> None:
    for key, length in (("a", 1), ("b", 3), ("c", 2), ("d", 3)):
        for _ in range(length):
            site.client.xadd(key, {"f": "v"})
    site.client.xgroup_create("c", "g", "0")
    wait_until(lambda: len(ask(site.port, "/api/streams").json["streams"]) == 4, "all are seen")
    found = ask(site.port, "/api/streams?sort=pending").json["streams"]
    assert [row["key"] for row in found] == ["c", "b", "d", "a"]
