"""What the browser tests share: three real regions, and somebody who looks at a page of one."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path
from typing import Any, Protocol

import redis
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tests.support.inspection import wait_until
from tests.support.page_server import TOKEN
from tests.support.servers import AnabranchServer, free_port, regions_in

__all__ = ["PATIENCE_MS", "TOKEN", "Visit", "Visitor", "World", "pictures_directory"]

AXE = Path(__file__).parent / "vendor/axe.min.js"
PATIENCE_MS = 60_000

REFRESHES = """
window.refreshes = [];
document.addEventListener("DOMContentLoaded", () => {
  const rows = () =>
    [...document.querySelectorAll("#links tbody tr")].map((row) => row.dataset.state);
  const cell = (name) => document.querySelector(`[data-cell="${name}"]`);
  new MutationObserver(() => {
    const states = rows(), badge = document.getElementById("converged");
    refreshes.push({
      at: Date.now(),
      off: document.body.classList.contains("off"),
      cut: states.length > 0 && states.every((state) => state === "cut"),
      in_sync: states.length > 0 && states.every((state) => state === "in_sync"),
      apart: !badge.hidden && badge.textContent.includes("apart"),
      converged: !badge.hidden && badge.textContent.includes("converged"),
      us_lacks: cell("us/eu") ? parseInt(cell("us/eu").textContent) : null,
    });
  }).observe(document.getElementById("map"), {childList: true});
});
"""
"""Notes what the page shows after each of its refreshes: it draws the map in each."""

TERMINAL = """<style>{stylesheet} pre {{ display: inline-block; padding: 12px 16px;
  color: {foreground}; background: {background}; font: 14px/1.4 monospace; }}</style>
