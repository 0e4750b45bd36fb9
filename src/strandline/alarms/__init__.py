"""Alarms: what needs a person reaches that person, once when it begins and once when it is over.

**Promise.** An alarm that was raised is on disk before anything is sent; each of its notices reaches every receiver at
least once, with an id that stays the same, whatever is killed meanwhile. No notice holds a byte of a secret.

    alarm       alarms, conditions and notices, and the decisions: raise, update, resolve; as pure functions
    outbox      alarms and undelivered notices in a folder, one file for each alarm
    signing     the signature of a webhook, and how a receiver verifies it
    receivers   a webhook, and a command to run
    delivery    notices to receivers, tried again with growing pauses
    watch       conditions of a running process, looked at again and again
    settings    the section `[alarms]`, as values

**How.** A part tells conditions: a kind, a subject, and a problem or None. Conditions are levels, not events: the state
on disk says whether a problem is new, known or over, so a process that starts again raises nothing twice and resolves
what is over. A receiver deduplicates by the id of a notice. `docs/formats/alarms.md` has the formats.

**Trade-offs.** A notice may come twice, never not at all: an answer that was lost counts as none. One process at a time
delivers for an outbox.
"""

from strandline.alarms.alarm import Alarm, Condition, Notice, Pending, observe
from strandline.alarms.delivery import Delivery
from strandline.alarms.outbox import Outbox
from strandline.alarms.receivers import CommandReceiver, Receiver, Webhook
from strandline.alarms.settings import AlarmSettings
from strandline.alarms.signing import sign, verify
from strandline.alarms.watch import AlarmWatch

__all__ = [
    "Alarm",
    "AlarmSettings",
    "AlarmWatch",
    "CommandReceiver",
    "Condition",
    "Delivery",
    "Notice",
    "Outbox",
    "Pending",
    "Receiver",
    "Webhook",
    "observe",
    "sign",
    "verify",
]
