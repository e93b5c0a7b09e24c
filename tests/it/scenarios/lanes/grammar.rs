//! Bytes that a client or an upstream might send to lead two parsers apart.
//!
//! Requests and answers are put together from parts of which most are wrong in one way, then bytes
//! are changed here and there. All of it follows from a seed. Also used by `tests/fuzz`.

/// Random numbers that follow from a seed (splitmix64).
pub(crate) struct Dice(u64);

impl Dice {
    /// The numbers of a seed.
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Sixteen letters and digits.
    pub(crate) fn word(&mut self) -> String {
        format!("{:016x}", self.next())
    }

    /// Below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        let n = u64::try_from(n.max(1)).unwrap_or(1);
        usize::try_from(self.next() % n).unwrap_or(0)
    }

    /// Once in `n` times.
    pub(crate) fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }

    /// The first mostly, sometimes one of the others.
    fn mostly<'a>(&mut self, usual: &'a str, odd: &[&'a str]) -> &'a str {
        if self.once_in(14) {
            self.pick(odd)
        } else {
            usual
        }
    }
}

/// The host that good requests name.
pub(crate) const HOST: &str = "lanes.test";
/// The host of requests whose answers are odd: what happens to their connections is nobody else's
/// business.
pub(crate) const ODD_HOST: &str = "answers.test";
/// What the path of a hidden request has in it, and the name of a hidden answer's field.
pub(crate) const MARKER: &str = "smuggled";

/// The path of an input's requests; `mark` is the input's own.
pub(crate) fn path(mark: &str, last: &str) -> String {
    format!("/l/{mark}/{last}")
}

fn hidden(mark: &str, end: &str) -> String {
    let path = path(mark, MARKER);
    format!("GET {path} HTTP/1.1{end}Host: {HOST}{end}{end}")
}

