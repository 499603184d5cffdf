"""Names and values that try to become a script, and visitors who may not act."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest
import redis

from tests.browser.visitor import TOKEN, Visit
from tests.support.servers import free_port, kill_servers_in_directories, server_in

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HOSTILE = (
    "<script>bad()</script>",
    "<img src=x onerror=bad()>",
    '"><svg onload=bad()>',
    "' onfocus=bad() autofocus='",
    "javascript:bad()",
    "\u202e\x00\x1b[2J</td></table><iframe srcdoc='<script>parent.bad()</script>'>",
)
"""Each is the name of a stream, a group, a consumer, a producer and a field, and a value."""

TRAP = "window.bad = () => { document.documentElement.dataset.broken = 'yes'; };"

INJECTED = """() => [
  ...document.querySelectorAll("main script, main img, main iframe, main svg svg, main object"),
  ...[...document.querySelectorAll("main *")].filter((each) =>
    [...each.attributes].some((a) => a.name.startsWith("on")
      || /^(href|src|srcdoc|data|action|formaction)$/.test(a.name) && /script|bad/i.test(a.value)
        && !a.value.startsWith("#/stream/"))),
].map((each) => each.outerHTML)"""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The page of a region with a hostile name, that knows of another such region."""
    gossip = free_port()
    entries = (("--cluster-create", "yes"), ("--join", f"127.0.0.1:{gossip}"))
    servers = []
    for region_id, entry in enumerate(entries, 1):
        of_region = ("--region-id", str(region_id), "--region-name", HOSTILE[region_id])
        gossip_port = gossip if region_id == 1 else free_port()
        words = (*of_region, "--gossip-port", str(gossip_port), *entry, "--http-token", TOKEN)
        servers.append(server_in(tmp_path_factory.mktemp("region"), *words).start())
    for server in servers:
        server.wait_for_writes()
    number = free_port()
    with redis.Redis(port=servers[0].port, decode_responses=True) as client:
        client.config_set("http-port", number)
        for each in HOSTILE:
            for _ in range(2):
                client.execute_command("XADD", each, "IDMP", each, each, "*", each, each)
            client.xgroup_create(each, each, "0")
            client.xreadgroup(each, each, {each: ">"})
    yield number
    for server in servers:
        server.stop()
    kill_servers_in_directories()


def test_what_others_have_named_is_shown_as_text(port: int, visit: Visit) -> None:
    visitor = visit(port, script=TRAP)
    page = visitor.page
    visitor.until(f"() => document.querySelectorAll('#busy tbody a').length >= {len(HOSTILE)}")
    visitor.until("() => document.querySelectorAll('#links tbody tr').length === 1")
    for each in HOSTILE:
        visitor.go("#/")
        page.fill("#watch-key", each)
        page.press("#watch-key", "Enter")
        visitor.until("() => document.querySelectorAll('#groups tbody a').length === 1")
        visitor.until("() => document.querySelectorAll('#entries tbody tr').length >= 1")
        page.locator("#groups tbody a").click()
        visitor.until("() => document.querySelectorAll('#pending tbody tr').length === 1")
        page.fill("#line", f"XRANGE {shlex.quote(each)} - +")
        page.press("#line", "Enter")
    text = page.inner_text("main")
    for view in ("#/streams", "#/"):
        visitor.go(view)
        text += page.inner_text("main")
    for each in HOSTILE[:5]:
        assert text.count(each) >= 3, f"{each} is shown as it is"
    assert f"Isolate {HOSTILE[1]}" in text
    assert page.evaluate(INJECTED) == []
    assert page.evaluate("() => document.documentElement.dataset.broken") is None
    assert visitor.complaints == [], "the policy had nothing to forbid"


def test_a_script_that_got_in_would_not_run(port: int, visit: Visit) -> None:
    """The policy holds even if the page made HTML of data."""
    visitor = visit(port, script=TRAP)
    for each in HOSTILE[:3]:
        visitor.page.evaluate("(html) => { document.body.innerHTML += html; }", each)
    visitor.page.wait_for_timeout(200)
    assert visitor.page.evaluate("() => document.documentElement.dataset.broken") is None
    assert any("Content Security Policy" in each for each in visitor.complaints)


def test_a_visitor_without_a_token_reads_only(port: int, visit: Visit) -> None:
    visitor = visit(port, token="")
    page = visitor.page
    visitor.until("() => document.getElementById('who').textContent === 'read only'")
    page.fill("#watch-key", HOSTILE[4])
    page.press("#watch-key", "Enter")
    page.locator("#groups tbody a").click()
    visitor.until("() => document.querySelectorAll('#pending tbody tr').length === 1")
    acts = "#isolate, #heal, #links button, #pending button, #add button, #trim button"
    assert page.locator(acts).count() >= 7
    assert page.locator(acts).evaluate_all("(all) => all.every((each) => each.disabled)")
    page.fill("#line", f"DEL {HOSTILE[4]}")
    page.press("#line", "Enter")
    visitor.until(
        "() => /needs a user and password/.test(document.getElementById('log').innerText)"
    )
    assert all("403" in each for each in visitor.complaints), visitor.complaints
