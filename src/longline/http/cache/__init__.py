"""The HTTP cache: pure decisions by RFC 9111, and where answers are kept."""
