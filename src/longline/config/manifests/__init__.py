"""Sources in files: what a user may write, a module a kind."""
