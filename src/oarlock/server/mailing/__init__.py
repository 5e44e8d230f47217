"""What the server mails by itself: alerts for administrators, the queue of mails, digests."""
