"""Tasks that go wrong, or slow, in their first attempt, in the middle of their rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource


def broken_source(kind: str, port: int, rows: int) -> type[DataSource]:
    """``format("broken")``: writes as ours does, but for an accident after so many rows.

    `kind`: ``error`` raises, ``hopeless`` does so in every attempt, ``kill`` kills the worker that
    writes, ``shuffled`` raises too and brings the rows in another order in every attempt. Accidents
    are counted in key ``accidents``.
    All of it is within this function, so that Spark ships it by value: workers do not know tests.
    """
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

    from anabranch.spark.source import AnabranchSource

    def pieces(iterator: Iterator[Any]) -> Iterator[Any]:
        import os
        import random
        import signal
        import socket

        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        attempt = context.attemptNumber()
        table = pa.Table.from_batches(list(iterator))
        if kind == "shuffled":
            order = list(range(table.num_rows))
            random.Random(attempt).shuffle(order)
            table = table.take(pa.array(order))
        given = 0
        for piece in table.combine_chunks().to_batches(max_chunksize=100):
            yield piece
            given += piece.num_rows
            if (attempt == 0 or kind == "hopeless") and given >= rows:
                with socket.create_connection(("127.0.0.1", port)) as wire:
                    wire.sendall(b"INCR accidents\r\n")
                    assert wire.recv(64).startswith(b":")
                if kind == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise RuntimeError("an accident")

    class BrokenBatch(DataSourceArrowWriter):
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def write(self, iterator: Iterator[Any]) -> Any:
            return self.inner.write(pieces(iterator))

    class BrokenStream(DataSourceStreamArrowWriter):
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def write(self, iterator: Iterator[Any]) -> Any:
            return self.inner.write(pieces(iterator))

        def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's
            self.inner.commit(messages, batchId)

    class BrokenSource(AnabranchSource):
        @classmethod
        def name(cls) -> str:
            return "broken"

        def writer(self, schema: Any, overwrite: bool) -> Any:
            return BrokenBatch(AnabranchSource.writer(self, schema, overwrite))

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark's
            return BrokenStream(AnabranchSource.streamWriter(self, schema, overwrite))

    return BrokenSource


def dying_source(port: int, rows: int) -> type[DataSource]:
    """``format("dying")``: reads as ours does, but for the first attempt of each task, whose worker
    is killed after so many rows; key ``accidents`` counts them.
    """
    from anabranch.spark.reading.readers import BatchReader, StreamReader
    from anabranch.spark.source import AnabranchSource

    def pieces(iterator: Iterator[Any]) -> Iterator[Any]:
        import os
        import signal
        import socket

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        given = 0
        for batch in iterator:
            for at in range(0, batch.num_rows, 50):
                if context.attemptNumber() == 0 and given >= rows:
                    with socket.create_connection(("127.0.0.1", port)) as wire:
                        wire.sendall(b"INCR accidents\r\n")
                        assert wire.recv(64).startswith(b":")
                    os.kill(os.getpid(), signal.SIGKILL)
                piece = batch.slice(at, 50)
                yield piece
                given += piece.num_rows

    class DyingBatch(BatchReader):
        def read(self, partition: Any) -> Iterator[Any]:
            return pieces(super().read(partition))

    class DyingStream(StreamReader):
        def read(self, partition: Any) -> Iterator[Any]:
            return pieces(super().read(partition))

    class DyingSource(AnabranchSource):
        @classmethod
        def name(cls) -> str:
            return "dying"

        def reader(self, schema: Any) -> Any:
            sound: Any = AnabranchSource.reader(self, schema)
            return DyingBatch(sound.options, sound.projection)

        def streamReader(self, schema: Any) -> Any:  # noqa: N802 - Spark's
            sound: Any = AnabranchSource.streamReader(self, schema)
            return DyingStream(sound.options, sound.projection)

    return DyingSource


def straggling_source(port: int) -> type[DataSource]:
    """``format("straggling")``: writes as ours does, but the first attempt of partition 0 waits in
    the middle of its rows until another attempt is there, and both go on at the same time.

    Lists of the server tell what happened: ``begun`` and ``done`` have an entry, ``partition
    attempt``, for each attempt; ``met`` one for the attempt that the first one waits for.
    """
    from pyspark.sql.datasource import DataSourceArrowWriter

    from anabranch.spark.source import AnabranchSource

    def pieces(iterator: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        import redis
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        partition, attempt = context.partitionId(), context.attemptNumber()
        table = pa.Table.from_batches(list(iterator)).combine_chunks()
        with redis.Redis(port=port) as server:
            server.rpush("begun", f"{partition} {attempt}")
            for number, piece in enumerate(table.to_batches(max_chunksize=200)):
                yield piece
                if partition == 0 and number == 3:
                    if attempt:
                        server.rpush("met", attempt)
                    elif server.blpop(["met"], 60) is None:
                        raise RuntimeError("Spark began no other attempt")
            server.rpush("done", f"{partition} {attempt}")

    class StragglingBatch(DataSourceArrowWriter):
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def write(self, iterator: Iterator[Any]) -> Any:
            return self.inner.write(pieces(iterator))

    class StragglingSource(AnabranchSource):
        @classmethod
        def name(cls) -> str:
            return "straggling"

        def writer(self, schema: Any, overwrite: bool) -> Any:
            return StragglingBatch(AnabranchSource.writer(self, schema, overwrite))

    return StragglingSource
