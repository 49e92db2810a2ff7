"""Commands that watch a home: alerts, logs, metrics, reports, events."""
