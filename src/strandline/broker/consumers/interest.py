"""Who still wants a message: what goes from a stream as consumers are done with it.

Invariants: with interest retention a message stays while some consumer wants it, with a work queue until the consumer
of its subject is done with it, and otherwise nothing here lets it go. Everything is decided from what the consumers
say now, so a crash between an acknowledgement and the removal is made good when the stream is opened.
"""

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from strandline.broker.api.config import Retention
from strandline.broker.api.consumer_config import ConsumerConfig
from strandline.broker.streams.arrays import Flags, Words, among
from strandline.broker.streams.stream import Stream

EVERYTHING = 2**62


class Wanting(Protocol):
    """As much of a consumer as matters here."""

    @property
    def config(self) -> ConsumerConfig:
        """What it is told about itself."""

    def wants(self, sequences: Words) -> Flags:
        """Tell which messages it is not done with."""

    def finished(self, first: int, last: int) -> Words:
        """Return the messages between two sequences that it had and is done with."""


def follow_interest(stream: Stream, consumers: Iterable[Wanting]) -> None:
    """Tell a stream what its consumers want, so that it need not store what nobody does."""
    if stream.config.retention is Retention.INTEREST:
        wanted = [*(consumer.config.filters for consumer in consumers), *(claim.filters for claim in stream.claims)]
        stream.set_interest(tuple(map(stream.filter, wanted)))
    else:
        stream.set_interest(None)


def release(stream: Stream, done: Words, others: Iterable[Wanting]) -> None:
    """Let go of messages that one consumer is done with and no other wants."""
    if stream.config.retention is Retention.LIMITS or not len(done):
        return
    if stream.config.retention is Retention.INTEREST:
        done = done[~_wanted(done, others)]
    if stream.claims:
        done = done[~_claimed(stream, done)]
    if len(done):
        stream.remove(done)


def release_copied(stream: Stream, held: Words, consumers: Iterable[Wanting]) -> None:
    """Let go of messages that a copy holds now, if only that kept them."""
    consumers = list(consumers)
    held = held[stream.is_live(held)]
    if stream.config.retention is Retention.WORK_QUEUE and len(held):
        finished = [each.finished(int(held[0]), int(held[-1])) for each in consumers]
        held = held[among(held, np.concatenate([held[:0], *finished]))]
    release(stream, held, consumers)


def _claimed(stream: Stream, sequences: Words) -> Flags:
    wanted = np.zeros(len(sequences), bool)
    for claim in stream.claims:
        wanted |= claim.wants(sequences)
    return wanted


def reconcile(stream: Stream, consumers: Iterable[Wanting]) -> None:
    """Let go of everything that nobody wants any more, after consumers or the retention changed, or after a crash."""
    retention = stream.config.retention
    if retention is Retention.INTEREST:
        live = stream.next_sequences(stream.filter(()), stream.first_seq, EVERYTHING)
        unwanted = live[~(_wanted(live, consumers) | _claimed(stream, live))]
        if len(unwanted):
            stream.remove(unwanted)
    elif retention is Retention.WORK_QUEUE:
        for consumer in consumers:
            finished = consumer.finished(stream.first_seq, EVERYTHING)
            finished = finished[~_claimed(stream, finished)] if len(finished) else finished
            if len(finished):
                stream.remove(finished)


def _wanted(sequences: Words, consumers: Iterable[Wanting]) -> Flags:
    wanted = np.zeros(len(sequences), bool)
    for consumer in consumers:
        wanted |= consumer.wants(sequences)
    return wanted
