"""Backends: where the shared state of limits is stored. Redis needs an extra."""
