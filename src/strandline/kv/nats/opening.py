"""A bucket by its name: found, made if there is none, and refused if it is not what was asked for.

Invariants: of two who make the same bucket at once, both have it, or the one whose settings differ is told so.
"""

from strandline.kv.config import StoreConfig
from strandline.kv.errors import BucketExists, BucketNotFound, error_from_code
from strandline.kv.nats.calls import Calls, Refused
from strandline.kv.nats.streams import StreamState, format_stream_differences, stream_config, stream_name


async def open_bucket(calls: Calls, config: StoreConfig | None) -> StreamState:
    """Return a bucket's stream; it is made if there is none and a config is given, else `BucketNotFound`.

    If there is one, and its settings are not those of the config, `BucketExists` names the differences.
    """
    try:
        info = await calls.info()
    except BucketNotFound:
        if config is None:
            raise
        info = await _create(calls, config)
    if config is not None and (differences := format_stream_differences(config, info)):
        raise BucketExists(calls.bucket, differences)
    return info


async def _create(calls: Calls, config: StoreConfig) -> StreamState:
    """Create a bucket, and return what is there: somebody else may have been first."""
    try:
        await calls.change(f"STREAM.CREATE.{stream_name(calls.bucket)}", stream_config(calls.bucket, config))
    except Refused as refused:
        try:
            return await calls.info()
        except BucketNotFound:
            raise error_from_code(refused.code, refused.description, bucket=calls.bucket) from None
    return await calls.info()
