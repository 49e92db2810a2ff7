"""Proxies: the shared pool, the choice of one for a request, and sessions."""
