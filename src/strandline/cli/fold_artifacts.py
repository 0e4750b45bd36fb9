"""`strandline fold artifacts`: the artifacts that are published at an address, and whether a log continues them."""

import asyncio
from collections.abc import Iterator

from strandline.artifacts import NoArtifact, PublishedArtifacts, log_continues
from strandline.cli.artifact_options import ArtifactsAddress, artifacts_at, manifest_record
from strandline.cli.fold_options import (
    BucketOption,
    Creds,
    Timeout,
    TlsCa,
    TlsCert,
    TlsKey,
    bucket_retention,
    connection_settings,
)
from strandline.cli.output import AsJson, Record, emit_rows
from strandline.clock import SystemClock
from strandline.kv import Retention


def artifacts_(
    address: ArtifactsAddress,
    bucket: BucketOption = None,
    creds: Creds = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    timeout_s: Timeout = 30.0,
    as_json: AsJson = False,
) -> None:
    """List the artifacts at an address, oldest first; with --bucket, also whether its log continues them.

    A new fold is made of the newest one. Older ones are there until `fold prune` or a later export removes them.
    """
    retention = None
    if bucket is not None:
        settings = connection_settings(creds, tls_ca, tls_cert, tls_key, timeout_s)
        _, retention = asyncio.run(bucket_retention(bucket, settings))
    with artifacts_at(address, is_read_only=True) as artifacts:
        rows = list(_rows(artifacts, retention))
        if not rows:
            raise NoArtifact(address, "there is no artifact")
    emit_rows(rows, as_json=as_json)


def _rows(artifacts: PublishedArtifacts, retention: Retention | None) -> Iterator[Record]:
    pointer = artifacts.pointer()
    newest = None if pointer is None else artifacts.newest()
    for manifest in artifacts.manifests():
        row = {**manifest_record(manifest), "newest": manifest == newest}
        if retention is not None:
            continuity = log_continues(manifest, retention, SystemClock().now_ns())
            row |= {"continues": continuity.continues, "because": continuity.reason}
        yield row
