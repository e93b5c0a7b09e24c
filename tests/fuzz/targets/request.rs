//! What the wire lane makes of a client's bytes, against another parser, a strict reference, and its
//! own promises.
#![no_main]

#[allow(dead_code)]
#[path = "../../it/scenarios/lanes/grammar.rs"]
mod grammar;
#[allow(dead_code)]
#[path = "../../it/scenarios/lanes/reference.rs"]
mod reference;

use std::time::{Instant, SystemTime};

use grammar::Dice;
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use lockgate::proxy::fields::Fields;
use lockgate::proxy::request_head::{
    self, BodyLength, Head, MAX_FIELDS, MAX_HEAD, Scan, request_line, scan_chunks, skip_empty_lines,
};
use lockgate::proxy::wire::chunked::Chunked;
use lockgate::proxy::wire::views::WireReq;
use lockgate::proxy::wire::write_head;
use lockgate_plugin::target::Target;
use lockgate_plugin::{Conn, Timing, Work};

fuzz_target!(|data: &[u8]| {
    let buf = &data[skip_empty_lines(data)..];
    let (method, target) = request_line(buf);
    assert!(!method.is_empty());
    assert!(method.iter().chain(target).all(|&b| b > b' ' && b != 0x7f));
    let whole = scan(buf);
    match &whole {
        Scan::Partial => {}
        Scan::Http2 => assert!(buf.starts_with(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")),
        Scan::Complete(head) => accepted(buf, head),
        Scan::Refused(refusal) => {
            assert!(matches!(refusal.status, 400 | 405 | 414 | 431 | 501 | 505));
            assert!(!refusal.why.is_empty());
        }
    }
    // Bytes arrive in pieces of any size. Where they are cut must not change the answer.
    for piece in pieces(buf) {
        match (scan(piece), &whole) {
            (Scan::Partial, _) => {
                let again = request_head::scan(buf, piece.len(), &mut Fields::default());
                assert!(
                    again == whole || again == Scan::Partial,
                    "after {}",
                    piece.len()
                );
            }
            (Scan::Refused(_), Scan::Refused(_)) => {}
            (early, whole) => assert_eq!(&early, whole, "after {} bytes", piece.len()),
        }
    }
    chunks(buf);
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let mut dice = Dice::new(seed.into());
    let new = match dice.below(8) {
        0 => grammar::requests(&mut dice, "7x"),
        1 | 2 => {
            let mut bytes = data[..size].to_vec();
            grammar::mutate(&mut dice, &mut bytes);
            bytes
        }
        _ => return fuzzer_mutate(data, size, max_size),
    };
    let len = new.len().min(max_size);
    data[..len].copy_from_slice(&new[..len]);
    len
});

fn scan(buf: &[u8]) -> Scan {
    request_head::scan(buf, 0, &mut Fields::default())
}

/// Beginnings of the input: a few, and different ones for different inputs.
fn pieces(buf: &[u8]) -> impl Iterator<Item = &[u8]> {
    let step = buf.len() / 16 + 1;
    let first = buf.iter().fold(0_usize, |sum, &b| {
        sum.wrapping_mul(31).wrapping_add(b.into())
    });
    (first % step..buf.len()).step_by(step).map(|at| &buf[..at])
}

fn accepted(buf: &[u8], head: &Head) {
    assert!(head.len <= MAX_HEAD && head.len <= buf.len());
    let text = &buf[..head.len];
    assert!(text.ends_with(b"\r\n\r\n"));
    assert!(text.iter().all(|&b| b != 0));
    for (at, &byte) in text.iter().enumerate() {
        match byte {
            b'\r' => assert_eq!(text.get(at + 1), Some(&b'\n'), "a CR alone"),
            b'\n' => assert_eq!(
                at.checked_sub(1).map(|at| text[at]),
                Some(b'\r'),
                "an LF alone"
            ),
            _ => {}
        }
    }

    // Pingora escapes the target before it parses again, where the parser wants ASCII.
    let line = text.iter().position(|&b| b == b'\n').unwrap_or_default();
    let (line, rest) = text.split_at(line);
    let mut ascii: Vec<u8> = Vec::new();
    for &byte in line {
        match byte {
            0x80.. => ascii.extend_from_slice(format!("%{byte:02X}").as_bytes()),
            _ => ascii.push(byte),
        }
    }
    let line_len = ascii.len();
    ascii.extend_from_slice(rest);
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let parsed = request.parse(&ascii).expect("another parser takes it");
    assert_eq!(parsed, httparse::Status::Complete(ascii.len()));
    let (method, target) = request_line(&ascii[..line_len]);
    assert_eq!(request.method.map(str::as_bytes), Some(method));
    assert_eq!(request.path.map(str::as_bytes), Some(target));

    let values = |name: &str| -> Vec<&[u8]> {
        let found = request
            .headers
            .iter()
            .filter(|field| field.name.eq_ignore_ascii_case(name));
        found.map(|field| field.value).collect()
    };
    let (hosts, lengths, codings) = (
        values("host"),
        values("content-length"),
        values("transfer-encoding"),
    );
    let http11 = request.version == Some(1);
    assert!(hosts.len() == 1 || (hosts.is_empty() && !http11));
    assert!(lengths.len() + codings.len() <= 1);
    assert!(codings.is_empty() || http11);
    let expected = match (lengths.first(), codings.first()) {
        (None, None) => BodyLength::None,
        (_, Some(coding)) => {
            assert!(coding.eq_ignore_ascii_case(b"chunked"));
            BodyLength::Chunked
        }
        (Some(length), None) => {
            let length = std::str::from_utf8(length).expect("digits are text");
            match length.parse().expect("a length is a number") {
                0 => BodyLength::None,
                length => BodyLength::Exact(length),
            }
        }
    };
    assert_eq!(head.body, expected);
    // What follows the head has no part in it.
    assert!(matches!(scan(text), Scan::Complete(alone) if alone == *head));

    let strict = reference::head(buf).expect("the reference takes it");
    let framing = match head.body {
        BodyLength::None => reference::Framing::None,
        BodyLength::Exact(length) => reference::Framing::Length(length),
        BodyLength::Chunked => reference::Framing::Chunked,
    };
    assert_eq!(
        (
            strict.head,
            strict.framing,
            strict.persistent,
            strict.http11
        ),
        (head.len, framing, head.persistent, head.http11)
    );
    written(buf, head, &strict);
    chunks(&buf[head.len..]);
}

/// What goes upstream is one head, and says what the client's said.
fn written(buf: &[u8], head: &Head, strict: &reference::Request) {
    let mut fields = Fields::default();
    assert!(matches!(
        request_head::scan(buf, 0, &mut fields),
        Scan::Complete(_)
    ));
    let req = WireReq::new(buf, &fields, head);
    let got: Vec<reference::Field> = req
        .fields()
        .map(|(_, name, value)| (name.to_ascii_lowercase(), value.to_vec()))
        .collect();
    assert_eq!(got, strict.fields);
    let Some(target) = Target::parse(&strict.target).ok().filter(|_| head.ordinary) else {
        return;
    };
    let timing = Timing {
        start: Instant::now(),
        wall: SystemTime::UNIX_EPOCH,
    };
    let work = Work::new(Conn::default(), target, timing);
    let sent = work.target.upstream_target(&strict.target).into_owned();
    let framing = match head.body {
        BodyLength::None => write_head::Framing::None,
        BodyLength::Exact(length) => write_head::Framing::Length(length),
        BodyLength::Chunked => write_head::Framing::Chunked,
    };
    let mut out = Vec::new();
    write_head::request(&mut out, &req, &work, b"192.0.2.1", framing);
    let again = reference::head(&out).expect("what is written is a head");
    assert_eq!(again.head, out.len(), "and nothing else");
    assert_eq!((&again.method, &again.target), (&strict.method, &sent));
    assert_eq!(again.framing, strict.framing);
    assert!(again.http11 && again.persistent);
    let host = |fields| {
        reference::values(fields, b"host")
            .first()
            .copied()
            .unwrap_or_default()
            .to_vec()
    };
    assert_eq!(host(&again.fields), host(&strict.fields));
    assert_eq!(end_to_end(&again.fields), end_to_end(&strict.fields));
}

/// Fields that neither belong to a connection nor are the gateway's own.
fn end_to_end(fields: &[reference::Field]) -> Vec<reference::Field> {
    const OWN: [&str; 17] = [
        "host",
        "connection",
        "content-length",
        "transfer-encoding",
        "expect",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "upgrade",
        "http2-settings",
        "x-real-ip",
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-host",
        "x-forwarded-port",
        "forwarded",
    ];
    let own = |name: &[u8]| OWN.iter().any(|own| own.as_bytes() == name);
    fields
        .iter()
        .filter(|(name, _)| !own(name))
        .cloned()
        .collect()
}

fn chunks(body: &[u8]) {
    decoded(body);
    let Ok(Some(len)) = scan_chunks(body) else {
        return;
    };
    let strict = reference::chunks(body, 0).map(|(_, len)| len);
    assert_eq!(strict, Ok(len), "the reference finds the same end");
    assert!(len <= body.len());
    assert_eq!(scan_chunks(&body[..len]).ok(), Some(Some(len)));
    for piece in pieces(&body[..len]) {
        assert_eq!(
            scan_chunks(piece).ok(),
            Some(None),
            "after {} bytes",
            piece.len()
        );
    }
    // Another parser finds the same chunks.
    let mut at = 0;
    loop {
        let parsed = httparse::parse_chunk_size(&body[at..]).expect("another parser takes it");
        let httparse::Status::Complete((start, size)) = parsed else {
            panic!("another parser wants more");
        };
        at += start;
        if size == 0 {
            break;
        }
        at += usize::try_from(size).expect("it is in the buffer");
        assert_eq!(body.get(at..at + 2), Some(&b"\r\n"[..]));
        at += 2;
    }
    assert!(at <= len && body[..len].ends_with(b"\r\n"));
}

/// The wire lane's reader finds the chunks that the reference finds, however they are cut.
fn decoded(body: &[u8]) {
    let strict = reference::chunks(body, 0);
    let read = |cut: usize| {
        let (mut reader, mut data, mut used) = (Chunked::default(), Vec::new(), 0);
        for piece in [&body[..cut], &body[cut..]] {
            if !reader.is_done() {
                used += reader
                    .read(piece, |part| data.extend_from_slice(part))
                    .ok()?;
            }
        }
        Some((reader.is_done(), data, used))
    };
    let whole = read(0);
    let cut = body.iter().fold(0_usize, |sum, &b| {
        sum.wrapping_mul(31).wrapping_add(b.into())
    });
    assert_eq!(read(cut % (body.len() + 1)), whole);
    match (whole, strict) {
        (Some((true, data, used)), strict) => assert_eq!(strict, Ok((data, used))),
        // Lines of chunks are bounded; the reference's are not.
        (None, Ok(_)) => assert!(body.len() > 1000),
        (None, Err(_)) => {}
        // More has to come, or a whole line would have told.
        (Some((false, ..)), strict) => assert!(strict.is_err()),
    }
}
