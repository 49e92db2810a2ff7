"""Settings of the project with parts that longline does not run."""

from .settings import *  # noqa: F403  # as settings of projects are made

ITEM_PIPELINES = {"chandlery.pipelines.Files": 1}
FILES_STORE = "files"
SPIDER_MIDDLEWARES = {
    "chandlery.pipelines.Stamps": 500,
    "scrapy.spidermiddlewares.referer.RefererMiddleware": None,
    "scrapy.spidermiddlewares.depth.DepthMiddleware": 10,
}
DOWNLOADER_MIDDLEWARES = {"chandlery.pipelines.Stamps": 500}
EXTENSIONS = {
    "chandlery.pipelines.Stamps": 1,
    "scrapy.extensions.telnet.TelnetConsole": None,
}
FEEDS = {"items.json": {"format": "json"}}
DOWNLOAD_HANDLERS = {"https": "chandlery.pipelines.Stamps"}
HTTPCACHE_ENABLED = True
