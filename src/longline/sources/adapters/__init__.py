"""From a manifest, or from existing code, to a source."""
