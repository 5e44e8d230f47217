"""Requests of a real user: a program of its own becomes the user and sends them over the socket; standard library only.

    asking.py SOCKET UID < requests.json

Each request is `[method, path, body]`; it prints a list of `[status, text]`.
"""

import http.client
import json
import os
import socket
import sys
import uuid
from typing import Any

PRIVATE_PAGES = ("/", "/jobs", "/jobs/{id}", "/gantt", "/nodes", "/nodes/{node}", "/search?q={id}", "/waste", "/energy")
"""Pages of the portal that might show a job to somebody else."""


class SocketConnection(http.client.HTTPConnection):
    """HTTP over the server's Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self._path)


def answer_to(path: str, method: str, target: str, body: Any, request_id: str = "") -> tuple[int, str]:
    """Send one request over a connection of its own."""
    connection = SocketConnection(path)
    content = None if body is None else json.dumps(body)
    headers = {} if method == "GET" else {"Request-Id": request_id or uuid.uuid4().hex}
    connection.request(method, target, content, headers)
    reply = connection.getresponse()
    answer = reply.status, reply.read().decode(errors="replace")
    connection.close()
    return answer


if __name__ == "__main__":
    _path, _uid = sys.argv[1], int(sys.argv[2])
    os.setgroups([])
    os.setresgid(_uid, _uid, _uid)
    os.setresuid(_uid, _uid, _uid)
    print(json.dumps([answer_to(_path, *request) for request in json.load(sys.stdin)]))
