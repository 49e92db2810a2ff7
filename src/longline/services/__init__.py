"""Starting and stopping what a cluster on one machine needs: Redis, PostgreSQL, workers."""
