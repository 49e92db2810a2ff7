"""The spiders: items on pages, links to follow, a login."""
