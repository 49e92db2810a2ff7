"""The sources that come with longline."""

from longline.sources.catalogue.n8n.source import N8n

__all__ = ["N8n"]
