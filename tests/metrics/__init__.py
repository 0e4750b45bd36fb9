"""Tests of metrics and health."""
