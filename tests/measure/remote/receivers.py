"""Receivers of remote write for tests: one that answers as a test wants, and samples to send."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from oarlock.measure.batch import JobFacts
from oarlock.measure.collect.collector import LoggedSample
from oarlock.node.measure.wire import SampleDecoder, encode_sample

FACTS = {7: JobFacts("ada", "physics", "run"), 8: JobFacts("bob", "chemistry", "")}


class Receiver:
    """Remembers what came, and answers with what `status` returns (0: no answer at all)."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/api/v1/write"
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.status: Callable[[int], int] = lambda _count: 204
        self.headers: dict[str, str] = {}


@contextmanager
def receiving() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.requests.append((dict(self.headers), body))
            status = receiver.status(len(receiver.requests))
            if not status:
                self.close_connection = True
                return
            text = b"" if status == 204 else b"out of bounds\n"
            self.send_response(status)
            for name, value in receiver.headers.items():
                self.send_header(name, value)
            if status != 204:
                self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver = Receiver(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()


def sample(at: float, node: dict[str, float], jobs: dict[int, dict[str, float]], name: str = "n1") -> LoggedSample:
    """Return a sample as a collector hands it over."""
    return LoggedSample(name, int(at * 1000), SampleDecoder().parse(encode_sample(at, node, jobs)).subjects)
