"""Tests of streams that copy others."""
