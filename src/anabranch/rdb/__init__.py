"""Redis' own formats as pure functions: DUMP payloads, and whole RDB files.

Bytes in, Python values out, and back; no files are opened and no clock is read. Whatever comes from
outside is hostile until decoded: each declared length is compared with the bytes that are there
before anything is allocated, and only :class:`~anabranch.rdb.errors.PayloadChecksumError` and
:class:`~anabranch.rdb.errors.PayloadFormatError` come out, of files
:class:`~anabranch.rdb.errors.RdbFileError`.

In reading order: :mod:`.payload` (the frame of DUMP), :mod:`.values` (one value by its type byte;
:mod:`.kinds` names them), :mod:`.stream_codec` with :mod:`.stream_node` and :mod:`.stream_groups`
(streams), :mod:`.listpack`, :mod:`.ziplist` and :mod:`.intset` (packed sequences), :mod:`.lengths`
(numbers and strings), :mod:`.lzf`, :mod:`.crc64`. Files: :mod:`.file` over :mod:`.chunk_reader` and
:mod:`.walk`, and :mod:`.older` for what older versions cannot hold.
"""
