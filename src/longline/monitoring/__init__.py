"""What is seen from outside: logs, metrics, health, alerts and reports."""
