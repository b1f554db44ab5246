"""Run the same suite every night, compare it with the accepted baseline, judge and report."""
