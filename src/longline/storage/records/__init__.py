"""Records: their versions, queries, profiles, matches and enrichment."""
