"""Interest and work-queue retention: messages are removed when consumers are done with them.

Invariants: with interest retention a message stays while some consumer wants it; in a work queue, until the consumer of
its subject is done with it; with limits retention nothing is removed here. Everything is derived from the consumers'
current state, so a crash between an acknowledgement and the removal is repaired when the stream is opened.
"""

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from strandline.broker.api.config import Retention
from strandline.broker.api.consumer_config import ConsumerConfig
from strandline.broker.streams.arrays import Flags, Words, among
from strandline.broker.streams.stream import Stream

EVERYTHING = 2**62


class InterestedConsumer(Protocol):
    """The part of a consumer that retention needs."""

    @property
    def config(self) -> ConsumerConfig:
        """The configuration."""

    def wants(self, sequences: Words) -> Flags:
        """Tell which messages the consumer is not done with."""

    def finished(self, first: int, last: int) -> Words:
        """Return the messages between two sequences that the consumer is done with."""


def update_interest(stream: Stream, consumers: Iterable[InterestedConsumer]) -> None:
    """Set the interest of a stream's consumers, so that unwanted messages are not stored."""
    if stream.config.retention is Retention.INTEREST:
        wanted = [*(consumer.config.filters for consumer in consumers), *(claim.filters for claim in stream.claims)]
        stream.set_interest(tuple(map(stream.filter, wanted)))
    else:
        stream.set_interest(None)


def release(stream: Stream, done: Words, others: Iterable[InterestedConsumer]) -> None:
    """Remove messages that one consumer is done with and no other wants."""
    if stream.config.retention is Retention.LIMITS or not len(done):
        return
    if stream.config.retention is Retention.INTEREST:
        done = done[~_wanted(done, others)]
    if stream.claims:
        done = done[~_claimed(stream, done)]
    if len(done):
        stream.remove(done)


def release_copied(stream: Stream, held: Words, consumers: Iterable[InterestedConsumer]) -> None:
    """Remove messages that a copy holds now, if nothing else needs them."""
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


def reconcile(stream: Stream, consumers: Iterable[InterestedConsumer]) -> None:
    """Remove all unwanted messages, after consumers or the retention policy changed, or after a crash."""
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


def _wanted(sequences: Words, consumers: Iterable[InterestedConsumer]) -> Flags:
    wanted = np.zeros(len(sequences), bool)
    for consumer in consumers:
        wanted |= consumer.wants(sequences)
    return wanted
