"""Little sites to practise on, each with a truth to compare with what was collected."""

from longline.sandbox.sites.base import PracticeSite, Truth
from longline.sandbox.sites.collection import Sites

__all__ = ["PracticeSite", "Sites", "Truth"]
