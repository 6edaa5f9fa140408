"""Signed webhooks after Standard Webhooks: a stable id over all retries, a signature over the bytes as sent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final, Literal
from urllib.parse import urlsplit

import httpx

from detectord.core.errors import ConfigError
from detectord.core.model import Alert, Severity
from detectord.core.ports import Delivery, Outcome, Outgoing
from detectord.sinks import body, signing

_BUSY: Final = frozenset({429, 502, 503, 504})


class WebhookSink:
    """Posts to ``url``. Follows no redirect: a receiver that moved must be configured, not believed. After a 410
    nothing more is sent until a restart."""

    def __init__(
        self,
        name: str,
        url: str,
        secrets: Sequence[str] = (),
        form: Literal["detectord", "alertmanager"] = "detectord",
        cluster: str = "default",
        min_severity: Severity = Severity.WARNING,
        timeout: float = 15.0,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"webhook {name}: {url!r} is no http or https URL")
        self.name = name
        self._url, self._form, self._cluster, self._min = url, form, cluster, min_severity
        self._keys = [signing.decode_secret(secret) for secret in secrets]
        self._gone = False
        limits = httpx.Limits(max_connections=4, max_keepalive_connections=2)
        self._client = httpx.AsyncClient(timeout=timeout, follow_redirects=False, limits=limits, trust_env=False)

    def render(self, alert: Alert) -> bytes | None:
        if alert.incident.severity < self._min:
            return None
        if self._form == "alertmanager":
            return body.alertmanager(alert, self._cluster)
        return body.own(alert, self._cluster)

    async def deliver(self, outgoing: Outgoing, now: float) -> Delivery:
        if self._gone:
            return Delivery(Outcome.GONE, "the receiver has answered 410 before")
        timestamp = int(now)
        headers = {
            "content-type": "application/json",
            "user-agent": "detectord",
            "webhook-id": outgoing.id,
            "webhook-timestamp": str(timestamp),
        }
        if self._keys:
            headers["webhook-signature"] = signing.sign(self._keys, outgoing.id, timestamp, outgoing.body)
        try:
            response = await self._client.post(self._url, content=outgoing.body, headers=headers)
        except httpx.HTTPError as error:
            return Delivery(Outcome.RETRY, f"{type(error).__name__}: {error}")
        return self._outcome(response, now)

    def _outcome(self, response: httpx.Response, now: float) -> Delivery:
        code = response.status_code
        if response.is_success:
            return Delivery(Outcome.DELIVERED)
        if code == 410:
            self._gone = True
            return Delivery(Outcome.GONE, "the receiver answered 410: it wants no more")
        after = _after(response.headers.get("retry-after", ""), now) if code in _BUSY else None
        return Delivery(Outcome.RETRY, f"the receiver answered {code}", after)

    async def close(self) -> None:
        await self._client.aclose()


def _after(text: str, now: float) -> float | None:
    """Seconds of a Retry-After header, a number or an HTTP date; None when it is neither."""
    if text.isdigit():
        return float(text)
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() - now)
