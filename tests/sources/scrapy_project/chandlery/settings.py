"""Settings of the project."""

BOT_NAME = "chandlery"
SPIDER_MODULES = ["chandlery.spiders"]
ROBOTSTXT_OBEY = False
TELNETCONSOLE_ENABLED = False
LOG_LEVEL = "WARNING"
DEFAULT_REQUEST_HEADERS = {"Accept": "text/html", "X-Project": "chandlery"}
