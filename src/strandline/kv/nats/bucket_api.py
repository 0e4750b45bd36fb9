"""The requests of one bucket: JetStream API calls and publishes, with answers as values or typed errors.

Invariants: every refusal is told by its code. A read that is lost changed nothing and says `NoAnswer` or
`ConnectionDropped`; it is asked again within its time limit. A write that is lost says `AnswerLost`. One that had
no listener was not done, so it is sent again until the time limit: a bucket whose leader has died has no listener
until there is a new one.
"""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from strandline.errors import FormatError
from strandline.kv.config import StoreConfig
from strandline.kv.errors import AnswerLost, BucketExists, BucketNotFound, error_from_code
from strandline.kv.nats.layout import format_stream_differences, stream_config, stream_name
from strandline.nats.errors import ELECTING_CODES, NOT_FOUND_CODES, ConnectionDropped, JetStreamDisabled, NoAnswer
from strandline.nats.requests import NoListener, RequestTransport, Unanswered
from strandline.nats.streams import StreamState, parse_answer, parse_stream_info

LISTEN_AGAIN_S = 0.1
ASKS_AGAIN_S = 2.0
MORE_PATIENCE = 1.25
NO_MESSAGE = 10037


class Refused(Exception):
    """The server's answer is an error; `code` tells which."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(description)
        self.code = code
        self.description = description


class BucketApi:
    """The requests of one bucket; `link` returns the connection's transport or raises `NotConnected`."""

    def __init__(self, link: Callable[[], RequestTransport], bucket: str) -> None:
        self._link = link
        self.bucket = bucket

    async def read(self, call: str, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer of a call of the API that changes nothing, `STREAM.INFO.x` say; `Refused` by its code."""
        link = self._link()
        give_up = time.monotonic() + link.settings.timeout_s
        patience_s = ASKS_AGAIN_S
        while True:
            left_s = give_up - time.monotonic()
            try:
                return _accepted(await self._ask(link, call, request, min(patience_s, left_s)))
            except Unanswered as lost:
                if lost.waited_s is None:
                    raise ConnectionDropped from lost
                if left_s <= patience_s:
                    raise NoAnswer(call, link.settings.timeout_s) from lost
            except Refused as refused:
                if refused.code not in ELECTING_CODES or left_s <= LISTEN_AGAIN_S:
                    raise
                await asyncio.sleep(LISTEN_AGAIN_S)
            patience_s *= MORE_PATIENCE  # a leader that has died never answers; a busy one needs its time

    async def change(self, call: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of a call of the API that changes the bucket; `Refused` by its code."""
        link = self._link()
        try:
            answer = await self._ask(link, call, request)
        except Unanswered as lost:
            raise AnswerLost(self.bucket, "bucket") from lost
        return _accepted(answer)

    async def publish(self, subject: str, key: str, value: bytes, headers: Mapping[str, str]) -> int:
        """Write a message and return its revision; typed errors for what the server refuses."""
        link = self._link()
        give_up = time.monotonic() + link.settings.timeout_s
        while True:
            try:
                return _revision(await link.request(subject, value, headers))
            except Refused as refused:
                told = refused.code, refused.description
                raise error_from_code(*told, bucket=self.bucket, key=key, size=len(value)) from None
            except Unanswered as lost:
                raise AnswerLost(key) from lost
            except NoListener as error:
                await self.info()
                if time.monotonic() >= give_up:
                    raise NoAnswer(f"the write of key {key!r}", link.settings.timeout_s) from error
                await asyncio.sleep(LISTEN_AGAIN_S)

    async def info(self, *, gone_s: float = 0.0) -> StreamState:
        """Return what the bucket's stream says of itself; `BucketNotFound` if it seems to be gone for so long."""
        give_up = time.monotonic() + gone_s
        while True:
            try:
                return parse_stream_info(await self.read(f"STREAM.INFO.{stream_name(self.bucket)}"))
            except Refused as refused:
                if refused.code not in NOT_FOUND_CODES or time.monotonic() >= give_up:
                    raise error_from_code(refused.code, refused.description, bucket=self.bucket) from None
            await asyncio.sleep(LISTEN_AGAIN_S)

    async def _ask(
        self, link: RequestTransport, call: str, request: Mapping[str, Any] | None, limit_s: float | None = None
    ) -> bytes:
        payload = json.dumps(request).encode() if request is not None else b""
        try:
            return await link.request(f"{link.settings.api_prefix}.{call}", payload, limit_s=limit_s)
        except NoListener as error:
            raise JetStreamDisabled from error


async def open_bucket(api: BucketApi, config: StoreConfig | None) -> StreamState:
    """Return a bucket's stream; it is made if there is none and a config is given, else `BucketNotFound`.

    If there is one, and its settings are not those of the config, `BucketExists` names the differences.
    """
    try:
        info = await api.info()
    except BucketNotFound:
        if config is None:
            raise
        info = await _create(api, config)
    if config is not None and (differences := format_stream_differences(config, info)):
        raise BucketExists(api.bucket, differences)
    return info


async def _create(api: BucketApi, config: StoreConfig) -> StreamState:
    """Create a bucket, and return its state: another client may have been first."""
    try:
        await api.change(f"STREAM.CREATE.{stream_name(api.bucket)}", stream_config(api.bucket, config))
    except Refused as refused:
        try:
            return await api.info()
        except BucketNotFound:
            raise error_from_code(refused.code, refused.description, bucket=api.bucket) from None
    return await api.info()


def _revision(answer: bytes) -> int:
    revision = _accepted(answer).get("seq")
    if not isinstance(revision, int) or not revision:
        raise FormatError("the server's answer to a write", "it has no sequence")
    return revision


def _accepted(answer: bytes) -> dict[str, Any]:
    told = parse_answer(answer)
    error = told.get("error")
    if error:
        raise Refused(int(error.get("err_code", 0)), str(error.get("description", "")))
    return told
