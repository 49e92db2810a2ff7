"""The sources that come with longline."""

from longline.sources.catalogue.n8n import N8n

__all__ = ["N8n"]
