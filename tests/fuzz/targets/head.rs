//! The strict check of request heads, against another parser and its own promises.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockgate::proxy::request_head::{
    BodyLength, Head, MAX_FIELDS, MAX_HEAD, Scan, request_line, scan, scan_chunks, skip_empty_lines,
};

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
            assert!(matches!(refusal.status, 400 | 414 | 431 | 501 | 505));
            assert!(!refusal.why.is_empty());
        }
    }
    // Bytes arrive in pieces of any size. Where they are cut must not change the answer.
    for piece in pieces(buf) {
        match (scan(piece), &whole) {
            (Scan::Partial, _) => {}
            (Scan::Refused(_), Scan::Refused(_)) => {}
            (early, whole) => assert_eq!(&early, whole, "after {} bytes", piece.len()),
        }
    }
    chunks(buf);
});

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
    chunks(&buf[head.len..]);
}

fn chunks(body: &[u8]) {
    let Ok(Some(len)) = scan_chunks(body) else {
        return;
    };
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
