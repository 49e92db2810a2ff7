"""Tools for those who write sources: look at one page, plan a run, propose a manifest."""
