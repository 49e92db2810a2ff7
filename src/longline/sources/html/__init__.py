"""HTML manifests as sources: discovery, pagination, items, fields."""
