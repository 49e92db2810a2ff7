"""Backends: where the shared state of limits lives. Redis needs an extra and is imported apart."""

from longline.limits.backends.sqlite import SqliteStateBackend, SqliteStateFile
from longline.limits.backends.state import MemoryStateBackend, StateBackend

__all__ = ["MemoryStateBackend", "SqliteStateBackend", "SqliteStateFile", "StateBackend"]
