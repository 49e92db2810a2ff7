"""The request chain; `chain.py` has its order."""
