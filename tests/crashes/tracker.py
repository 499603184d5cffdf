"""What is known of one database from what clients were told, and what a crash may leave of it.

One client writes to a database; its answered requests have happened, each of the others may have
happened or not. Whatever is told besides narrows down which.
"""

from __future__ import annotations

from typing import Any

import hiredis

from tests.crashes.model import (
    REFUSED,
    UNFORETOLD,
    Request,
    State,
    changed_keys,
    fits_cursor,
    keys_read,
    parts,
    plain,
    run,
)

__all__ = ["Tracker", "Violation", "is_refusal", "matches", "refused_keys"]


class Violation(AssertionError):
    """Somebody was told what is not so, or not any more."""


def is_refusal(reply: Any) -> bool:
    """Whether a request was turned away because of the disk."""
    if not isinstance(reply, hiredis.ReplyError):
        return False
    return "MISCONF" in str(reply) or str(reply).startswith("EXECABORT")


class Tracker:
    """One database."""

    def __init__(self, db: int) -> None:
        self.db = db
        self.bases: list[State] = [{}]
        """The states after answered requests; the last one is what is safe at least."""
        self.history: list[Request] = []
        """Requests that are answered."""
        self._first = 0  # the first of the bases is the state after so many of them
        self.open: list[Request] = []
        """Requests of the writer that are not answered."""
        self._evidence: list[set[int]] = []
        """Of each thing told: the sets of open requests (bits) that explain it."""
        self._messages: set[str] = set()  # of transactions that were answered

    # -- what may be ----------------------------------------------------------------------------

    def _states(self) -> dict[int, State]:
        """The state for each set of open requests that may have happened."""
        states = {0: self.bases[-1]}
        for place, words in enumerate(self.open):
            for happened, state in list(states.items()):
                states[happened | 1 << place] = run(state, words)[0]
        return states

    def was_told(self, words: Request, reply: Any, since: int) -> None:
        """A reader was answered; ``since`` is how many requests were answered when it asked."""
        told = plain(words, reply)
        begin = max(since - self._first, 0)
        if any(matches(state, words, told) for state in self.bases[begin:]):
            return
        explains = {
            happened for happened, state in self._states().items() if matches(state, words, told)
        }
        if not explains:
            raise Violation(f"db {self.db}: {words} was answered {told!r}, which never was so")
        self._evidence.append(explains)

    def heard(self, message: str) -> None:
        """A subscriber was told of the request with this word in it."""
        for place, words in enumerate(self.open):
            if message in words:
                size = 1 << len(self.open)
                self._evidence.append({each for each in range(size) if each >> place & 1})
                return
        if message not in self._messages:
            raise Violation(f"db {self.db}: message {message} of what never happened")

    def saw_a_change(self, key: str, since: int) -> None:
        """A transaction was not run because of a change of a watched key."""
        if _change([*self.history[since:]], key):
            return
        size = 1 << len(self.open)
        explains = {
            happened
            for happened in range(size)
            if _change([each for place, each in enumerate(self.open) if happened >> place & 1], key)
        }
        if not explains:
            raise Violation(f"db {self.db}: a change of {key} that never happened")
        self._evidence.append(explains)

    # -- the writer -----------------------------------------------------------------------------

    def sent(self, words: Request) -> None:
        """The writer asks for something."""
        self.open.append(words)

    def was_answered(self, words: Request, reply: Any) -> None:
        """The oldest open request was answered."""
        assert self.open[0] == words
        if is_refusal(reply):
            keep = 0
            state = self.bases[-1]
        else:
            keep = 1
            state, due = run(self.bases[-1], words)
            told = plain(words, reply)
            if told != due and not _agree(words, told, due):
                raise Violation(f"db {self.db}: {words} was answered {told!r} instead of {due!r}")
            self._messages.update(word for word in words if word[0] in "mx")
        del self.open[0]
        self._evidence = [
            {each >> 1 for each in explains if each & 1 == keep} for explains in self._evidence
        ]
        if not all(self._evidence):
            raise Violation(f"db {self.db}: {words} was refused, and somebody was told of it")
        self._evidence = [each for each in self._evidence if 0 not in each]
        self.history.append(words)
        self.bases.append(state)
        if len(self.bases) > 60:
            del self.bases[:20]
            self._first += 20

    # -- a crash --------------------------------------------------------------------------------

    def check(self, found: State) -> None:
        """What a start has found must hold all that anybody was told."""
        possible = [happened for happened, state in self._states().items() if state == found]
        if not possible:
            raise Violation(
                f"db {self.db} recovers {found}, which is {self.bases[-1]} with none of {self.open}"
            )
        if not any(
            all(any(each & happened == each for each in explains) for explains in self._evidence)
            for happened in possible
        ):
            raise Violation(
                f"db {self.db} recovers {found}, and somebody was told of more: {self._evidence} "
                f"of {self.open}"
            )

    def restart(self, found: State) -> None:
        """Go on with what was found."""
        self.bases = [found]
        self.history += self.open
        self._first = len(self.history)
        self.open.clear()
        self._evidence.clear()

    def has_changes(self, keys: list[str] | None, since: int) -> bool:
        """Whether a change of one of the keys, or of any, was not answered when somebody asked."""
        for words in (*self.history[since:], *self.open):
            changed = changed_keys(words)
            if changed is None or (changed if keys is None else not changed.isdisjoint(keys)):
                return True
        return False


def _change(requests: list[Request], key: str) -> bool:
    changes = map(changed_keys, requests)
    return any(changed is None or key in changed for changed in changes)


def refused_keys(words: Request, reply: Any) -> list[list[str] | None]:
    """What was refused to be told of: keys, or None for all; for each command of a transaction."""
    if ";" not in words:
        return [keys_read(words)] if is_refusal(reply) else []
    if is_refusal(reply) or reply is None:
        return []
    return [
        keys_read(each) for each, one in zip(parts(words), reply, strict=True) if is_refusal(one)
    ]


def matches(state: State, words: Request, told: Any) -> bool:
    """Whether a reader may be told that in this state."""
    if words[0] == "AB.READ":
        return fits_cursor(state, words, told)
    due = run(state, words)[1]
    return due == told or _agree(words, told, due)


def _agree(words: Request, told: Any, due: Any) -> bool:
    """Whether a reply is the one that is due but for what no model foretells."""
    if ";" in words:
        if not isinstance(told, list):
            return False
        return all(
            one == other or _agree(each, one, other)
            for each, one, other in zip(parts(words), told, due, strict=True)
        )
    return words[0] in UNFORETOLD or told == REFUSED
