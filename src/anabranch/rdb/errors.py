"""What can be wrong with a payload; RESTORE answers each with its own sentence."""

from __future__ import annotations

from anabranch.errors import AnabranchError

__all__ = ["PayloadChecksumError", "PayloadError", "PayloadFormatError"]


class PayloadError(AnabranchError):
    """Base of the two."""


class PayloadChecksumError(PayloadError):
    """Too short, of a newer RDB version, or not what its CRC promises.

    RESTORE: "DUMP payload version or checksum are wrong".
    """


class PayloadFormatError(PayloadError):
    """The frame is right but the value inside makes no sense, or is of a type we do not keep.

    RESTORE: "Bad data format". The text of the error is for logs and ``inspect``.
    """
