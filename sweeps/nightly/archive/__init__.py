"""What is kept of the nights: their directory, results, baseline, history."""
