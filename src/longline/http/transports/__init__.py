"""The end of the chain: what really sends a request."""
