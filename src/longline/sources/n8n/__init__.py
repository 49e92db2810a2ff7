"""The n8n template catalogue."""
