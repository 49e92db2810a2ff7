"""The items of jobs: queue, leases, outcomes, failures, chunks, tasks."""
