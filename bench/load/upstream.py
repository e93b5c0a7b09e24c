"""An upstream that is the same everywhere: `python3 upstream.py PORT`.

It stands in for nginx where nothing is timed. Its answers have the fields of nginx's, with fixed
values, so that a count of instructions depends neither on nginx's version nor on the date.
"""

import socketserver
import sys

from workloads import BODIES

HEAD = ("HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Mon, 30 Nov 2026 12:00:00 GMT\r\n"
        "Content-Type: application/octet-stream\r\nContent-Length: {}\r\n"
        "Last-Modified: Mon, 30 Nov 2026 11:00:00 GMT\r\nConnection: keep-alive\r\n"
        'ETag: "6564a1b0-c"\r\nAccept-Ranges: bytes\r\n\r\n')


class Handler(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self):
        while line := self.rfile.readline():
            path, length = line.split()[1].decode(), 0
            while (field := self.rfile.readline().lower()) not in (b"\r\n", b""):
                if field.startswith(b"content-length:"):
                    length = int(field.split(b":")[1])
            self.rfile.read(length)
            body = BODIES.get(path, BODIES["/small"])
            self.wfile.write(HEAD.format(len(body)).encode() + body)


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 1024

    def handle_error(self, request, client_address):
        """A connection that breaks off is no news."""


if __name__ == "__main__":
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
