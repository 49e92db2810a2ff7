"""`longline mcp`: tools with which agents read and, if allowed, change a home."""
