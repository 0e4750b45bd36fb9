"""What a served queue says of itself to Prometheus and to probes."""

from collections.abc import Iterable

from strandline.errors import StrandlineError
from strandline.metrics import Health, Metric, MetricSource, Sample, gauge
from strandline.queue.durable import JournalStorage
from strandline.queue.queue import Queue

_PREFIX = "strandline_queue"


def queue_metrics(queue: Queue, name: str) -> MetricSource:
    """Return what tells how a queue is doing; `name` is its folder."""

    def metrics() -> Iterable[Metric]:
        groups = queue.status()
        rows = {
            "backlog_messages": ("Messages that a group has not acknowledged.", [each.backlog for each in groups]),
            "in_flight_messages": ("Messages that are being worked on.", [each.in_flight for each in groups]),
            "delayed_messages": ("Messages that were put off.", [each.waiting for each in groups]),
            "acked_until_offset": ("The offset below which all is done.", [each.acked_until for each in groups]),
        }
        for part, (text, values) in rows.items():
            samples = [
                Sample(value, {"queue": name, "group": each.group}) for each, value in zip(groups, values, strict=True)
            ]
            yield Metric(f"{_PREFIX}_{part}", "gauge", text, samples)
        storage = queue.storage
        if isinstance(storage, JournalStorage):
            journal = storage.messages
            yield gauge(f"{_PREFIX}_next_offset", "The offset of the next message.", journal.next_offset, queue=name)
            size, letters = journal.stored_bytes, storage.dead_letter_count
            yield gauge(f"{_PREFIX}_stored_bytes", "Bytes of the journal of messages.", size, queue=name)
            yield gauge(f"{_PREFIX}_dead_letters", "Messages that groups gave up on.", letters, queue=name)

    return metrics


def queue_health(queue: Queue) -> Health:
    """Return the checks of a queue: its journal takes messages."""

    def journal() -> str | None:
        storage = queue.storage
        if not isinstance(storage, JournalStorage):
            return None
        try:
            storage.messages.sync()
        except StrandlineError as error:
            return str(error)
        return None

    return Health(live={"journal": journal})
