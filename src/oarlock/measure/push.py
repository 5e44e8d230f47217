"""Push the page to a Prometheus push gateway, for sites whose Prometheus cannot reach the nodes."""

import http.client
import logging
import threading
from urllib.parse import quote, urlsplit

from oarlock.measure.exposition import CONTENT_TYPE, MetricsPage
from oarlock.model.errors import ConfigRefused

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 10
GROUP = "oarlock_agent"


class PushGateway:
    """Replace this node's group with the latest page, in a thread: a slow gateway costs pages, never samples.

    The group is replaced whole, so that an ended job's series go; it is deleted when the agent ends.
    """

    def __init__(self, url: str, host: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigRefused(f"`{url}` is not the http address of a push gateway.", hint="Write http://host:9091.")
        self._https, self._address = parts.scheme == "https", (parts.hostname, parts.port)
        self._path = f"{parts.path.rstrip('/')}/metrics/job/{GROUP}/instance/{quote(host, safe='')}"
        self._page: MetricsPage | None = None
        self._wake, self._over = threading.Event(), False
        self.failures = 0
        self._thread = threading.Thread(target=self._run, name="push", daemon=True)
        self._thread.start()

    def offer(self, page: MetricsPage) -> None:
        """Queue this page; a newer one replaces it if it was not pushed yet."""
        self._page = page
        self._wake.set()

    def close(self) -> None:
        """Delete the group from the gateway and end the thread."""
        self._over = True
        self._wake.set()
        self._thread.join(TIMEOUT_SECONDS * 2)

    def _run(self) -> None:
        while not self._over:
            self._wake.wait()
            self._wake.clear()
            page, self._page = self._page, None
            if page and not self._over:
                self._try("PUT", b"".join(page.pieces))
        self._try("DELETE", b"")

    def _try(self, method: str, body: bytes) -> None:
        try:
            self._send(method, body)
        except (OSError, http.client.HTTPException) as error:
            self.failures += 1
            if self.failures == 1:
                log.warning("the push gateway does not take our page: %s", error)

    def _send(self, method: str, body: bytes) -> None:
        kind = http.client.HTTPSConnection if self._https else http.client.HTTPConnection
        connection = kind(*self._address, timeout=TIMEOUT_SECONDS)
        try:
            connection.request(method, self._path, body, {"Content-Type": CONTENT_TYPE})
            response = connection.getresponse()
            answer = response.read(1000)
            if response.status >= http.client.BAD_REQUEST:
                raise OSError(f"{response.status} {answer.decode('utf-8', 'replace').strip()}")
        finally:
            connection.close()
