"""Commands for a cluster: worker, up, down, status, db."""
