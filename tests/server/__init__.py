"""Tests of the server and of the processes of jobs."""
