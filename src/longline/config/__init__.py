"""Settings of an installation and what a user says about one run."""
