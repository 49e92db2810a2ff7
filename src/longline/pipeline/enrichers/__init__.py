"""Enrichers that need nobody: what they add is computed from the record and a local table."""
