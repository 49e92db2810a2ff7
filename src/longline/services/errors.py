"""Errors of the services of a cluster on this machine."""

from __future__ import annotations

from longline.core.errors import LonglineError


class ServiceError(LonglineError):
    """A service could not be started, stopped or reached."""


class StartFailed(ServiceError):
    """A service did not start; `lines` are the last ones of its log, if there is one."""

    service: str
    problem: str
    log: str = ""
    lines: tuple[str, ...] = ()
    message = "{service} did not start: {problem}{in_log}"

    @property
    def in_log(self) -> str:
        if not self.log:
            return ""
        end = f", which ends with: {' | '.join(self.lines)}" if self.lines else ""
        return f"; see {self.log}{end}"


class StopFailed(ServiceError):
    service: str
    pid: int
    problem: str
    message = "{service} (process {pid}) could not be stopped: {problem}"


class ServiceUnreachable(ServiceError):
    """A server that the settings name, and longline did not start, does not respond."""

    service: str
    address: str
    problem: str
    message = "{service} at {address} does not respond ({problem})"
    hint = "longline did not start it: start it, or remove its address from the settings."


class ServicesBusy(ServiceError):
    home: str
    seconds: float
    message = (
        "another `longline up`, `longline down` or `longline db copy` is running in {home}; "
        "this command waited {seconds:g} s for it"
    )
    hint = "Wait for it to end and run this command again."
