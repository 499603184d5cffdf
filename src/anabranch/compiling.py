"""Hints for the compiler of the hot modules; the interpreter ignores them.

``mypyc_attr(acyclic=True)`` says that objects of a class are never part of a cycle of references.
Then the garbage collector does not know them: each takes 16 bytes less, and no collection visits
them.

``mypyc_attr(allow_interpreted_subclasses=True)`` is for a compiled class with subclasses in modules
that are not compiled. Calls of its methods are slower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["mypyc_attr"]

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**_hints: object) -> object:
        """Return the class as it is."""
        return lambda hinted: hinted
