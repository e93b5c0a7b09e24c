"""A plain HTTP/1.1 client on a socket: what is sent is exactly what was given."""

import re
import socket
import ssl

# A gateway under valgrind may take this long.
TIMEOUT = 60


class Conn:
    """A keep-alive connection. `source` is the local address, to have more ports than one has."""

    def __init__(self, port, tls=False, source=None):
        sock = socket.socket()
        sock.settimeout(TIMEOUT)
        if source:
            # The port is chosen at connect, when the kernel knows that it only has to be new for this target.
            sock.setsockopt(socket.IPPROTO_IP, getattr(socket, "IP_BIND_ADDRESS_NO_PORT", 24), 1)
            sock.bind((source, 0))
        sock.connect(("127.0.0.1", port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            sock = context.wrap_socket(sock, server_hostname="localhost")
        self.sock = sock

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def ask(self, workload, port):
        """Sends a request and expects the workload's answer; a ValueError says what came instead."""
        self.sock.sendall(workload.request(port))
        self.expect(workload)

    def expect(self, workload):
        status, body = self.answer()
        if status != 200 or body != workload.answer:
            raise ValueError(f"status {status} and {body[:200]!r}")

    def answer(self):
        """Status and body of the next answer."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += self.receive()
        head, _, rest = data.partition(b"\r\n\r\n")
        status = int(head.split(None, 2)[1])
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        if not length:
            raise ValueError(f"no Content-Length: {head[:300]!r}")
        parts, missing = [rest], int(length.group(1)) - len(rest)
        while missing > 0:
            parts.append(self.receive())
            missing -= len(parts[-1])
        return status, b"".join(parts)

    def receive(self):
        data = self.sock.recv(256 * 1024)
        if not data:
            raise ValueError("the connection was closed in the middle")
        return data
