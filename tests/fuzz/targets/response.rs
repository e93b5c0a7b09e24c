//! What the wire lane makes of an upstream's head, against another parser, a strict reference, and
//! its own promises; and what it writes to the client.
#![no_main]

#[allow(dead_code)]
#[path = "../../it/scenarios/lanes/grammar.rs"]
mod grammar;
#[allow(dead_code)]
#[path = "../../it/scenarios/lanes/reference.rs"]
mod reference;

use grammar::Dice;
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use lockgate::proxy::fields::Fields;
use lockgate::proxy::wire::response_head::{self, Head, Length, MAX_HEAD, Scan};
use lockgate::proxy::wire::views::WireResp;
use lockgate::proxy::wire::write_head::{self, Framing, Response};
use reference::{Ends, Found};

/// The most fields of a response.
const MAX_FIELDS: usize = 200;

fuzz_target!(|buf: &[u8]| {
    let mut fields = Fields::default();
    let whole = response_head::scan(buf, 0, &mut fields);
    match &whole {
        Scan::Partial => {}
        Scan::Bad(why) => assert!(!why.is_empty()),
        Scan::Complete(head) => {
            accepted(buf, head, &fields);
            written(buf, head, &fields);
        }
    }
    let step = buf.len() / 16 + 1;
    for cut in (0..buf.len()).step_by(step) {
        let mut fields = Fields::default();
        match (response_head::scan(&buf[..cut], 0, &mut fields), &whole) {
            (Scan::Partial, _) => {
                let again = response_head::scan(buf, cut, &mut fields);
                assert!(
                    again == whole || again == Scan::Partial,
                    "after {cut} bytes"
                );
            }
            (Scan::Bad(_), Scan::Bad(_)) => {}
            (early, whole) => assert_eq!(&early, whole, "after {cut} bytes"),
        }
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let mut dice = Dice::new(seed.into());
    let new = match dice.below(8) {
        0 => grammar::answer(&mut dice),
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

fn accepted(buf: &[u8], head: &Head, fields: &Fields) {
    assert!(head.len <= MAX_HEAD && head.len <= buf.len());
    let shown: Vec<reference::Field> = WireResp::new(buf, fields, head.status)
        .fields()
        .map(|(_, name, value)| (name.to_ascii_lowercase(), value.to_vec()))
        .collect();

    let mut room = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut other = httparse::Response::new(&mut room);
    let parsed = other.parse(buf).expect("another parser takes it");
    assert_eq!(parsed, httparse::Status::Complete(head.len));
    assert_eq!(other.code, Some(head.status));
    let theirs: Vec<reference::Field> = other
        .headers
        .iter()
        .map(|field| {
            (
                field.name.to_ascii_lowercase().into_bytes(),
                field.value.to_vec(),
            )
        })
        .collect();
    assert_eq!(shown, theirs);

    let Found::Whole(strict) = reference::answer(buf, Ends::Lf) else {
        panic!("the reference takes it");
    };
    let framing = match head.length {
        Length::Exact(length) => reference::Framing::Length(length),
        Length::Chunked => reference::Framing::Chunked,
        Length::UntilClose => reference::Framing::Close,
    };
    assert_eq!(
        (
            strict.head,
            strict.status,
            strict.framing,
            strict.persistent
        ),
        (head.len, head.status, framing, head.persistent)
    );
    assert_eq!(strict.fields, shown);
    assert_eq!(strict.reason, head.reason.of(buf));
}

/// What goes to the client is one head with the framing that was asked for, and nothing that the
/// upstream said of its own connection.
fn written(buf: &[u8], head: &Head, fields: &Fields) {
    let resp = WireResp::new(buf, fields, head.status);
    let read = |out: &[u8]| {
        let Found::Whole(again) = reference::answer(out, Ends::CrLf) else {
            panic!("what is written is a head");
        };
        assert_eq!(again.head, out.len(), "and nothing else");
        again
    };
    let kinds = [
        (Framing::None, reference::Framing::Close),
        (Framing::Length(5), reference::Framing::Length(5)),
        (Framing::Chunked, reference::Framing::Chunked),
        (Framing::UntilClose, reference::Framing::Close),
    ];
    for (framing, expected) in kinds {
        let mut out = Vec::new();
        let what = Response {
            status: head.status,
            reason: Some(head.reason.of(buf)),
            ops: &[],
            framing,
            date: b"today",
            persistent: true,
            nominated: &[],
        };
        write_head::response(&mut out, &what, resp.places());
        let again = read(&out);
        assert_eq!(
            (again.status, again.framing, again.persistent),
            (head.status, expected, true)
        );
        assert_eq!(end_to_end(&again.fields), end_to_end(&shown(&resp)));
    }
    let mut out = Vec::new();
    write_head::hints(&mut out, &[], resp.fields());
    let again = read(&out);
    assert_eq!(
        (again.framing, again.persistent),
        (reference::Framing::Close, true)
    );
    assert!(reference::values(&again.fields, b"connection").is_empty());
}

fn shown(resp: &WireResp<'_>) -> Vec<reference::Field> {
    let all = resp.fields();
    all.map(|(_, name, value)| (name.to_ascii_lowercase(), value.to_vec()))
        .collect()
}

fn end_to_end(fields: &[reference::Field]) -> Vec<reference::Field> {
    const OWN: [&str; 8] = [
        "date",
        "connection",
        "content-length",
        "transfer-encoding",
        "keep-alive",
        "proxy-connection",
        "trailer",
        "upgrade",
    ];
    let own = |name: &[u8]| OWN.iter().any(|own| own.as_bytes() == name);
    fields
        .iter()
        .filter(|(name, _)| !own(name))
        .cloned()
        .collect()
}
