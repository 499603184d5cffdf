"""Decodes the value in a DUMP payload, for :class:`kinds.Restore`."""

from __future__ import annotations

from anabranch.effects import kinds
from anabranch.keyspace.values import ListValue, SetValue, StringValue, Value
from anabranch.scheduling import Steps


def value_of(effect: kinds.Restore, *, is_limited: bool = False) -> Steps[Value]:
    """The value, in short steps; raises :class:`anabranch.rdb.errors.PayloadError`.

    ``is_limited`` is for payloads that were not accepted yet.
    """
    # Few servers restore anything: the others do not pay for the import.
    from anabranch.rdb.payload import decode_payload_steps  # noqa: PLC0415
    from anabranch.stream.image import StreamImage  # noqa: PLC0415
    from anabranch.stream.image_conversion import ImageLoader  # noqa: PLC0415

    maker = ImageLoader(effect.now_ms, effect.idmp_duration_s, effect.idmp_maxsize)
    decoded = yield from decode_payload_steps(effect.payload, maker.add_node, is_limited=is_limited)
    if isinstance(decoded, StreamImage):
        return (yield from maker.finish(decoded))
    if isinstance(decoded, bytes):
        return StringValue(decoded)
    if isinstance(decoded, list):
        return ListValue(decoded)
    value = SetValue()
    value.members = decoded
    return value
