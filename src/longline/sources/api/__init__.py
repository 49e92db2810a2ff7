"""API manifests as sources: requests, paging, records."""
