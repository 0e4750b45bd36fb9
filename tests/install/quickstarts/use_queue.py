"""A queue: put, take, acknowledge."""

from strandline.queue import Queue

with Queue.open("jobs") as queue:
    queue.put(b"fetch the mail")
    for job in queue.take("workers", visibility_s=30):
        job.ack()
    [status] = queue.status()
    assert status.acked_until == 1
