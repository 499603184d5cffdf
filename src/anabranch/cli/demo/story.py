"""A demonstration in steps: each acts, names the command that shows the result, and claims it.

A claim is checked: the answers of regions are compared with what was sent. The report at the end
counts the claims that hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import redis

from anabranch.cli.failures import Failed
from anabranch.cli.terminal import say, styled, wrapped

_MARKS: Final = {True: ("ok", "green"), False: ("FAILED", "red"), None: ("skipped", "yellow")}


class Late(Exception):
    """Something did not happen in time; the text says what."""


class Skipped(Exception):
    """A step cannot be carried out here; the text says why."""


@dataclass(frozen=True, slots=True)
class DemoClaim:
    """A statement that must be true, and whether it is."""

    sentence: str
    held: bool | None
    """None if it was not checked."""
    detail: str = ""
    """Figures; if the claim is false, what was found instead."""


class Scene(NamedTuple):
    """The head of a step: what happens in it, and why it matters."""

    title: str
    text: str


StoryStep = Iterator[Scene | str | list[str] | DemoClaim]
"""One part of the story, which acts and tells in turn.

A scene comes first; a string is a command that shows the result, a list the result in lines, and a
claim a statement that must be true at this moment. It raises :class:`Late`, :class:`Skipped`, or
what a command line would raise.
"""


class Story:
    """Runs steps one after the other, and reports."""

    def __init__(self, wait: Callable[[], None]) -> None:
        """``wait`` is called after each step: it leaves time to look."""
        self._wait = wait
        self.checked: list[tuple[str, DemoClaim]] = []
        """The title of a step, and a claim of it."""

    @property
    def held(self) -> bool:
        """Whether all claims that were checked are true."""
        return all(claim.held is not False for _, claim in self.checked)

    def tell(self, steps: Sequence[StoryStep]) -> None:
        """Run the steps, up to the first one with a false claim."""
        for number, step in enumerate(steps, 1):
            title = ""
            try:
                for told in step:
                    if isinstance(told, Scene):
                        title = told.title
                        say(styled(f"\n{number}/{len(steps)}  {title}", bold=True))
                        say(wrapped(told.text))
                    elif isinstance(told, DemoClaim):
                        self._judge(title, told)
                    elif isinstance(told, str):
                        say(styled(f"  $ {told}", "cyan"))
                    else:
                        for line in told:
                            say(f"  {line}")
            except Skipped as why:
                self._judge(title, DemoClaim(title, None, str(why)))
            except (Late, Failed, redis.RedisError, OSError) as problem:
                found = " ".join(str(problem).split()) or type(problem).__name__
                sentence = f"the step '{title}' can be carried out"
                self._judge(title, DemoClaim(sentence, False, found))
            if not self.held:
                left = len(steps) - number
                say(f"\nThe steps build on each other: the other {left} are left out.")
                return
            self._wait()

    def _judge(self, title: str, claim: DemoClaim) -> None:
        self.checked.append((title, claim))
        mark, colour = _MARKS[claim.held]
        detail = f" ({claim.detail})" if claim.detail else ""
        line = wrapped(f"{mark}: {claim.sentence}{detail}", indent=2)
        say(line.replace(mark, styled(mark, colour, bold=claim.held is False), 1))

    def report(self, seconds: float) -> None:
        """Print the result in one line: each claim was printed when it was checked."""
        claims = [claim for _, claim in self.checked]
        failed = [claim for claim in claims if claim.held is False]
        skipped = sum(claim.held is None for claim in claims)
        checked = len(claims) - skipped
        more = f", {skipped} skipped" if skipped else ""
        if failed:
            result = styled(f"\n{len(failed)} of {checked} claims did not hold", "red", bold=True)
            say(f"{result}{more}: {'; '.join(claim.sentence for claim in failed)}")
        else:
            result = styled(f"\nall {checked} claims hold", "green", bold=True)
            say(f"{result}{more}, in {seconds:.0f} s")
