"""Further commands: demo, sandbox, doctor."""