<pre>{code}</pre>"""

ACTIONS = """() => {
  const kinds = "button,input,select,textarea,summary,a[href],[tabindex]";
  return [...document.querySelectorAll(kinds)].filter((each) => !each.disabled && each.tabIndex >= 0
    && each.checkVisibility({visibilityProperty: true}) && !each.closest("dialog:not([open])"))
    .map(nameOf);
}"""
"""Everything that can be acted on at present."""

NAMED = """
window.nameOf = (each) => [
  each.tagName,
  each.id || each.dataset.k || each.getAttribute("aria-label") || each.getAttribute("href")
    || each.textContent.trim(),
  each.parentElement?.closest("[id]")?.id,
].join(" ");
"""


class World:
    """Three regions; the first one has a page."""

    def __init__(self, directory: Path) -> None:
        options = ("--enable-debug-command", "yes", "--http-token", TOKEN)
        self.servers: list[AnabranchServer] = regions_in(directory, "eu", "us", "ap", extra=options)
        self.clients = [redis.Redis(port=each.port, decode_responses=True) for each in self.servers]
        self.eu, self.us, self.ap = self.clients
        self.port = free_port()
        self.eu.config_set("http-port", self.port)

    def fill(self, count: int) -> None:
        """Entries of every region, a group that has some pending, and a producer that retries.

        And nothing of a test before: all links are as they were at first.
        """
        for name in ("us", "ap"):
            self.eu.execute_command("AB.LINK", name, "RESUME")
        wait_until(lambda: self.links_are("in_sync"), "nothing is cut")
        self.eu.flushall()
        wait_until(lambda: not any(each.dbsize() for each in self.clients), "nothing is left")
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

    def links_are(self, state: str) -> bool:
        """Both links of eu are in a state, as eu itself has it."""
        rows = self.eu.execute_command("AB.PEERS")
        return len(rows) == 2 and all(row["state"] == state for row in rows)

    def is_whole(self) -> bool:
        """All regions have applied the same effects."""
        vectors = [client.execute_command("AB.INFO")["vector"] for client in self.clients]
        return all(sorted(vector) == sorted(vectors[0]) for vector in vectors)

    def close(self) -> None:
        """Stop all."""
        for client in self.clients:
            client.close()
        for server in self.servers:
            server.stop()


class Visitor:
    """One open page, and everything the browser has complained of."""

    def __init__(
        self, browser: Any, port: int, pictures: Path, *, token: str = TOKEN, script: str = ""
    ) -> None:
        self._context = browser.new_context(viewport={"width": 1280, "height": 900})
        self.page = self._context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.complaints: list[str] = []
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append("a dialog of a script"))
        self.pictures = pictures
        self.page.add_init_script(REFRESHES + NAMED + script)
        self.page.goto(f"http://127.0.0.1:{port}/" + (f"#token={token}" if token else ""))

    def close(self) -> None:
        """Close the page."""
        self._context.close()

    def _console(self, message: Any) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(message.text)

    def go(self, address: str) -> None:
        """Open a view by its address, as a link does: ``#/streams``."""
        self.page.evaluate("(address) => { location.hash = address; }", address)
        self.page.wait_for_function("(address) => location.hash === address", arg=address)

    def until(self, condition: str) -> None:
        """Wait until an expression of JavaScript is true."""
        self.page.wait_for_function(condition)

    def refreshes_until(self, shown: str, since_ms: float) -> tuple[int, float]:
        """After how many refreshes since a time the page shows something, and after how many ms.

        Both are zero if it was shown at that time.
        """
        self.until(f"() => {{const r = refreshes.at(-1); return r.at >= {since_ms} && r.{shown};}}")
        seen = self.page.evaluate(f"() => refreshes.map((r) => [r.at, Boolean(r.{shown})])")
        earlier = [is_shown for at, is_shown in seen if at < since_ms]
        if earlier and earlier[-1]:
            return 0, 0.0
        later = [(at, is_shown) for at, is_shown in seen if at >= since_ms]
        number = next(number for number, (_, is_shown) in enumerate(later, 1) if is_shown)
        return number, later[number - 1][0] - since_ms

    # -- the keyboard -------------------------------------------------------------------------

    def tab_to(self, wanted: str) -> None:
        """Reach an element by the keyboard alone: one whose ``nameOf`` begins so."""
        for _ in range(300):
            self.page.keyboard.press("Tab")
            if self.focused().startswith(wanted):
                return
        raise AssertionError(f"{wanted} cannot be reached by the keyboard")

    def focused(self) -> str:
        """What has the focus."""
        return str(self.page.evaluate("() => nameOf(document.activeElement)"))

    def press(self, button: str) -> None:
        """Reach a button by the keyboard alone, and press it."""
        self.until(f"() => !document.getElementById('{button}').disabled")
        self.tab_to(f"BUTTON {button} ")
        self.page.keyboard.press("Enter")

    def actions(self) -> set[str]:
        """Everything that can be acted on."""
        return set(self.page.evaluate(ACTIONS))

    def reached_by_keyboard(self) -> set[str]:
        """What the key Tab visits, once around."""
        self.page.keyboard.press("Tab")
        first = self.focused()
        reached = {first}
        for _ in range(3 * len(self.actions())):
            self.page.keyboard.press("Tab")
            reached.add(self.focused())
            if len(reached) > 1 and self.focused() == first:
                break
        return reached

    # -- looking ------------------------------------------------------------------------------

    def picture(self, name: str) -> None:
        """Keep what is to be seen."""
        self.page.screenshot(path=self.pictures / f"{name}.png")

    def picture_of_terminal(self, name: str, drawn: str, columns: int) -> None:
        """Keep what a terminal shows: text with the codes of its colours."""
        console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True)
        console.print(Text.from_ansi(drawn.rstrip()), no_wrap=True)
        page = self._context.new_page()
        page.set_content(console.export_html(theme=MONOKAI, code_format=TERMINAL))
        page.locator("pre").screenshot(path=self.pictures / f"{name}.png")
        page.close()

    def serious(self, *rules: str) -> list[str]:
        """What axe-core finds, by all of its rules or by some; what passes is not worked out."""
        self.page.evaluate(AXE.read_text("utf-8"))
        options: dict[str, Any] = {"resultTypes": ["violations"]}
        if rules:
            options["runOnly"] = list(rules)
        found = self.page.evaluate("(options) => axe.run(document, options)", options)
        return [
            f"{each['id']}: {[node['html'][:200] for node in each['nodes'][:3]]}"
            for each in found["violations"]
            if each["impact"] in {"serious", "critical"}
        ]


class Visit(Protocol):
    """The fixture ``visit``: opens the page at a port."""

    def __call__(self, port: int, *, token: str = TOKEN, script: str = "") -> Visitor: ...


def pictures_directory(otherwise: Path) -> Path:
    """Where screenshots are kept: those of the documents, or beside the test."""
    kept = Path(os.environ.get("ANABRANCH_SCREENSHOTS", otherwise))
    kept.mkdir(parents=True, exist_ok=True)
    return kept
