"""Sources: the interface, how one is found by name, and the catalogue of those built in."""
