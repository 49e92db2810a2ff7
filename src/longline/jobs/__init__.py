"""The life of a job: one try at an item, progress, checkpoints, reports."""
