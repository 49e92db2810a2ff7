"""The web interface: HTTP API and dashboard of a home, and who may use them."""
