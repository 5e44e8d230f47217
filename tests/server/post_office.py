"""As much of a mail server as a client needs."""

import contextlib
import email
import email.policy
import socketserver
import threading


class _Desk(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(b"220 here\r\n")
        for line in self.rfile:
            word = line[:4].upper()
            if word == b"RCPT" and self.server.refuses:
                self.wfile.write(b"550 nobody of that name here\r\n")
                continue
            self.wfile.write(
                b"354 go on\r\n" if word == b"DATA" else b"221 bye\r\n" if word == b"QUIT" else b"250 ok\r\n"
            )
            if word == b"DATA":
                text = b"".join(iter(self.rfile.readline, b".\r\n"))
                self.server.mails.append(_readable(text))
                self.wfile.write(b"250 taken\r\n")
            if word == b"QUIT":
                return


def _readable(text):
    """The head of a mail, and its body in plain lines whatever they were packed in."""
    found = email.message_from_bytes(text, policy=email.policy.default)
    return "".join(f"{name}: {value}\n" for name, value in found.items()) + found.get_content()


@contextlib.contextmanager
def post_office(*, refuses=False):
    """A server on a port of its own; `mails` are the texts that it took, `place` is what MAIL_SMTP_SERVER says.

    It may refuse every address.
    """
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Desk) as server:
        server.refuses = refuses
        server.mails, server.place = [], f"127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
