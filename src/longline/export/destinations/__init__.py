"""Export destinations other than files: S3 and PostgreSQL."""
