"""The pages of the dashboard: each module here is one subject, and `app.py` lists them.

A module has a `router` with its pages and actions, and may have `LIVE`: the parts of its pages that
are sent again while someone looks.
"""
