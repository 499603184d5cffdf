"""Numbers of options."""

from __future__ import annotations

from math import isfinite
from typing import Any

import click


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
