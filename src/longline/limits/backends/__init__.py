"""Backends: where the shared state of limits lives. Redis needs an extra and is imported apart."""

from longline.limits.backends.base import StateBackend
from longline.limits.backends.memory import MemoryStateBackend
from longline.limits.backends.sqlite import SqliteStateBackend, SqliteStateFile

__all__ = ["MemoryStateBackend", "SqliteStateBackend", "SqliteStateFile", "StateBackend"]
