"""Schedules: their definitions, when they are due, and what is decided about each occurrence."""
