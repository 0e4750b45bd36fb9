"""Tests of consumers."""
