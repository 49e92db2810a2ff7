"""Stored log lines, alerts, reports, and totals for metrics."""
