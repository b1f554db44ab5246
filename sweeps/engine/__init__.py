"""From a validated spec to finished trials: the plan, the trial and its key, its evaluation."""
