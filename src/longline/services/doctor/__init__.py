"""The checks of `longline doctor`."""
