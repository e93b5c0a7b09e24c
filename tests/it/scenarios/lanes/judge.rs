//! What is wrong with an exchange: pure functions over what was sent, what arrived, and what was
//! answered.

use super::client::Talk;
use super::grammar::MARKER;
use super::reference::{self, End, Ends, Found, Framing, Request};
use super::upstream;

/// What violations of one kind have in common: their first words.
pub(super) fn kind(wrong: &str) -> String {
    let line = wrong.lines().next().unwrap_or_default();
    let words = line.split(' ').filter(|w| !w.contains('/'));
    let words: Vec<&str> = words.take(7).collect();
    words.join(" ").replace(|c: char| c.is_ascii_digit(), "")
}

/// Whether a head may end in these bytes.
pub(super) fn has_end(bytes: &[u8]) -> bool {
    contains(bytes, b"\n\r\n") || contains(bytes, b"\n\n")
}

pub(super) fn contains(text: &[u8], what: &[u8]) -> bool {
    text.windows(what.len()).any(|w| w == what)
}

/// A hidden request among those that arrived.
pub(super) fn hidden_in(arrived: &[Request]) -> Option<String> {
    let hidden = |one: &&Request| contains(&one.target, MARKER.as_bytes());
    let found = arrived.iter().find(hidden)?;
    let target = String::from_utf8_lossy(&found.target);
    Some(format!("a hidden request: {target}"))
}

/// The first answer in a word.
pub(super) fn class(talk: &Talk) -> String {
    match talk.answers.first() {
        Some(first) if first.status < 400 && talk.cut && talk.answers.len() == 1 => {
            "cut".to_owned()
        }
        Some(first) if first.status < 400 => "taken".to_owned(),
        Some(first) => first.status.to_string(),
        None if talk.closed => "closed".to_owned(),
        None => "nothing".to_owned(),
    }
}

pub(super) fn first_cut(talk: &Talk) -> bool {
    talk.cut && talk.answers.len() <= 1
}

/// How many bytes of empty lines come first.
pub(super) fn skipped(bytes: &[u8]) -> usize {
    let lines = bytes.chunks_exact(2).take_while(|two| two == b"\r\n");
    2 * lines.count()
}

/// What another parser makes of a head that the reference takes. It wants ASCII in a target.
pub(super) fn parsers_differ(request: &Request, head: &[u8]) -> Option<String> {
    let line = head.iter().position(|&b| b == b'\n').unwrap_or(0);
    let ascii: Vec<u8> = head
        .iter()
        .enumerate()
        .map(|(at, &b)| if at < line && !b.is_ascii() { b'x' } else { b })
        .collect();
    let mut room = [httparse::EMPTY_HEADER; 128];
    let mut other = httparse::Request::new(&mut room);
    match other.parse(&ascii) {
        Ok(httparse::Status::Complete(len)) if len == request.head => {}
        other => {
            return Some(format!(
                "httparse finds {other:?} of {} bytes",
                request.head
            ));
        }
    }
    let fields = other.headers.iter();
    let fields: Vec<reference::Field> = fields
        .map(|field| {
            (
                field.name.to_ascii_lowercase().into_bytes(),
                field.value.to_vec(),
            )
        })
        .collect();
    (fields != request.fields).then(|| "httparse finds other fields".to_owned())
}

/// Forgets the last answer and the last request, which the reference does not know.
pub(super) fn forgive_last(requests: &[Request], talk: &mut Talk, arrived: &mut Vec<Request>) {
    let hidden = |request: &Request| contains(&request.target, MARKER.as_bytes());
    if arrived.last().is_some_and(hidden) {
        return;
    }
    if talk.answers.len() == requests.len() + 1 {
        talk.answers.pop();
    }
    if arrived.len() == requests.len() + 1 {
        arrived.pop();
    }
}

/// Whether the wire lane may carry the request that the bytes begin with.
pub(super) fn is_ordinary(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
    let other = [
        "connection:",
        "expect:",
        "te:",
        "trailer:",
        "upgrade:",
        "http2-settings:",
    ];
    let usual: [&[u8]; 7] = [
        b"GET /",
        b"POST /",
        b"HEAD /",
        b"PUT /",
        b"DELETE /",
        b"PATCH /",
        b"OPTIONS /",
    ];
    usual.iter().any(|start| bytes.starts_with(start))
        && other
            .iter()
            .all(|name| !text.contains(&format!("\n{name}")))
}

/// What a lane did wrong with requests.
pub(super) fn lane_wrong(
    requests: &[Request],
    end: End,
    talk: &Talk,
    arrived: &[Request],
) -> Vec<String> {
    let mut wrong = Vec::new();
    if let Some(what) = &talk.broken {
        wrong.push(format!("not an answer, {what}"));
    }
    if talk.silent {
        wrong.push(format!(
            "silent after {} answers of {}, {end:?}",
            talk.answers.len(),
            requests.len()
        ));
    }
    for (at, answer) in talk.answers.iter().enumerate() {
        let request = requests.get(at);
        match (request, answer.status) {
            (_, 500..=504) if !matches!(answer.status, 501) => {
                wrong.push(format!("answer {at}: {}", answer.status));
            }
            (None, status) if status < 400 => {
                wrong.push(format!(
                    "answer {at}: {status}, but there is no such request, {end:?}"
                ));
            }
            (Some(request), status) if status < 400 => {
                let target = answer.target().unwrap_or_default();
                if !same_target(&request.target, target) {
                    let target = String::from_utf8_lossy(target);
                    wrong.push(format!("answer {at} belongs to {target}"));
                }
            }
            _ => {}
        }
    }
    wrong.extend(arrived_wrong(requests, arrived));
    wrong
}

