"""Errors in payloads, with the texts that RESTORE answers, and errors in files."""

from __future__ import annotations

from anabranch.errors import AnabranchError


class PayloadError(AnabranchError):
    """A payload cannot be taken: the base of both reasons."""


class PayloadChecksumError(PayloadError):
    """The payload is too short, of a newer RDB version, or its CRC is wrong.

    RESTORE: "DUMP payload version or checksum are wrong".
    """


class PayloadFormatError(PayloadError):
    """The frame is valid, but its value is malformed or of an unknown type.

    RESTORE: "Bad data format". The text of the error is for logs and ``inspect``.
    """


class PayloadKindError(PayloadFormatError):
    """The value is of a type that Redis has and this server has not."""

    def __init__(self, kind: str, type_byte: int) -> None:
        self.kind = kind
        super().__init__(f"{kind} (type {type_byte}) is not supported")


class PayloadSizeError(PayloadFormatError):
    """The value would take far more memory than the payload. RESTORE answers this text, too."""


class RdbFileError(AnabranchError):
    """A file is damaged, cut short or of an unknown kind.

    ``offset`` is where in the file the error was found, in bytes.
    """

    def __init__(self, text: str, offset: int) -> None:
        self.text = text
        self.offset = offset
        super().__init__(f"byte {offset}: {text}")
