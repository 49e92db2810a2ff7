"""The database: jobs, items and their leases, records, events, statistics."""
