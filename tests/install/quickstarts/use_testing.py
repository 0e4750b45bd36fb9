"""Check a queue storage against its contract."""

from contextlib import nullcontext

from strandline.queue import MemoryStorage, QueueConfig
from strandline.testing import DELIVERIES_MAX, check_queue_storage

check_queue_storage(lambda clock: nullcontext(MemoryStorage(QueueConfig(deliveries_max=DELIVERIES_MAX), clock=clock)))
