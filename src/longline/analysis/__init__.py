"""What finished jobs are asked: changes, reports, statistics, re-extraction, duplicates."""
