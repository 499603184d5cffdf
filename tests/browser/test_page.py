"""The page in a real browser, on three real processes: isolate, diverge, heal, converge.

Needs Debian's chromium (``apt-get install chromium``) and playwright. With
``ANABRANCH_SCREENSHOTS=docs/pictures`` the screenshots of the documents are made anew.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.support.servers import (
    AnabranchServer,
    free_port,
    kill_servers_in_directories,
    regions_in,
)

pytest.importorskip("starlette", reason="the extra web is not installed: THE PAGE IS NOT TRIED")
sync_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: THE PAGE IS NOT TRIED"
)

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("chromium is not installed: THE PAGE IS NOT TRIED", allow_module_level=True)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

AXE = Path(__file__).parent / "vendor/axe.min.js"
TOKEN = "a-token-of-some-length"
PATIENCE_MS = 30_000
HOSTILE = ["<script>bad()</script>", "<img src=x onerror=bad()>", '"><svg onload=bad()>']

FOCUSABLE = """() => {
  const all = [...document.querySelectorAll("button,input,select,a[href],[tabindex='0']")];
  return all.filter((each) => !each.disabled && each.checkVisibility({visibilityProperty: true})
    && !each.closest("dialog:not([open])")).length;
}"""
"""How many elements the keyboard has to reach."""


class World:
    """Three regions, each with its page."""

    def __init__(self, directory: Path) -> None:
        options = ("--enable-debug-command", "yes", "--http-token", TOKEN)
        self.servers: list[AnabranchServer] = regions_in(directory, "eu", "us", "ap", extra=options)
        self.eu, self.us, self.ap = (
            redis.Redis(port=server.port, decode_responses=True) for server in self.servers
        )
        for server in self.servers:
            server.wait_for_writes()
        self.port = free_port()
        self.eu.config_set("http-port", self.port)

    def fill(self, count: int) -> None:
        """Entries of every region, a group that has some pending, and a producer that retries."""
        self.eu.xgroup_create("readings", "alarms", "$", mkstream=True)
        for number in range(count):
            for client, place in ((self.eu, "oslo"), (self.us, "denver"), (self.ap, "osaka")):
                words = ("readings", "IDMP", place, str(number), "*", "sensor", place)
                for _ in range(2 if number % 5 == 0 else 1):
                    client.execute_command("XADD", *words, "celsius", str(number % 30))
            self.eu.xadd("orders", {"json": f'{{"id": {number}}}'})
            time.sleep(0.01)  # the entries of a timeline lie beside each other
        self.eu.xreadgroup("alarms", "worker-1", {"readings": ">"}, count=20)
        for message_id, _ in self.eu.xrange("readings", count=8):
            self.eu.xack("readings", "alarms", message_id)

    def close(self) -> None:
        for client in (self.eu, self.us, self.ap):
            client.close()
        for server in self.servers:
            server.stop()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()
    kill_servers_in_directories()


@pytest.fixture
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        made = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield made
        made.close()


class Visitor:
    """One open page, and everything the browser has complained of."""

    def __init__(self, browser: Any, world: World, pictures: Path) -> None:
        self.page = browser.new_page(viewport={"width": 1280, "height": 900})
        self.page.set_default_timeout(PATIENCE_MS)
        self.complaints: list[str] = []
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append("a dialog of a script"))
        self.pictures = pictures
        self.page.goto(f"http://127.0.0.1:{world.port}/#token={TOKEN}")

    def _console(self, message: Any) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(message.text)

    def until(self, condition: str) -> float:
        """Wait until an expression of JavaScript is true; the seconds that took."""
        began = time.monotonic()
        self.page.wait_for_function(condition)
        return time.monotonic() - began

    def press(self, button: str) -> None:
        """Reach a button by the keyboard alone, and press it."""
        self.until(f"() => !document.getElementById('{button}').disabled")
        for _ in range(200):
            self.page.keyboard.press("Tab")
            if self.page.evaluate("() => document.activeElement.id") == button:
                self.page.keyboard.press("Enter")
                return
        raise AssertionError(f"{button} cannot be reached by the keyboard")

    def picture(self, name: str) -> None:
        self.page.screenshot(path=self.pictures / f"{name}.png")

    def serious(self) -> list[str]:
        """What axe-core finds."""
        self.page.evaluate(AXE.read_text("utf-8"))
        found = self.page.evaluate("() => axe.run(document)")
        return [
            f"{each['id']}: {[node['html'][:200] for node in each['nodes'][:3]]}"
            for each in found["violations"]
            if each["impact"] in {"serious", "critical"}
        ]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    kept = Path(os.environ.get("ANABRANCH_SCREENSHOTS", tmp_path / "pictures"))
    kept.mkdir(parents=True, exist_ok=True)
    return kept


def states(state: str) -> str:
    """Both links of the table are in this state."""
    rows = "[...document.querySelectorAll('#links tbody tr')]"
    return f"() => {rows}.length === 2 && {rows}.every((row) => row.dataset.state === '{state}')"


CONVERGED = "() => document.getElementById('converged').textContent.includes('converged')"


def test_a_region_is_cut_off_and_comes_back(
    world: World, browser: Any, pictures: Path, record_property: Callable[[str, object], None]
) -> None:
    world.fill(40)
    visitor = Visitor(browser, world, pictures)
    page = visitor.page
    visitor.until(CONVERGED)
    visitor.until(states("in_sync"))
    visitor.until("() => document.querySelectorAll('#busy tbody button').length >= 2")
    page.wait_for_timeout(2500)  # the charts have some points
    visitor.picture("page-light")

    visitor.press("isolate")
    record_property("seconds until cut", visitor.until(states("cut")))
    for number in range(12):
        world.eu.xadd("readings", {"sensor": "oslo", "celsius": number})
        world.us.xadd("readings", {"sensor": "denver", "celsius": number})
    apart = "() => document.getElementById('converged').textContent.includes('apart')"
    record_property("seconds until apart", visitor.until(apart))
    cell = "document.querySelector('[data-cell=\"us/eu\"]').textContent"
    visitor.until(f"() => parseInt({cell}) >= 12")
    visitor.picture("page-cut")

    visitor.press("heal")
    record_property("seconds until healed", visitor.until(states("in_sync")))
    record_property("seconds until converged", visitor.until(CONVERGED))
    visitor.until("() => /came late/.test(document.getElementById('timeline-say').textContent)")
    assert world.eu.xlen("readings") == world.us.xlen("readings") == world.ap.xlen("readings")
    visitor.picture("page-healed")
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    page.click("#theme")
    page.click("#theme")
    page.wait_for_timeout(1200)
    visitor.picture("page-dark")
    assert visitor.complaints == []


def test_streams_groups_and_acts(world: World, browser: Any, pictures: Path) -> None:
    world.fill(10)
    for value in HOSTILE:
        world.us.xadd(f"k{value}", {value: value})
        world.us.xadd("orders", {value: value})
    visitor = Visitor(browser, world, pictures)
    page = visitor.page
    visitor.until("() => document.querySelectorAll('#busy tbody button').length >= 5")
    page.get_by_role("button", name="orders", exact=True).first.click()
    visitor.until("() => document.querySelectorAll('#entries tbody tr').length >= 13")
    assert page.locator("#entries", has_text=HOSTILE[0]).count() == 1, "shown as text"
    assert page.evaluate("() => document.querySelectorAll('main script, main img').length") == 0

    page.fill("#watch-key", "readings")
    page.press("#watch-key", "Enter")
    page.get_by_role("button", name="alarms", exact=True).click()
    visitor.until("() => document.querySelectorAll('#pending tbody tr').length === 12")
    page.get_by_role("button", name="Ack").first.click()
    assert page.locator("#sure-ok").is_disabled(), "the name must be typed"
    page.fill("#sure-name", "readings")
    page.click("#sure-ok")
    visitor.until("() => document.querySelectorAll('#pending tbody tr').length === 11")
    assert world.eu.xpending("readings", "alarms")["pending"] == 11
    page.fill("#pairs", 'sensor "by hand"')
    page.press("#pairs", "Enter")
    visitor.until("() => document.getElementById('entries').textContent.includes('by hand')")
    assert world.eu.xrevrange("readings", count=1)[0][1] == {"sensor": "by hand"}
    assert page.locator("#log code").first.text_content() == 'XADD readings * sensor "by hand"'

    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert visitor.serious() == []
    reached: set[str] = set()
    wanted = page.evaluate(FOCUSABLE)
    for _ in range(3 * wanted):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("() => document.activeElement.outerHTML.slice(0, 300)"))
    assert len(reached) >= 0.9 * wanted, "the rows of some tables change meanwhile"
    page.set_viewport_size({"width": 360, "height": 740})
    page.wait_for_timeout(600)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 360
    visitor.picture("page-narrow")
    assert visitor.complaints == []
