"""Commands for what runs by itself: schedules, flows, launches, the server."""