/// One to three requests of a connection.
pub(crate) fn requests(dice: &mut Dice, mark: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let count = 1 + dice.below(3);
    for at in 0..count {
        // A good one at the end shows what the bytes before it did.
        if at > 0 && dice.once_in(2) {
            let path = path(mark, "next");
            out.extend(format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n").bytes());
        } else {
            request(dice, mark, &mut out);
        }
    }
    if dice.once_in(3) {
        mutate(dice, &mut out);
    }
    out
}

fn request(dice: &mut Dice, mark: &str, out: &mut Vec<u8>) {
    let end = dice.mostly("\r\n", &["\n", "\r", "\r\r\n", "\n\r\n", "\r\n "]);
    let end = if dice.once_in(3) { end } else { "\r\n" };
    let method = dice.pick(&[
        "GET", "POST", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH",
    ]);
    let method = dice.mostly(
        method,
        &["FOO", "get", "G\tET", "", "TRACE", "CONNECT", "GET\r"],
    );
    let mine = path(
        mark,
        dice.pick(&["a", "b", "c", "d?q=1", "e%20f", "./g", "h//i"]),
    );
    let targets = [
        format!("http://{HOST}{mine}"),
        format!("http://other.test{mine}"),
        format!("HTTPS://{HOST}{mine}"),
        format!("http://{HOST}:80{mine}"),
        format!("{mine} HTTP/1.1\r\nX: {}", path(mark, MARKER)),
        format!("{mine}<\">^`{{|}}\\"),
        format!("{mine}\u{e9}\t"),
        format!("{mine}\u{e9}"),
        format!("{mine}#{MARKER}"),
        format!("{mine}%0d%0aHost:x"),
        "*".to_owned(),
        format!("//{HOST}{mine}"),
    ];
    let odd: Vec<&str> = targets.iter().map(String::as_str).collect();
    let target = dice.mostly(&mine, &odd);
    let versions = [
        "HTTP/1.0",
        "HTTP/1.0",
        "HTTP/1.2",
        "HTTP/2.0",
        "http/1.1",
        "HTTP/1.1 ",
        "HTTP/01.1",
        "",
    ];
    let version = dice.mostly("HTTP/1.1", &versions);
    let space = dice.mostly(" ", &["  ", "\t", "\u{b}"]);
    let space = if dice.once_in(4) { space } else { " " };
    let body = body(dice, mark, end);
    let mut lines = vec![dice.mostly("Host: lanes.test", HOSTS).to_owned()];
    for field in framing(dice, &body) {
        lines.push(field);
    }
    for _ in 0..dice.below(3) {
        lines.push(field(dice, mark));
    }
    if dice.once_in(4) {
        let at = dice.below(lines.len());
        lines.swap(0, at);
    }
    let text = format!("{method}{space}{target}{space}{version}{end}");
    out.extend(text.bytes());
    for line in &lines {
        out.extend(line.bytes());
        out.extend(end.bytes());
    }
    out.extend(dice.mostly(end, &["\r\n", "\n", "\r\n\r\n", ""]).bytes());
    out.extend(body.text.bytes());
}

const HOSTS: &[&str] = &[
    "Host: lanes.test\r\nHost: lanes.test",
    "Host: lanes.test\r\nHost: other.test",
    "Host : lanes.test",
    "Host\t: lanes.test",
    " Host: lanes.test",
    "Host:lanes.test",
    "host:\tlanes.test \t",
    "Host: lanes.test, other.test",
    "Host: lanes.test:80",
    "Host: lanes.test:x",
    "Host: a@lanes.test",
    "Host: lanes.test/x",
    "Host:",
    "X: y",
    "HOST: lanes.test",
    "Host: lanes.test\0",
    "Host: lanes\u{e9}.test",
    "Host: [::1]",
    "X: y\r\n Host: lanes.test",
];

/// A body, and what can be said of it.
struct Body {
    text: String,
    chunked: bool,
}

fn body(dice: &mut Dice, mark: &str, end: &str) -> Body {
    let secret = hidden(mark, dice.mostly("\r\n", &["\n", end]));
    let payload = dice.pick(&["", "hello", "x=1&y=2", secret.as_str(), secret.as_str()]);
    match dice.below(3) {
        0 => Body {
            text: String::new(),
            chunked: false,
        },
        1 => Body {
            text: payload.to_owned(),
            chunked: false,
        },
        _ => Body {
            text: chunks(dice, payload, &secret),
            chunked: true,
        },
    }
}

fn chunks(dice: &mut Dice, payload: &str, secret: &str) -> String {
    let mut text = String::new();
    let cut = dice.below(payload.len() + 1);
    for piece in [&payload[..cut], &payload[cut..]] {
        if piece.is_empty() {
            continue;
        }
        let size = match dice.below(14) {
            0 => format!("{:X}", piece.len()),
            1 => format!("00{:x}", piece.len()),
            2 => format!("+{:x}", piece.len()),
            3 => format!("0x{:x}", piece.len()),
            4 => format!("{:x}", piece.len() + 1 + dice.below(40)),
            5 => format!("{:x}", dice.below(piece.len())),
            6 => format!("{:016x}", piece.len()),
            7 => format!("1000000000000000{:x}", piece.len()),
            8 => format!("{} {:x}", dice.below(3), piece.len()),
            _ => format!("{:x}", piece.len()),
        };
        let extension = dice.mostly("", EXTENSIONS);
        let line_end = dice.mostly("\r\n", &["\n", "\r", "\r\r\n", "\r\n\r\n", "\rX"]);
        let line_end = if dice.once_in(3) { line_end } else { "\r\n" };
        let after = dice.mostly("\r\n", &["\n", "", "\r", "xx", "\r\r\n", "\rX"]);
        let after = if dice.once_in(3) { after } else { "\r\n" };
        text.push_str(&format!("{size}{extension}{line_end}{piece}{after}"));
    }
    let last = dice.mostly(
        "0",
        &["00", "0;x=y", "-0", "0 ", "000000000000000000", "", "0\t"],
    );
    text.push_str(last);
    text.push_str(dice.mostly("\r\n", &["\n", "\r", "\r\r\n"]));
    if dice.once_in(3) {
        text.push_str(dice.pick(TRAILERS));
        if dice.once_in(4) {
            text.push_str(secret);
        }
    }
    text.push_str(dice.mostly("\r\n", &["\n", "", "\r", "\rX"]));
    text
}

const EXTENSIONS: &[&str] = &[
    ";a=b",
    ";",
    ";a=\"\r\n\"",
    ";a\n",
    " ",
    "\t",
    " ;a",
    ";a\0",
    ";a\r",
    ";\u{e9}",
    ";a=b;c=d",
    ";a=\"\n0\"",
];
const TRAILERS: &[&str] = &[
    "Content-Length: 5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Host: other.test\r\n",
    "X: y\r\n",
    "X: y\n",
    "no colon\r\n",
    " folded: x\r\n",
    "X : y\r\n",
    "X: \0\r\n",
    "X: y\r\n\n",
    "Connection: close\r\n",
    "X: y\rZ: z\r\n",
];

/// The fields that say where the body ends, or seem to.
fn framing(dice: &mut Dice, body: &Body) -> Vec<String> {
    let exact = body.text.len();
    let first_line = body.text.find('\n').map_or(0, |at| at + 1);
    let near = [exact, first_line, 0, exact + 1, exact.saturating_sub(1), 4];
    let length = if dice.once_in(4) {
        near[dice.below(near.len())]
    } else {
        exact
    };
    let digits = match dice.below(24) {
        0 => format!("+{length}"),
        1 => format!("-{length}"),
        2 => format!("0{length}"),
        3 => format!("0x{length:x}"),
        4 => format!("{length}, {length}"),
        5 => format!("{length}\r\nContent-Length: {length}"),
        6 => format!("{length}\r\nContent-Length: 0"),
        7 => format!("{length} \t"),
        8 => format!("{length};"),
        9 => format!("1844674407370955161{length}"),
        10 => format!("{length}\u{b}"),
        11 => format!("\r\n {length}"),
        12 => String::new(),
        _ => format!("{length}"),
    };
    let length = format!("{} {digits}", dice.mostly("Content-Length:", LENGTH_NAMES));
    let coding = dice.mostly("chunked", CODINGS);
    let coding = format!(
        "{} {coding}",
        dice.mostly("Transfer-Encoding:", CODING_NAMES)
    );
    match (body.chunked, dice.below(10)) {
        (_, 0) => vec![length, coding],
        (_, 1) => vec![coding, length],
        (_, 2) if body.text.is_empty() => vec![length],
        (true, 2) => vec![length],
        (false, 2) => vec![coding],
        (_, 3) => Vec::new(),
        (true, _) => vec![coding],
        (false, _) if body.text.is_empty() => Vec::new(),
        (false, _) => vec![length],
    }
}

const LENGTH_NAMES: &[&str] = &[
    "content-length:",
    "Content-Length :",
    "Content-Length\t:",
    " Content-Length:",
    "Content_Length:",
    "Content-Length\0:",
    "CONTENT-LENGTH:",
    "X: y\r\n\tContent-Length:",
    "Content-Length",
    "X: y\nContent-Length:",
    "X: y\rContent-Length:",
    "\u{b}Content-Length:",
    "Content-\u{e9}Length:",
    ":Content-Length:",
];
const CODING_NAMES: &[&str] = &[
    "transfer-encoding:",
    "Transfer-Encoding :",
    "Transfer-Encoding\t:",
    " Transfer-Encoding:",
    "Transfer_Encoding:",
    "Transfer-Encoding\0:",
    "X: y\r\n Transfer-Encoding:",
    "Transfer-Encoding",
    "X: y\nTransfer-Encoding:",
    "X: y\rTransfer-Encoding:",
    "TRANSFER-ENCODING:",
    "Transfer-Encoding:\r\n",
    "Transfer-Encoding: x\r\nTransfer-Encoding:",
    "\u{b}Transfer-Encoding:",
    "X: y\0Transfer-Encoding:",
    ":Transfer-Encoding:",
];
const CODINGS: &[&str] = &[
    "Chunked",
    "CHUNKED ",
    "\tchunked",
    "xchunked",
    "chunked, identity",
    "identity, chunked",
    "identity",
    "gzip, chunked",
    "chunked\u{b}",
    "\0chunked",
    "chunked;q=1",
    "\"chunked\"",
    "chunked,",
    ",chunked",
    "chunked\r\nTransfer-Encoding: chunked",
    "chunked\r\nTransfer-Encoding: identity",
    "chunked, chunked",
    "ch\u{212a}unked",
    "",
    "x",
    "chunked\r\n folded",
    "cow\r\n chunked",
];

/// Any other field.
fn field(dice: &mut Dice, mark: &str) -> String {
    let secret = hidden(mark, dice.pick(&["\r\n", "\n", "\r", "\u{b}", "\r\n "]));
    let texts = [
        format!("X-A: a\r\n\r\n{secret}"),
        format!("X-B: {secret}"),
        format!("X-C: {}\0{secret}", dice.below(9)),
        format!("X-D:\r\n {secret}"),
        format!("X-E: {}", path(mark, MARKER)),
        format!("Referer: http://{HOST}{}", path(mark, MARKER)),
    ];
    if dice.once_in(4) {
        return texts[dice.below(texts.len())].clone();
    }
    dice.pick(FIELDS).to_owned()
}

const FIELDS: &[&str] = &[
    "Connection: close",
    "Connection: keep-alive",
    "Connection: Content-Length",
    "Connection: Host",
    "Connection: Transfer-Encoding",
    "Connection: close, Content-Length, Host",
    "Connection: keep-alive, X-A, Transfer-Encoding",
    "Connection: upgrade",
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA",
    "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13",
    "Expect: 100-continue",
    "Expect: 100-Continue, x",
    "Expect:",
    "Expect: 100-continue\r\nExpect: x",
    "TE: trailers",
    "TE: trailers, chunked",
    "Trailer: Content-Length",
    "Upgrade: x",
    "Keep-Alive: timeout=5",
    "Proxy-Connection: keep-alive",
    "X-Forwarded-For: 1.2.3.4",
    "X-Forwarded-Host: other.test",
    "X-Real-IP: 1.2.3.4",
    "X-A: y",
    "X-A:",
    "X-A: a\tb ",
    "X-A: \u{e9}",
    "Accept: */*",
    "Cookie: a=b",
    "X-HTTP-Method-Override: PUT",
    "X-Original-URL: /other",
    "Content-Encoding: gzip",
    "Forwarded: for=1.2.3.4",
    "Transfer: chunked",
    "no colon",
    ": empty",
    "X-\u{e9}: y",
    "X A: y",
    "X-A\r: y",
    "X-A: a\rb",
    "Content-Length: 0\r\nX-A: y",
];

/// What an upstream sends to a GET: mostly one answer, with another one hidden in it.
pub(crate) fn answer(dice: &mut Dice) -> Vec<u8> {
    let end = dice.mostly("\r\n", &["\n", "\r", "\r\r\n"]);
    let end = if dice.once_in(3) { end } else { "\r\n" };
    let secret = format!("HTTP/1.1 200 OK\r\nX-{MARKER}: 1\r\nContent-Length: 2\r\n\r\nno");
    let payload = dice
        .pick(&["", "hello", secret.as_str(), secret.as_str()])
        .to_owned();
    let chunked = dice.once_in(2);
    let text = if chunked {
        chunks(dice, &payload, &secret)
    } else {
        payload
    };
    let body = Body { text, chunked };
    let mut out = Vec::new();
    if dice.once_in(6) {
        let interim = dice.pick(INTERIMS);
        out.extend(interim.bytes());
    }
    let status = dice.mostly("HTTP/1.1 200 OK", STATUSES);
    out.extend(status.bytes());
    out.extend(end.bytes());
    let mut lines = framing(dice, &body);
    for _ in 0..dice.below(3) {
        lines.push(if dice.once_in(4) {
            format!(
                "X-A: a{}{secret}",
                dice.pick(&["\r\n\r\n", "\r", "\0", "\r\n ", "\n\n"])
            )
        } else {
            dice.pick(ANSWER_FIELDS).to_owned()
        });
    }
    for line in &lines {
        out.extend(line.bytes());
        out.extend(end.bytes());
    }
    out.extend(dice.mostly(end, &["\r\n", "\n", "\r\n\r\n", ""]).bytes());
    out.extend(body.text.bytes());
    if dice.once_in(4) {
        out.extend(secret.bytes());
    }
    if dice.once_in(3) {
        mutate(dice, &mut out);
    }
    out
}

const STATUSES: &[&str] = &[
    "HTTP/1.0 200 OK",
    "HTTP/1.1 204 No Content",
    "HTTP/1.1 304 Not Modified",
    "HTTP/1.1 200",
    "HTTP/1.1 200 ",
    "HTTP/1.1  200 OK",
    "HTTP/1.2 200 OK",
    "HTTP/2 200",
    "ICY 200 OK",
    "HTTP/1.1 099 x",
    "HTTP/1.1 1000 x",
    "HTTP/1.1 599 x",
    "HTTP/1.1 999 x",
    "HTTP/1.1 101 Switching Protocols",
    "HTTP/1.1 200 a\rb",
    "HTTP/1.1 200 \u{e9}",
    "HTTP/1.1 205 Reset Content",
    " HTTP/1.1 200 OK",
    "\r\nHTTP/1.1 200 OK",
    "HTTP/1.1 200\tOK",
    "HTTP/1.1 2x0 OK",
    "HTTP/1.1 302 Found",
];
const INTERIMS: &[&str] = &[
    "HTTP/1.1 100 Continue\r\n\r\n",
    "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
    "HTTP/1.1 102 Processing\r\n\r\n",
    "HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\n",
    "HTTP/1.1 103 Early Hints\r\nTransfer-Encoding: chunked\r\n\r\n",
    "HTTP/1.1 103 Early Hints\r\nConnection: close\r\nKeep-Alive: x\r\nLink: </b>\r\n\r\n",
    "HTTP/1.1 199 x\n\n",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n",
    "HTTP/1.1 101 Switching Protocols\r\n\r\n",
    "HTTP/1.0 100 Continue\r\nX: \0\r\n\r\n",
];
const ANSWER_FIELDS: &[&str] = &[
    "Connection: close",
    "Connection: keep-alive",
    "Connection: Content-Length",
    "Connection: X-A, Date, Transfer-Encoding",
    "Keep-Alive: timeout=5",
    "Proxy-Connection: close",
    "Trailer: X",
    "Upgrade: h2c",
    "Date: x",
    "Server: y",
    "X-A: b",
    "X-A:",
    "no colon",
    ": empty",
    "X-A: a\r\n folded",
    "X : y",
    "X-\u{e9}: y",
    "X-A: \0",
    "Set-Cookie: a=b",
    "Content-Type: text/plain",
    "Content-Encoding: gzip",
    "Content-Length: 0",
    "X-A: a\rb",
    "Connection: upgrade",
];

/// Changes a few bytes.
pub(crate) fn mutate(dice: &mut Dice, bytes: &mut Vec<u8>) {
    const ODD: &[u8] = b"\0\t\n\x0b\r :;,0\x7f\x80\xff+-";
    for _ in 0..1 + dice.below(3) {
        if bytes.is_empty() {
            return;
        }
        let at = dice.below(bytes.len());
        let to = (at + 1 + dice.below(12)).min(bytes.len());
        match dice.below(7) {
            0 => drop(bytes.remove(at)),
            1 => bytes.insert(at, ODD[dice.below(ODD.len())]),
            2 => bytes[at] = ODD[dice.below(ODD.len())],
            3 => bytes[at] ^= 0x20,
            4 => {
                let piece = bytes[at..to].to_vec();
                bytes.splice(at..at, piece);
            }
            5 => drop(bytes.drain(at..to)),
            _ => {
                // A line end that becomes another one.
                let from = bytes[at..].windows(2).position(|w| w == b"\r\n");
                if let Some(from) = from.map(|from| from + at) {
                    let new: &[&[u8]] = &[b"\n", b"\r", b"\r\r\n", b"\n\n", b"\r\n ", b"\n\r"];
                    bytes.splice(from..from + 2, dice.pick(new).iter().copied());
                }
            }
        }
    }
}

/// Puts the bytes of a case file together: its lines, without comments, with escapes made bytes and
/// `MARK` made the input's own mark.
pub(crate) fn case(text: &str, mark: &str) -> Vec<u8> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let mut rest = lines.collect::<String>().replace("MARK", mark).into_bytes();
    let mut out = Vec::new();
    while let Some((&byte, tail)) = rest.split_first() {
        let (byte, used) = match (byte, tail.first()) {
            (b'\\', Some(b'r')) => (b'\r', 2),
            (b'\\', Some(b'n')) => (b'\n', 2),
            (b'\\', Some(b't')) => (b'\t', 2),
            (b'\\', Some(b'x')) => {
                let hex = tail.get(1..3).map(String::from_utf8_lossy);
                let code = hex.and_then(|hex| u8::from_str_radix(&hex, 16).ok());
                (code.unwrap_or(b'?'), 4.min(rest.len()))
            }
            (b'\\', Some(_)) => (tail[0], 2),
            _ => (byte, 1),
        };
        out.push(byte);
        rest.drain(..used);
    }
    out
}

/// The opposite of [`case`]: bytes as the text of a case file.
pub(crate) fn readable(bytes: &[u8], mark: &str) -> String {
    let mut out = String::new();
    for &b in bytes {
        match b {
            b'\n' => out.push_str("\\n\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            b'\\' => out.push_str("\\\\"),
            b' '..=b'~' => out.push(char::from(b)),
            _ => out.push_str(&format!("\\x{b:02x}")),
        }
    }
    // A line that looks like a comment is not one.
    let out = out
        .replace(&format!("/l/{mark}/"), "/l/MARK/")
        .replace("\n#", "\n\\#");
    match out.starts_with('#') {
        true => format!("\\{out}"),
        false => out,
    }
}
