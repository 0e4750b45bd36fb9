"""What the tests of streams share: streams and buckets of a real server, and their readers as Spark would call them."""

import base64
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self, cast

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from strandline.nats.jetstream import JetStreamApi
from strandline.nats.settings import NatsSettings
from strandline.nats.socket import NatsSocket
from strandline.nats.streams import StreamState
from strandline.spark.logs.readers import LogBatchReader, LogStreamReader
from strandline.spark.source import StrandlineSource
from strandline.spark.streams.columns import DDL
from strandline.spark.streams.options import StreamOptions, Target, parse_batch_options, parse_stream_options
from strandline.wire import format_headers
from tests.waiting import PATIENCE_S


class ServerLog:
    """A stream or bucket of a server, changed as people would change it."""

    def __init__(self, url: str, target: Target, **config: object) -> None:
        self.url = url
        self.target = target
        self.settings = NatsSettings(url)
        self.socket = NatsSocket.connect(self.settings)
        self.config = config
        self.make()

    @property
    def name(self) -> str:
        """Return the name of the stream."""
        return self.target.stream

    @property
    def options(self) -> dict[str, str]:
        """Return what names it to Spark."""
        return {"servers": self.url, self.target.kind: self.target.name}

    def make(self) -> None:
        """Make it."""
        if self.target.kind == "stream":
            config: dict[str, object] = {"subjects": [f"{self.name}.>"]}
        else:
            config = {
                "subjects": [f"$KV.{self.target.name}.>"],
                "max_msgs_per_subject": 1,
                "allow_rollup_hdrs": True,
                "deny_delete": True,
                "discard": "new",
                "allow_direct": True,
            }
        self.ask(f"STREAM.CREATE.{self.name}", {"name": self.name, **config, **self.config})

    def make_again(self) -> None:
        """Delete it, and make another one of the same name."""
        self.ask(f"STREAM.DELETE.{self.name}")
        self.make()

    def ask(self, subject: str, request: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """Ask the JetStream API."""
        return JetStreamApi(self.socket, "$JS.API").call(subject, request, self.name)

    def state(self) -> StreamState:
        """Return what it holds."""
        return JetStreamApi(self.socket, "$JS.API").stream(self.name)

    def publish(self, subject: str, data: bytes, headers: Iterable[tuple[str, str]] = ()) -> int:
        """Publish below the stream's name, or a key of the bucket; return its sequence."""
        start = f"$KV.{self.target.name}." if self.target.kind == "bucket" else f"{self.name}."
        pairs = list(headers)
        reply = self.socket.request(start + subject, data, format_headers(pairs) if pairs else b"")
        answer = json.loads(reply.payload)
        assert "error" not in answer, answer
        return int(answer["seq"])

    def fill(self, count: int, *, subjects: int = 10) -> None:
        """Publish numbered values to some subjects, quickly."""
        begin = self.state().last
        start = f"$KV.{self.target.name}." if self.target.kind == "bucket" else f"{self.name}."
        frames = [
            b"PUB %sk%d %d\r\n%s\r\n"
            % (start.encode(), number % subjects, len(b"value %d" % number), b"value %d" % number)
            for number in range(begin + 1, begin + count + 1)
        ]
        for at in range(0, count, 2000):
            self.socket.send(b"".join(frames[at : at + 2000]))
            self.socket.flush()
        while self.state().last < begin + count:
            pass

    def take_away(self, key: str, *, purge: bool = False) -> int:
        """Delete or purge a key of a bucket."""
        headers = [("KV-Operation", "PURGE"), ("Nats-Rollup", "sub")] if purge else [("KV-Operation", "DEL")]
        return self.publish(key, b"", headers)

    def delete_message(self, sequence: int) -> None:
        """Delete one message."""
        self.ask(f"STREAM.MSG.DELETE.{self.name}", {"seq": sequence})

    def purge(self, below: int | None = None) -> None:
        """Remove everything, or what is below a sequence."""
        self.ask(f"STREAM.PURGE.{self.name}", {} if below is None else {"seq": below})

    def update(self, **config: object) -> None:
        """Change its settings."""
        now = dict(self.ask(f"STREAM.INFO.{self.name}")["config"])
        self.ask(f"STREAM.UPDATE.{self.name}", {**now, **config})

    def messages(self) -> list[tuple[str, bytes]]:
        """Return subjects and data of all messages, one by one, without the format."""
        state, found = self.state(), []
        for sequence in range(state.first, state.last + 1):
            try:
                message = self.ask(f"STREAM.MSG.GET.{self.name}", {"seq": sequence})["message"]
            except Exception as error:
                if getattr(error, "code", 0) == 10037:
                    continue
                raise
            found.append((message["subject"], base64.b64decode(message.get("data", ""))))
        return found

    def datas(self) -> list[bytes]:
        """Return the data of all messages."""
        return [data for _, data in self.messages()]

    def has_no_consumers(self) -> bool:
        """Tell whether none is left, once the last was let go; the server itself drops one after five minutes."""
        give_up = time.monotonic() + PATIENCE_S
        while self.ask(f"CONSUMER.NAMES.{self.name}").get("consumers"):
            if time.monotonic() > give_up:
                return False
            time.sleep(0.01)
        return True

    def another(self) -> "ServerLog":
        """Return the same over a connection of its own."""
        world = ServerLog.__new__(ServerLog)
        world.__dict__.update({**self.__dict__, "socket": NatsSocket.connect(self.settings)})
        return world

    def close(self) -> None:
        """Disconnect; the stream goes with its server."""
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def numbered(begin: int, end: int) -> list[bytes]:
    """Return values that tell their own sequence."""
    return [b"value %d" % number for number in range(begin, end)]


def batch_options(world: ServerLog, **options: object) -> StreamOptions:
    """Return the options of a bounded read."""
    return parse_batch_options(_given(world, options), world.target.kind)


def stream_options(world: ServerLog, **options: object) -> StreamOptions:
    """Return the options of a streaming read."""
    return parse_stream_options(_given(world, options), world.target.kind)


def batch_reader(world: ServerLog, ddl: str | None = None, **options: object) -> LogBatchReader:
    """Return a bounded reader as a planner makes it."""
    return cast("LogBatchReader", _source(world, options).reader(schema(ddl or DDL[world.target.kind])))


def stream_reader(world: ServerLog, ddl: str | None = None, **options: object) -> LogStreamReader:
    """Return a streaming reader as the runner makes it."""
    return cast("LogStreamReader", _source(world, options).streamReader(schema(ddl or DDL[world.target.kind])))


def schema(ddl: str) -> StructType:
    """Return a schema as Spark hands it over, without a session."""
    kinds = {
        "BIGINT": LongType(),
        "BINARY": BinaryType(),
        "TIMESTAMP": TimestampType(),
        "STRING": StringType(),
        "MAP<STRING,ARRAY<STRING>>": MapType(StringType(), ArrayType(StringType())),
    }
    columns = [column.split() for column in ddl.replace("STRING, ARRAY", "STRING,ARRAY").split(", ")]
    return StructType([StructField(name, kinds[kind], not rest) for name, kind, *rest in columns])


def rows_of(reader: LogBatchReader | LogStreamReader, parts: Sequence[Any]) -> pa.Table:
    """Read partitions one after another, as executors would."""
    batches = [batch for part in parts for batch in reader.read(part)]
    return pa.Table.from_batches(batches) if batches else pa.table({})


def column_of(reader: LogBatchReader | LogStreamReader, parts: Sequence[Any], name: str) -> list[Any]:
    """Return a column that partitions yield, in order."""
    table = rows_of(reader, parts)
    return cast("list[Any]", table[name].to_pylist()) if table.num_columns else []


def _source(world: ServerLog, options: Mapping[str, object]) -> StrandlineSource:
    return StrandlineSource(_given(world, options))


def _given(world: ServerLog, options: Mapping[str, object]) -> dict[str, str]:
    return {**world.options, **{name.lower(): str(value) for name, value in options.items()}}
