"""The formats of exports, a file each."""
