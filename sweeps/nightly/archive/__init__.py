"""What is kept of the nights: results, baseline, history, verdicts."""
