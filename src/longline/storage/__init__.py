"""What is kept, by one schema: jobs, items and their leases, records, events, statistics."""
