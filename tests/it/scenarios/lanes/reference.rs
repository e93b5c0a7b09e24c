//! A second, plain reading of HTTP/1 messages: RFC 9112 without any leniency for requests.
//!
//! What the gateway accepts must be what this finds, request by request. It looks at whole lines and
//! copies what it finds; it shares no code with the gateway. Also used by `tests/fuzz`.

/// A field: its name in lower case, its value without blanks around it.
pub(crate) type Field = (Vec<u8>, Vec<u8>);

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// There is no body.
    None,
    /// This many bytes.
    Length(u64),
    /// Chunks.
    Chunked,
    /// The end of the connection; answers only.
    Close,
}

/// A whole request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: Vec<u8>,
    pub(crate) target: Vec<u8>,
    pub(crate) http11: bool,
    pub(crate) fields: Vec<Field>,
    pub(crate) framing: Framing,
    pub(crate) persistent: bool,
    /// Bytes of its head.
    pub(crate) head: usize,
    /// Bytes of head and body.
    pub(crate) len: usize,
    /// Without chunks.
    pub(crate) body: Vec<u8>,
}

/// What bytes hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found<T> {
    /// A whole message.
    Whole(T),
    /// The beginning of one.
    Partial,
    /// None, and why.
    Refused(&'static str),
}

