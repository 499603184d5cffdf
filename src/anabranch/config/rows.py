"""The description of one directive: a row of the settings table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from anabranch.config.kinds import Integer, Kind


@dataclass(eq=False, slots=True)
class Directive:
    """One directive.

    ``effect`` is False for what is accepted so that files and tools of Redis keep working, but
    changes nothing here. ``refused`` maps values (as text, ``*`` for any) to the sentence that
    says what to use instead; the server does not start with them.
    """

    kind: Kind
    default_text: str
    sentence: str
    _: KW_ONLY
    group: str = ""
    immutable: bool = False  # before the start only
    protected: bool = False  # at run time only with enable-protected-configs
    hidden: bool = False  # not part of CONFIG GET and SET
    secret: bool = False  # never printed
    volatile: bool = False  # set to the same value it is applied again: it names a file
    effect: bool = True
    aliases: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    unit: str = ""
    check: Callable[[Any], str | None] | None = None
    name: str = field(default="", init=False)  # set by the table
    default: Any = field(init=False)

    def __post_init__(self) -> None:
        """Read the default."""
        text = self.default_text
        self.default = self.kind.parse([text] if text or not self.kind.repeats else [])

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


def row(kind: Kind, default: str, group: str, sentence: str, **details: Any) -> Any:
    """A row standing where the attribute of the same name is declared (see ``settings``)."""
    return Directive(kind, default, sentence, group=group, **details)
