"""HTTP: the page, metrics, health, and the availability API. Needs the extra ``anabranch[web]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.errors import ConfigError

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

    from anabranch.node.node import Node
    from anabranch.web.application import Web

__all__ = ["new_web"]

_NOT_INSTALLED: Final = (
    "http-port and availability-api need the extra 'web', which is not installed: "
    "pip install 'anabranch[web]' ({missing})"
)


def new_web(
    node: Node,
    logger: logging.Logger,
    silent_s: Callable[[], float],
    feeds: Callable[[], tuple[int, int]],
) -> Web:
    """The HTTP side of a server; the arguments are those of ``Web``.

    Raises :class:`ConfigError` if the packages that it needs are not installed.
    """
    try:
        # Few servers open the port: the others do not pay for the import.
        from anabranch.web.application import Web  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("anabranch"):
            raise
        raise ConfigError(_NOT_INSTALLED.format(missing=missing)) from None
    return Web(node, logger, silent_s, feeds)
