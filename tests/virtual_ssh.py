"""Stands for ssh (OPENSSH_CMD): hands its standard input and output to the process of the virtual nodes, then sleeps.

Started as often as a server connects to a node; so it imports nothing but what is built in.
"""

import _socket
import os
import sys

if __name__ == "__main__":
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    sock.connect(sys.argv[1])
    descriptors = b"".join(fd.to_bytes(4, sys.byteorder) for fd in (0, 1))
    words = "\0".join(sys.argv[2:]).encode()
    sock.sendmsg([words], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)])
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    # Its number stays: the other side ends it when the connection ends.
    os.execv("/bin/sleep", ["sleep", "7200"])
