"""Schedules, launches and flows."""