/// How a connection's bytes end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// After a request.
    Clean,
    /// Inside of one.
    Partial,
    /// With something that is none.
    Refused(&'static str),
    /// With a head that is one, and a body that is none.
    Body(&'static str),
    /// After a request that wanted to be the last.
    Last,
}

/// All requests of a connection, how its bytes end, and those that are no request.
pub(crate) fn requests(mut bytes: &[u8]) -> (Vec<Request>, End, &[u8]) {
    let mut all = Vec::new();
    loop {
        while let Some(rest) = bytes.strip_prefix(b"\r\n") {
            bytes = rest;
        }
        if bytes.is_empty() {
            return (all, End::Clean, bytes);
        }
        match request(bytes) {
            Found::Partial => return (all, End::Partial, bytes),
            Found::Refused(why) => {
                let end = match head(bytes) {
                    Ok(_) => End::Body(why),
                    Err(_) => End::Refused(why),
                };
                return (all, end, bytes);
            }
            Found::Whole(request) => {
                bytes = &bytes[request.len..];
                let persistent = request.persistent;
                all.push(request);
                if !persistent {
                    return (all, End::Last, bytes);
                }
            }
        }
    }
}

/// The request that the bytes begin with.
pub(crate) fn request(bytes: &[u8]) -> Found<Request> {
    match request_or(bytes) {
        Ok(request) => Found::Whole(request),
        Err(None) => Found::Partial,
        Err(Some(why)) => Found::Refused(why),
    }
}

/// `None` for a message that is not whole, or why it is none.
type No = Option<&'static str>;

fn request_or(bytes: &[u8]) -> Result<Request, No> {
    let mut request = head(bytes)?;
    let at = request.head;
    (request.body, request.len) = match request.framing {
        Framing::None | Framing::Close => (Vec::new(), at),
        Framing::Length(length) => {
            let length = usize::try_from(length).map_err(|_| None)?;
            let end = at.checked_add(length).ok_or(None)?;
            (bytes.get(at..end).ok_or(None)?.to_vec(), end)
        }
        Framing::Chunked => chunks(bytes, at)?,
    };
    Ok(request)
}

/// A request's head; of its body only the framing.
pub(crate) fn head(bytes: &[u8]) -> Result<Request, No> {
    let (line, mut at) = line(bytes, 0, Ends::CrLf)?;
    let words: Vec<&[u8]> = line.split(|&b| b == b' ').collect();
    let [method, target, version] = words[..] else {
        return Err(Some("request line is not three words"));
    };
    if !token(method) {
        return Err(Some("method"));
    }
    let http11 = match version {
        b"HTTP/1.1" => true,
        b"HTTP/1.0" => false,
        _ => return Err(Some("version")),
    };
    let fields = fields(bytes, &mut at, Ends::CrLf)?;
    let host = match &values(&fields, b"host")[..] {
        [] if !http11 => None,
        [host]
            if host
                .iter()
                .all(|&b| b.is_ascii_alphanumeric() || b"-._~:[]".contains(&b)) =>
        {
            Some(*host)
        }
        _ => return Err(Some("Host")),
    };
    check_target(method, target, host)?;
    let codings = values(&fields, b"transfer-encoding");
    let lengths = values(&fields, b"content-length");
    let framing = match (&codings[..], &lengths[..]) {
        ([], []) => Framing::None,
        ([], [length]) => match number(length) {
            Some(0) => Framing::None,
            Some(length) => Framing::Length(length),
            None => return Err(Some("Content-Length")),
        },
        ([coding], []) if coding.eq_ignore_ascii_case(b"chunked") && http11 => Framing::Chunked,
        _ => return Err(Some("framing")),
    };
    let says = |what: &str| {
        let all = values(&fields, b"connection");
        let mut tokens = all.iter().flat_map(|v| v.split(|&b| b == b','));
        tokens.any(|t| t.trim_ascii().eq_ignore_ascii_case(what.as_bytes()))
    };
    Ok(Request {
        method: method.to_vec(),
        target: target.to_vec(),
        http11,
        persistent: !says("close") && (http11 || says("keep-alive")),
        fields,
        framing,
        head: at,
        len: at,
        body: Vec::new(),
    })
}

fn check_target(method: &[u8], target: &[u8], host: Option<&[u8]>) -> Result<(), No> {
    if target.contains(&b'\t') {
        return Err(Some("blank in the target"));
    }
    if method == b"CONNECT" {
        return Err(Some("CONNECT"));
    }
    if target.starts_with(b"/") || (method == b"OPTIONS" && target == b"*") {
        return Ok(());
    }
    let rest = target
        .iter()
        .position(|&b| b == b':')
        .filter(|&at| [&b"http"[..], b"https"].contains(&&target[..at].to_ascii_lowercase()[..]))
        .and_then(|at| target[at..].strip_prefix(b"://"))
        .ok_or(Some("target"))?;
    let authority = rest.split(|b| b"/?#".contains(b)).next().unwrap_or(b"");
    match host {
        Some(host) if !host.eq_ignore_ascii_case(authority) => Err(Some("another authority")),
        _ => Ok(()),
    }
}

/// A chunked body that begins at `at`: its data, and where it ends.
pub(crate) fn chunks(bytes: &[u8], mut at: usize) -> Result<(Vec<u8>, usize), No> {
    let mut body = Vec::new();
    loop {
        let (line, next) = line(bytes, at, Ends::CrLf)?;
        let digits = line.split(|&b| b == b';').next().unwrap_or(b"");
        let hex = (1..=15).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
        let size = String::from_utf8_lossy(digits);
        let size = usize::from_str_radix(&size, 16).ok().filter(|_| hex);
        let size = size.ok_or(Some("chunk size"))?;
        at = next;
        if size == 0 {
            break;
        }
        let end = at.checked_add(size).ok_or(None)?;
        body.extend_from_slice(bytes.get(at..end).ok_or(None)?);
        match bytes.get(end..end + 2) {
            Some(b"\r\n") => at = end + 2,
            Some(_) => return Err(Some("chunk end")),
            None => return Err(None),
        }
    }
    fields(bytes, &mut at, Ends::CrLf)?;
    Ok((body, at))
}

/// An answer's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) reason: Vec<u8>,
    pub(crate) fields: Vec<Field>,
    pub(crate) framing: Framing,
    pub(crate) persistent: bool,
    /// Bytes of the head.
    pub(crate) head: usize,
}

/// How lines may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// CR LF.
    CrLf,
    /// That, or LF: many a server writes its head so.
    Lf,
}

/// The head of the answer that the bytes begin with.
pub(crate) fn answer(bytes: &[u8], ends: Ends) -> Found<Answer> {
    match answer_or(bytes, ends) {
        Ok(answer) => Found::Whole(answer),
        Err(None) => Found::Partial,
        Err(Some(why)) => Found::Refused(why),
    }
}

