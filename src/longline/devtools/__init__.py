"""Tools for authors of sources: check a page, plan a run, propose a manifest."""
