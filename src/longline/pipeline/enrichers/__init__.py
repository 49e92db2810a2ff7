"""Built-in enrichers, which compute fields from the record and a local table."""
