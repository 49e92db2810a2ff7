"""Services of a home: Redis, PostgreSQL and workers on one machine, and the doctor."""
