"""Errors in payloads, with the texts that RESTORE answers, and errors in files."""

from __future__ import annotations

from anabranch.errors import AnabranchError

__all__ = ["PayloadChecksumError", "PayloadError", "PayloadFormatError", "RdbFileError"]


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


class RdbFileError(AnabranchError):
    """A file that is damaged, cut short or of a kind we do not know.

    ``offset`` is the byte of the file at which it showed.
    """

    def __init__(self, text: str, offset: int) -> None:
        self.text = text
        self.offset = offset
        super().__init__(f"byte {offset}: {text}")
