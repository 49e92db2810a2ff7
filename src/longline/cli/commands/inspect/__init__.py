"""Commands that show jobs: jobs, failures, checkpoints, report, top, drift."""
