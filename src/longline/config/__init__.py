"""Settings of an installation and of one run."""
