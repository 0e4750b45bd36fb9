"""A consumer and how it is kept.

Invariants: `config` is what was last kept; the consumer itself follows it.
"""

import contextlib
import logging
from dataclasses import dataclass

from strandline.broker.api.consumer_config import ConsumerConfig
from strandline.broker.api.error_text import for_log
from strandline.broker.consumers.consumer import Consumer
from strandline.broker.consumers.state import ConsumerState
from strandline.errors import StrandlineError

logger = logging.getLogger("strandline.broker")


@dataclass(slots=True)
class Entry:
    """A consumer, and how it is kept; `config` is what is shown."""

    consumer: Consumer
    config: ConsumerConfig
    created_ns: int
    state: ConsumerState
    is_kept: bool

    def let_go(self, reason: str) -> None:
        """Close the consumer and what is kept of it; what goes wrong is logged, and keeps nobody else from closing."""
        try:
            with contextlib.closing(self.state):
                self.consumer.close(reason)
        except Exception as error:  # noqa: BLE001 - whatever it is
            self._tell(error)

    def _tell(self, error: Exception) -> None:
        trace = None if isinstance(error, StrandlineError) else error
        logger.error("consumer %s could not be closed: %s", self.consumer.name, for_log(error), exc_info=trace)
