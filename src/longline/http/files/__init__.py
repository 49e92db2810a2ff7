"""Files of records: received from sites, and stored by their content."""
