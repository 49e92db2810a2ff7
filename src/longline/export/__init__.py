"""Records as files, a file a format."""
