"""Tests of the nightly verdict."""
