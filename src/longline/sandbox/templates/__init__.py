"""Workflow templates as n8n.io serves them: their content, and the addresses that serve it."""
