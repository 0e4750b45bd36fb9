"""Tests of what the broker keeps."""
