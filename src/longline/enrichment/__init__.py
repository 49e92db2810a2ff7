"""Enriching: what a machine is asked about records, in a phase of its own, after collection."""
