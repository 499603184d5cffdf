"""What a stream loses in an older RDB version, and the stream without it.

Times of a consumer's last successful read, which Redis 7.0 does not have either, are left out
without a message: otherwise every stream with consumers would have to be named. Late entries lose
nothing: no consumer has received them yet, and XAUTOCLAIM delivers them in either form.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from anabranch.rdb.kinds import StreamType
from anabranch.stream.image import ConsumerImage, GroupImage, StreamImage
from anabranch.stream.producer import DURATION_DEFAULT_S, MAXSIZE_DEFAULT

NACKED_CONSUMER: Final = b"nacked"
"""The consumer of entries without a consumer, in versions that do not have such entries."""


def losses(image: StreamImage, stream_type: StreamType) -> list[str]:
    """What ``stream_type`` cannot store, as text; empty if it can store everything."""
    return losses_of(
        stream_type,
        nacked=sum(len(group.nacked) - group.late for group in image.groups),
        iids=sum(len(producer.iids) for producer in image.producers),
        idmp_settings=(image.idmp_duration, image.idmp_maxsize),
    )


def losses_of(
    stream_type: StreamType,
    *,
    nacked: int,
    iids: int,
    idmp_settings: tuple[int | None, int | None],
) -> list[str]:
    """What ``stream_type`` cannot store of so many NACKed entries and idempotent IDs, as text.

    ``idmp_settings`` are duration and size. Counters of idempotent IDs that are all forgotten are
    no loss: they only inform.
    """
    lost = []
    if not stream_type.has_nacked and nacked:
        lost.append(f"{nacked} NACKed {'entry' if nacked == 1 else 'entries'}")
    if not stream_type.has_producers:
        if iids:
            lost.append(f"{iids} idempotent ID{'' if iids == 1 else 's'} and their counters")
        duration_s, maxsize = idmp_settings
        if duration_s not in (None, DURATION_DEFAULT_S) or maxsize not in (None, MAXSIZE_DEFAULT):
            lost.append("IDMP settings")
    return lost


def without_losses(image: StreamImage, stream_type: StreamType) -> StreamImage:
    """The stream without what ``stream_type`` cannot store.

    NACKed entries stay pending: the consumer :data:`NACKED_CONSUMER` gets them, so that XAUTOCLAIM
    finds them. Without it they would be lost.
    """
    if stream_type.has_nacked:
        return image
    return replace(image, groups=[_without_nacked(group) for group in image.groups])


def _without_nacked(group: GroupImage) -> GroupImage:
    if not group.nacked:
        return group
    consumers = group.consumers
    if all(consumer.name != NACKED_CONSUMER for consumer in consumers):
        consumers = sorted(
            [*consumers, ConsumerImage(NACKED_CONSUMER, 0, -1)], key=lambda consumer: consumer.name
        )
    pending = [
        item if item.consumer is not None else replace(item, consumer=NACKED_CONSUMER)
        for item in group.pending
    ]
    return replace(group, pending=pending, consumers=consumers, nacked=[])
