"""Kinds of authentication, which `middleware/authentication.py` applies."""
