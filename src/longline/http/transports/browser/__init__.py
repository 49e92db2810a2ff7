"""Pages that need a browser: Chromium, driven by Playwright."""
