"""The commands, in a folder for each group of the help."""
