"""The description of one directive: a row of the settings table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anabranch.config.kinds import Integer, Kind


class Directive:
    """One directive.

    ``effect`` is False for what is accepted so that files and tools of Redis keep working, but
    changes nothing here. ``refused`` maps values (as text, ``*`` for any) to the sentence that
    says what to use instead; the server does not start with them.
    """

    def __init__(
        self,
        kind: Kind,
        default: str,
        sentence: str,
        *,
        group: str = "",
        immutable: bool = False,
        protected: bool = False,
        hidden: bool = False,
        secret: bool = False,
        volatile: bool = False,
        effect: bool = True,
        aliases: tuple[str, ...] = (),
        refused: Mapping[str, str] | None = None,
        unit: str = "",
        check: Callable[[Any], str | None] | None = None,
    ) -> None:
        self.name = ""  # set by the table
        self.kind = kind
        self.default_text = default
        self.default = kind.parse([default]) if default or not kind.repeats else kind.parse([])
        self.sentence = sentence
        self.group = group
        self.immutable = immutable  # before the start only
        self.protected = protected  # at run time only with enable-protected-configs
        self.hidden = hidden  # not part of CONFIG GET and SET
        self.secret = secret  # never printed
        self.volatile = volatile  # set to the same value it is applied again: it names a file
        self.effect = effect
        self.aliases = aliases
        self.refused = refused or {}
        self.unit = unit
        self.check = check

    @property
    def attribute(self) -> str:
        """The name as an attribute of Settings."""
        return self.name.replace("-", "_")

    @property
    def allowed(self) -> str:
        """The allowed values, in words."""
        text = self.kind.allowed
        return f"{text} ({self.unit})" if self.unit and isinstance(self.kind, Integer) else text

    def parse(self, words: list[str]) -> Any:
        """The value of the words of a line; ValueError with the reason if there is none."""
        value = self.kind.parse(words)
        if self.refused:
            refusal = self.refused.get("*") or self.refused.get(self.kind.format(value))
            if refusal is not None:
                raise ValueError(refusal)
        if self.check is not None and (objection := self.check(value)):
            raise ValueError(objection)
        return value

    def copy_default(self) -> Any:
        """The default; no two settings objects share it."""
        value = self.default
        return value.copy() if isinstance(value, list | dict) else value


def row(kind: Kind, default: str, sentence: str, **details: Any) -> Any:
    """A row standing where the attribute of the same name is declared (see ``settings``)."""
    return Directive(kind, default, sentence, **details)
