"""Send notifications through Apprise, which knows many services; needs the extra `apprise`."""

from __future__ import annotations

from collections.abc import Sequence

import apprise

_FAILED = "apprise did not deliver it to all of its URLs; the log of this process may say why"
_INVALID = "it is not a URL that apprise supports"


async def send_apprise(urls: Sequence[str], title: str, text: str) -> str | None:
    """Send a notification now; return what failed, which never has a URL."""
    asset = apprise.AppriseAsset(app_id="longline", app_desc="longline", app_url="")
    service = apprise.Apprise(asset=asset)
    if not all(service.add(one) for one in urls):
        return _INVALID
    is_sent = await service.async_notify(
        title=title, body=text, body_format=apprise.NotifyFormat.TEXT, interpret_escapes=False
    )
    return None if is_sent else _FAILED
