"""Options of commands, as click takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import reduce
from math import isfinite
from typing import Any, TypeVar, cast

import click

_Options = TypeVar("_Options")
_Command = TypeVar("_Command", bound=Callable[..., Any])


class FiniteRange(click.FloatRange):
    """As in click, without ``nan``, which is in every range there, and ``inf``."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number within the range; infinity and NaN are refused."""
        number: float = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{value!r} is no finite number", param, ctx)
        return number


def with_options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Options of click as one decorator, in the order of the help."""
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


def json_option(about: str = "Print one JSON object.") -> Callable[[_Command], _Command]:
    """``--json``, as the parameter ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help=about)


def taken(kind: type[_Options], options: dict[str, Any]) -> _Options:
    """The options of a dataclass, taken out of those of a command."""
    return kind(**{each.name: options.pop(each.name) for each in fields(cast("Any", kind))})
