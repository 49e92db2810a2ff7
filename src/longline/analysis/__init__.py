"""Questions about finished jobs: changes, reports, re-extraction, duplicates."""