/// What arrived that was not sent, or not so. Whatever has another mark in its target, or none, is
/// looked at only here: nothing can be said of it but that it was no marker.
fn arrived_wrong(requests: &[Request], arrived: &[Request]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut rest = requests.iter();
    for one in arrived {
        let target = String::from_utf8_lossy(&one.target).into_owned();
        let Some(sent) = rest.find(|sent| same_target(&sent.target, &one.target)) else {
            wrong.push(format!("arrived though it was not sent: {target}"));
            continue;
        };
        if sent.method != one.method || sent.body != one.body {
            wrong.push(format!("arrived with another method or body: {target}"));
        }
        wrong.extend(fields_wrong(sent, one).map(|why| format!("{target}: {why}")));
    }
    wrong
}

/// Fields of the connection, or the gateway's own: they may differ.
const OWN: &[&str] = &[
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
    "http2-settings",
    "expect",
    "x-real-ip",
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
];

fn fields_wrong(sent: &Request, arrived: &Request) -> Option<String> {
    let nominated = reference::values(&sent.fields, b"connection").join(&b","[..]);
    let nominated = String::from_utf8_lossy(&nominated).to_ascii_lowercase();
    let plain = |request: &Request| {
        let mut all: Vec<String> = request
            .fields
            .iter()
            .map(|(name, value)| {
                (
                    String::from_utf8_lossy(name),
                    String::from_utf8_lossy(value),
                )
            })
            .filter(|(name, _)| !OWN.contains(&&**name))
            .filter(|(name, _)| nominated.split(',').all(|n| n.trim() != &**name))
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        all.sort();
        all
    };
    let (before, after) = (plain(sent), plain(arrived));
    (before != after).then(|| format!("fields {before:?} became {after:?}"))
}

/// Whether a target is what became of another one. Both have the same mark and last word, or they
/// are equal.
pub(super) fn same_target(sent: &[u8], got: &[u8]) -> bool {
    let tag = |target: &[u8]| {
        let target = normal(target);
        let from = &target[target.find("/l/")?..];
        let word = |c: char| c.is_ascii_alphanumeric() || c == '/';
        Some(from.split(|c| !word(c)).next()?.to_owned())
    };
    normal(sent) == normal(got) || (tag(sent).is_some() && tag(sent) == tag(got))
}

/// A target's path as the gateway understands it, for comparing.
fn normal(target: &[u8]) -> String {
    let text = unescaped(target);
    let text = text.split('#').next().unwrap_or_default();
    let path = match text.split_once("://") {
        Some((scheme, rest)) if !scheme.starts_with('/') => &rest[rest.find('/').unwrap_or(0)..],
        _ => text,
    };
    let mut out: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(out.pop()),
            other => out.push(other),
        }
    }
    format!("/{}", out.join("/"))
}

/// A target with bytes instead of escapes.
fn unescaped(target: &[u8]) -> String {
    let mut out = Vec::new();
    let mut rest = target;
    while let Some((&byte, tail)) = rest.split_first() {
        let hex = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let code = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match code {
            Some(code) if byte == b'%' => {
                out.push(code);
                rest = &tail[2..];
            }
            _ => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// What a lane did wrong with an answer.
pub(super) fn answer_wrong(
    bytes: &[u8],
    requests: &[Request],
    end: End,
    talk: &Talk,
    arrived: &[Request],
) -> Vec<String> {
    let mut wrong = Vec::new();
    if let Some(what) = &talk.broken {
        wrong.push(format!("not an answer, {what}"));
    }
    if talk.silent {
        wrong.push(format!(
            "silent after {} answers, {end:?}",
            talk.answers.len()
        ));
    }
    let hidden = format!("x-{MARKER}");
    let shows =
        |fields: &[reference::Field]| !reference::values(fields, hidden.as_bytes()).is_empty();
    // In a head that the reference does not take it may be a field like any other.
    let open = last_head(bytes).is_none_or(|head| shows(&head.fields));
    let first = usize::from(open);
    let shown = talk.answers.iter().skip(first).any(|a| shows(&a.fields));
    if (shows(&talk.interim) && !open) || shown {
        wrong.push("an answer that was hidden".to_owned());
    }
    for (name, _) in &talk.interim {
        if [
            &b"connection"[..],
            b"content-length",
            b"transfer-encoding",
            b"keep-alive",
        ]
        .contains(&&name[..])
        {
            wrong.push(format!(
                "an interim answer with {}",
                String::from_utf8_lossy(name)
            ));
        }
    }
    if let Some(second) = talk.answers.get(1)
        && second.target() != Some(&requests[1].target[..])
        && (second.status != 502 || upstream::ends(bytes))
    {
        wrong.push(format!(
            "the second answer is not the second request's: {}",
            second.status
        ));
    }
    if talk.answers.len() > 2 {
        wrong.push("more answers than requests".to_owned());
    }
    wrong.extend(arrived_wrong(requests, arrived));
    wrong
}

/// The head of the answer itself, behind interim ones.
fn last_head(mut bytes: &[u8]) -> Option<reference::Answer> {
    loop {
        match reference::answer(bytes, Ends::Lf) {
            Found::Whole(head) if head.status < 200 && head.framing != Framing::None => {
                bytes = &bytes[head.head..]
            }
            Found::Whole(head) => return Some(head),
            _ => return None,
        }
    }
}
