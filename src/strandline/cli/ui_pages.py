"""The site of `strandline ui`: the parts that its options name, served until a signal ends it."""

import getpass
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from strandline.alarms import AlarmWatch, Condition, Outbox
from strandline.alarms.alarm import cleaned
from strandline.cli.ending_signals import ending_signals
from strandline.cli.output import print_line, to_json
from strandline.cli.scan_alarms import STOPPED
from strandline.cli.state_options import DEFAULT_STATE
from strandline.errors import InvalidInput
from strandline.nats import NatsSettings
from strandline.scan.state import StateMissing, open_state
from strandline.web import Listening, Parts, Site, access_of, bind, serving
from strandline.web.parts.folds import FoldPart
from strandline.web.parts.journals import JournalPart
from strandline.web.parts.replicas import ReplicaPart
from strandline.web.parts.scans import ScanPart
from strandline.web.parts.streams import ServerPart


@dataclass(frozen=True)
class Shown:
    """The options that name what is shown."""

    state: str | None
    tenant: str
    key_file: Path | None
    coordination: str | None
    servers: Sequence[str]
    nats: NatsSettings
    """How servers and buckets are connected to; each address says where."""

    journals: Sequence[Path]
    folds: Sequence[str]
    replicas: Sequence[str]
    demo: bool


def serve_pages(
    shown: Shown, listening: Listening, alarms: AlarmWatch, *, allow_changes: bool, by: str | None, as_json: bool
) -> None:
    """Serve the pages, print their address, and wait for a signal; `alarms` tell of scans that were killed."""
    listening.check()
    with ExitStack() as stack, ending_signals() as ending:
        parts = stack.enter_context(_parts(shown))
        if parts.scans is not None and not shown.demo:
            alarms.add(KilledScans(parts.scans, alarms.outbox))
        stack.enter_context(alarms)
        bound = bind(listening)
        access = access_of(listening, bound.getsockname()[1], allow_changes=allow_changes)
        site = Site(access, parts, who=by or _user())
        stack.enter_context(serving(site, listening, bound))
        if as_json:
            print_line(to_json({"address": access.address, "token": access.token, "entry": access.entry}))
        else:
            print_line(f"Open {access.entry}")
            print("Ctrl-C ends it.", file=sys.stderr)
        ending.wait()


class KilledScans:
    """The alarm for scans that were killed: those tell nothing themselves.

    Its subject is its own, so that it resolves no alarm of a scan that told why it stopped; beside one, it is not
    raised.
    """

    def __init__(self, scans: ScanPart, outbox: Outbox) -> None:
        self._scans = scans
        self._outbox = outbox

    def __call__(self) -> Iterator[Condition]:
        """Yield the problem while there is one, and that it is over when a worker goes on or nothing is left to do."""
        facts, address = self._scans.value, str(self._scans.state.address)
        if facts is None:
            return
        subject = f"unfinished scans of {address}"
        if facts.left and not self._has_told(address):
            problem = (
                "a scan is not finished, and no worker has continued it for a minute: "
                "it was killed, or its machine is gone, or it waits for machines"
            )
            yield Condition(STOPPED, subject, problem)
        elif not facts.left and facts.is_sure:
            yield Condition(STOPPED, subject, None)

    def _has_told(self, address: str) -> bool:
        """Return whether a scan told itself that it stopped."""
        told = cleaned(Condition(STOPPED, address, None))
        return any(
            one.is_firing and (one.kind, one.subject) == (told.kind, told.subject) for one in self._outbox.alarms()
        )


@contextmanager
def _parts(shown: Shown) -> Iterator[Parts]:
    if shown.demo:
        from strandline.cli.ui_demo import demo_parts  # noqa: PLC0415 - it needs every extra

        print("Making something to show…", file=sys.stderr)
        with demo_parts() as parts:
            yield parts
        return
    with _scans(shown) as scans:
        yield Parts(
            scans=scans,
            servers=[ServerPart(replace(shown.nats, servers=url)) for url in shown.servers],
            journals=[JournalPart(folder) for folder in shown.journals],
            folds=[_fold(text, shown.nats) for text in shown.folds],
            replicas=[ReplicaPart(address) for address in shown.replicas],
        )


@contextmanager
def _scans(shown: Shown) -> Iterator[ScanPart | None]:
    with ExitStack() as stack:
        scans = None
        try:
            opened = open_state(
                shown.state or DEFAULT_STATE,
                tenant=shown.tenant,
                key_file=shown.key_file,
                coordination=shown.coordination,
            )
            scans = ScanPart(stack.enter_context(opened))
        except StateMissing:
            if shown.state is not None:
                raise
        yield scans


def _fold(text: str, nats: NatsSettings) -> FoldPart:
    """Return a fold from `PATH`, `PATH=BUCKET` or `PATH=BUCKET=ARTIFACTS`."""
    path, *rest = text.split("=")
    if not path or len(rest) > 2:  # noqa: PLR2004 - a bucket and an address of artifacts
        raise InvalidInput(f"--fold {text}: not a fold", hint="give PATH, PATH=BUCKET or PATH=BUCKET=ARTIFACTS")
    bucket, artifacts = (*rest, "", "")[:2]
    return FoldPart(Path(path), bucket or None, artifacts or None, nats)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
