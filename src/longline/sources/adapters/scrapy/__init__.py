"""Scrapy spiders as sources."""
