"""Tests of lakes: a pipeline's state as objects."""
