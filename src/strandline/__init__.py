"""Strandline: durable progress over logs.

One promise runs through everything: a cursor never names work that is not durable. Each package keeps it in its own
terms; the table in ``ARCHITECTURE.md`` lists them, and ``docs/guarantees.md`` names the test behind each promise.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
