"""Commands for records: records, export, quarantine, duplicates, enrich, reextract."""
