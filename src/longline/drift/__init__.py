"""Detect that the data of a source has drifted: a changed layout, lost fields, odd values."""
