"""The server: one process that runs launches, fires schedules and delivers events."""
