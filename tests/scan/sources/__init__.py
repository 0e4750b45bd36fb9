"""Tests of what can be scanned."""
