"""The cluster: the same jobs, worked on by many processes that Celery wakes."""
