"""A package, so that its workers end with it and not with all tests: pytest knows no other way."""
