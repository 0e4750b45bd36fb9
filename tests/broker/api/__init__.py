"""Tests of what the broker says."""
