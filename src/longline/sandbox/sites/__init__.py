"""Small practice sites, each with the records that should be collected."""

from longline.sandbox.sites.base import PracticeSite, Truth
from longline.sandbox.sites.collection import Sites

__all__ = ["PracticeSite", "Sites", "Truth"]
