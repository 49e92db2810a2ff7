"""From the results of the layers to a record."""
