"""Settings of the project with item pipelines, and with parts that longline does not run."""

from .pipelines import Logged
from .settings import *  # noqa: F403  # as settings of projects are made

LEAST_PRICE = 1
ITEM_PIPELINES = {
    Logged: 900,
    "chandlery.pipelines.Once": 50,
    "chandlery.pipelines.Faulty": 400,
    "chandlery.pipelines.Cheap": 300,
    "chandlery.pipelines.Classes": 200,
    "chandlery.pipelines.Prices": 100,
    "chandlery.pipelines.Off": 1,
    "chandlery.pipelines.Missing": None,
}
