"""Export records to files, databases and object storage."""
