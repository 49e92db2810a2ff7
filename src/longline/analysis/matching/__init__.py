"""Find records of the same thing on several sites, and merge them into one view."""
