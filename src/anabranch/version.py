"""The version, in one place; the build and the package read it here."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
