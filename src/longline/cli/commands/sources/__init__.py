"""Commands for sources and settings: sources, shell, config, plugins."""
