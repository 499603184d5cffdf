"""Packages of others that some tests are about: the dependency group `compat`."""

from __future__ import annotations

import asyncio
import functools
import gc
import importlib
import os
import warnings
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

__all__ = ["in_a_loop_of_its_own", "required"]

SECONDS = 60


def required(module: str) -> Any:
    """Import a package; without it the tests of the module are skipped, or fail where CI=true."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(module)
    except ImportError as problem:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(
            f"{module} cannot be imported, IT IS NOT TRIED ({problem}); "
            "pip install --group compat --constraint constraints.txt",
            allow_module_level=True,
        )


def in_a_loop_of_its_own(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a plain test of an async one: what a package leaves open is collected quietly."""

    @functools.wraps(test)
    def plain(*args: object, **fixtures: object) -> None:
        async def limited() -> None:
            async with asyncio.timeout(SECONDS):
                await test(*args, **fixtures)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            asyncio.run(limited())
            gc.collect()

    return plain
