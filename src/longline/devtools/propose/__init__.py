"""Propose a manifest for a page: its items, its further pages and its fields, tried first."""
