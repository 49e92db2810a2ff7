"""Commands that run jobs: run, resume, retry, pause, cancel, plan."""
