"""Mails to users: what stands in them, how many there are, and what happens when they cannot be sent."""

import socketserver
import threading

import pytest

from oarlock.config import Config
from oarlock.job.instructions import Notify
from oarlock.job.news import NotNotified
from oarlock.model.event import EventType
from oarlock.server.notices import Notices, mail
from tests.bed import told

NOTICE = Notify(7, "ada", "fit", "mail:ada@lab.org", "END", "the job ended")


class _Post(socketserver.StreamRequestHandler):
    """As much of a mail server as a client needs."""

    def handle(self):
        self.wfile.write(b"220 here\r\n")
        for line in self.rfile:
            word = line[:4].upper()
            self.wfile.write(
                b"354 go on\r\n" if word == b"DATA" else b"221 bye\r\n" if word == b"QUIT" else b"250 ok\r\n"
            )
            if word == b"DATA":
                text = b"".join(iter(self.rfile.readline, b".\r\n"))
                self.server.mails.append(text.decode())
                self.wfile.write(b"250 taken\r\n")
            if word == b"QUIT":
                return


@pytest.fixture
def post():
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Post) as server:
        server.mails = []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@told
async def test_a_mail_reaches_the_mail_server_and_a_flood_does_not(post):
    heard = []
    notices = Notices(
        Config(mail_smtp_server=f"127.0.0.1:{post.server_address[1]}", mail_sender="oar@lab.org"), heard.append
    )
    for _ in range(35):
        await notices.send(NOTICE)
    assert (len(post.mails), heard) == (30, [])
    assert "Subject: [OAR] END: job 7 (fit)" in post.mails[0]
    assert "Job 7 (fit) of ada: the job ended" in post.mails[0]


@told
async def test_without_a_mail_server_the_job_has_an_event():
    heard = []
    await Notices(Config(), heard.append).send(NOTICE)
    says = "a mail to ada@lab.org could not be sent: no MAIL_SMTP_SERVER is set"
    assert heard == [NotNotified(7, EventType.USER_MAIL_NOTIFICATION, says)]


def test_a_name_cannot_add_a_line_to_the_head_of_a_mail():
    with pytest.raises(ValueError, match=r"(?i)newline|linefeed"):
        mail(NOTICE, "ada@lab.org\nBcc: all@lab.org", sender="oar@lab.org")
