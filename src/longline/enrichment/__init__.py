"""Enrich stored records with language models or local enrichers, after collection."""
