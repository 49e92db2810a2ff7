"""Archives of answers: what a source was given, kept so that extraction can be repeated."""
