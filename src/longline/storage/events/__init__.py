"""The event log, its projections, subscribers and webhooks."""
