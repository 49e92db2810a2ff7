"""Alerts: rules that find what is wrong, the life of an alert, and its channels."""
