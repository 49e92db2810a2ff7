"""A Scrapy project as it is found in the wild; nothing in it knows of longline."""
