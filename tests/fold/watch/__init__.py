"""Tests of watching a bucket into a fold."""
