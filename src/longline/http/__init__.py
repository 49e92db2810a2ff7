"""The request chain, a file a link; `chain.py` says in which order they stand."""
