"""Middlewares of the request chain; `http/chain.py` has their order."""
