"""Servers die under load, and power is lost: what was acknowledged is there, once and in order."""
