"""Which form of the server is measured; figures of the two forms differ by a factor of two."""

from __future__ import annotations

from anabranch.server.process import is_compiled
from anabranch.version import __version__


def measured_form() -> str:
    """Version and form, as every result names them: ``0.2.0 compiled``.

    The compiled form is measured if it is first on PYTHONPATH; README.md here shows how.
    """
    return f"{__version__} {'compiled' if is_compiled() else 'interpreted'}"
