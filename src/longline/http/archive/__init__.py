"""Archives of responses, from which extraction can be repeated."""
