"""Clients that send nonsense or too much, or do not read: the right error, bounded memory, nobody else disturbed."""
