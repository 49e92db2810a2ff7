"""Commands for sites: robots, limits, breakers, cache, archive."""
