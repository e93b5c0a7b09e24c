"""What is asked of a gateway, and of which gateways: one request each, sent again and again."""

import typing

# A consumer's key, for the routes with plugins.
KEY = "bench-key"
MIB = 1024 * 1024
# What the upstream has: a body that fits the packet of the head, one that takes several, a big one.
BODIES = {"/small": b"hello world\n", "/10k": b"x" * 10 * 1024, "/1m": b"x" * MIB}
# Takes a body, answers as /small does.
UPLOAD = "/upload"

PLAIN = ("floor", "lockgate", "lockgate, general", "nginx", "haproxy")
# The floor, telling the upstream what lockgate tells it.
FIELDS = "floor, fields"
LOG = ("lockgate, access log", "nginx, access log")
TEN = ("lockgate, ten plugins", "lockgate, general, ten plugins", "nginx, equivalents")

ONE = (("User-Agent", "bench"),)
# With Host twelve fields, about 0.7 KB: what a browser sends when a link is followed.
BROWSER = (
    ("Connection", "keep-alive"),
    ("sec-ch-ua", '"Chromium";v="130", "Not?A_Brand";v="99"'),
    ("sec-ch-ua-platform", '"Linux"'),
    ("User-Agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 "
                   "Safari/537.36"),
    ("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"),
    ("Sec-Fetch-Site", "same-origin"),
    ("Sec-Fetch-Mode", "navigate"),
    ("Referer", "https://shop.bench.test/catalogue/garden?page=2&sort=price"),
    ("Accept-Encoding", "gzip, deflate, br, zstd"),
    ("Accept-Language", "en-GB,en;q=0.9,de;q=0.8"),
    ("Cookie", "session=7f3a9c51e2d84b06a1c4; theme=dark; consent=all; _ga=GA1.1.184467440.1730000000"),
)


class Workload(typing.NamedTuple):
    """A request and who gets it."""

    name: str
    title: str
    contenders: tuple = PLAIN
    fields: tuple = ONE
    path: str = "/small"
    body: bytes = b""
    tls: bool = False

    @property
    def method(self):
        return "POST" if self.body else "GET"

    @property
    def answer(self):
        return BODIES.get(self.path, BODIES["/small"])

    @property
    def bulk(self):
        """Whether one request is so much work that fewer will do."""
        return max(len(self.body), len(self.answer)) >= MIB

    @property
    def nginx(self):
        """The contender that this workload is judged by."""
        return "nginx, equivalents" if self.contenders == TEN else "nginx"

    @property
    def other(self):
        """The second contender to compare with, and how the column is called."""
        return (TEN[1], "x general") if self.contenders == TEN else ("floor", "x floor")

    def request(self, port):
        """The bytes of one request."""
        fields = (("Host", f"localhost:{port}"), *self.fields)
        if self.body:
            fields += (("Content-Length", len(self.body)),)
        lines = [f"{self.method} {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields)]
        return "\r\n".join([*lines, "", ""]).encode() + self.body


WORKLOADS = (
    Workload("small", "GET with one field besides Host, 12 bytes back", (FIELDS, *PLAIN, *LOG)),
    Workload("browser", "GET as a browser sends it (12 fields, 0.7 KB), 12 bytes back", (FIELDS, *PLAIN), BROWSER),
    Workload("10k", "GET with one field besides Host, 10 KiB back", path="/10k"),
    Workload("down", "GET with one field besides Host, 1 MiB back", path="/1m"),
    Workload("up", "POST of 1 MiB, 12 bytes back", path=UPLOAD, body=b"x" * MIB),
    Workload("tls", "GET with one field besides Host over TLS 1.3, 12 bytes back", tls=True),
    Workload("ten", "ten plugins: GET with key and User-Agent, 12 bytes back", TEN, (("apikey", KEY), *ONE)),
    Workload("ten-browser", "ten plugins: GET as a browser sends it, and a key, 12 bytes back", TEN,
             (*BROWSER, ("apikey", KEY))),
)
SMALL = WORKLOADS[0]


def chosen(text):
    """The workloads with these names, comma-separated; all when the text is empty."""
    return [w for w in WORKLOADS if not text or w.name in text.split(",")]
