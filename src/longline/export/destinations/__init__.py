"""Where exports go: files, S3, PostgreSQL."""
