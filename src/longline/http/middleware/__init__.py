"""The middlewares of the request chain, a file each; chain.py has their order."""
