"""Rendered pages: Chromium, driven by Playwright."""