fn answer_or(bytes: &[u8], ends: Ends) -> Result<Answer, No> {
    let (line, mut at) = line(bytes, 0, ends)?;
    let http11 = match line.get(..9) {
        Some(b"HTTP/1.1 ") => true,
        Some(b"HTTP/1.0 ") => false,
        _ => return Err(Some("version")),
    };
    let digits = line.get(9..12).ok_or(Some("status"))?;
    let status = number(digits).and_then(|n| u16::try_from(n).ok());
    let status = status.filter(|s| *s >= 100).ok_or(Some("status"))?;
    let reason = match line.get(12) {
        None => b"".to_vec(),
        Some(b' ') => line[13..].to_vec(),
        Some(_) => return Err(Some("status")),
    };
    let fields = fields(bytes, &mut at, ends)?;
    let codings = values(&fields, b"transfer-encoding");
    let mut lengths = values(&fields, b"content-length");
    lengths.dedup();
    let same = |a: &[u8], b: &[u8]| number(a).is_some() && number(a) == number(b);
    let framing = match (&codings[..], &lengths[..]) {
        ([], []) => Framing::Close,
        ([], [first, rest @ ..]) if rest.iter().all(|other| same(first, other)) => {
            Framing::Length(number(first).ok_or(Some("Content-Length"))?)
        }
        ([coding], []) if coding.eq_ignore_ascii_case(b"chunked") && http11 => Framing::Chunked,
        _ => return Err(Some("framing")),
    };
    let says = |what: &str| {
        let all = values(&fields, b"connection");
        let mut tokens = all.iter().flat_map(|v| v.split(|&b| b == b','));
        tokens.any(|t| t.trim_ascii().eq_ignore_ascii_case(what.as_bytes()))
    };
    Ok(Answer {
        status,
        reason,
        persistent: !says("close") && (http11 || says("keep-alive")),
        framing,
        fields,
        head: at,
    })
}

/// The values of a field whose name is given in lower case.
pub(crate) fn values<'a>(fields: &'a [Field], name: &[u8]) -> Vec<&'a [u8]> {
    let named = fields.iter().filter(|(n, _)| n == name);
    named.map(|(_, value)| &value[..]).collect()
}

/// The fields from `at` on, which then stands behind the empty line.
fn fields(bytes: &[u8], at: &mut usize, ends: Ends) -> Result<Vec<Field>, No> {
    let mut all = Vec::new();
    loop {
        let (line, next) = line(bytes, *at, ends)?;
        *at = next;
        if line.is_empty() {
            return Ok(all);
        }
        let colon = line.iter().position(|&b| b == b':').ok_or(Some("colon"))?;
        if !token(&line[..colon]) {
            return Err(Some("field name"));
        }
        let blank = |b: &u8| *b == b' ' || *b == b'\t';
        let value = &line[colon + 1..];
        let start = value.iter().position(|b| !blank(b)).unwrap_or(value.len());
        let end = value
            .iter()
            .rposition(|b| !blank(b))
            .map_or(start, |at| at + 1);
        all.push((
            line[..colon].to_ascii_lowercase(),
            value[start..end].to_vec(),
        ));
    }
}

/// The line that begins at `at`, and where the next one begins.
fn line(bytes: &[u8], at: usize, ends: Ends) -> Result<(&[u8], usize), No> {
    let rest = bytes.get(at..).ok_or(None)?;
    let end = rest.iter().position(|&b| b == b'\n').ok_or(None)?;
    let line = match (rest[..end].strip_suffix(b"\r"), ends) {
        (Some(line), _) => line,
        (None, Ends::Lf) => &rest[..end],
        (None, Ends::CrLf) => return Err(Some("LF without CR")),
    };
    if line.iter().any(|&b| (b < 0x20 && b != b'\t') || b == 0x7f) {
        return Err(Some("control byte"));
    }
    Ok((line, at + end + 1))
}

fn token(text: &[u8]) -> bool {
    let extra = b"!#$%&'*+-.^_`|~";
    let good = |b: &u8| b.is_ascii_alphanumeric() || extra.contains(b);
    !text.is_empty() && text.iter().all(good)
}

fn number(text: &[u8]) -> Option<u64> {
    let digits = (1..=20).contains(&text.len()) && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text)
        .ok()
        .filter(|_| digits)?
        .parse()
        .ok()
}
