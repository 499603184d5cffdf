"""Redis' own formats as pure functions: DUMP payloads, and the values inside RDB files.

Bytes in, Python values out, and back; no files, no clock, no keys. Whatever comes from outside is
hostile until decoded: each declared length is compared with the bytes that are there before
anything is allocated, and only :class:`~anabranch.rdb.errors.PayloadChecksumError` and
:class:`~anabranch.rdb.errors.PayloadFormatError` come out.

In reading order: :mod:`.payload` (the frame of DUMP), :mod:`.values` (one value by its type),
:mod:`.stream_codec` with :mod:`.stream_node` and :mod:`.stream_groups` (streams), :mod:`.listpack`,
:mod:`.ziplist` and :mod:`.intset` (packed sequences), :mod:`.lengths` (numbers and strings),
:mod:`.lzf`, :mod:`.crc64`.
"""
