"""The practice web: real HTTP servers to try and test against."""

from longline.sandbox.faults import Fault
from longline.sandbox.hostile import HostileSite, Temper
from longline.sandbox.limits import TokenBucket
from longline.sandbox.tally import Tally
from longline.sandbox.templates.catalogue import Catalogue, Form
from longline.sandbox.templates.oddities import Oddity
from longline.sandbox.web import PracticeWeb, WebOptions
from longline.sandbox.youtube import VideoOutcome, find_video, outcome_of

__all__ = [
    "Catalogue",
    "Fault",
    "Form",
    "HostileSite",
    "Oddity",
    "PracticeWeb",
    "Tally",
    "Temper",
    "TokenBucket",
    "VideoOutcome",
    "WebOptions",
    "find_video",
    "outcome_of",
]
