"""Sweeps over calibration methods: spec, search, records, tracking, report."""
