//! Conditions of `vars`: any JSON is parsed, and evaluated against a request that is made up.
//!
//! The input is the JSON on a line, then the request's target on a line, then fields, an empty line
//! and the body. libFuzzer's `-timeout` bounds the time.
#![no_main]

use std::time::{Instant, SystemTime};

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use lockgate_plugin::header::HeaderKey;
use lockgate_plugin::request::{Conn, Timing, Work};
use lockgate_plugin::var::Lookup;
use lockgate_plugin::{Expr, ReqView, Target};
use serde_json::{Value, json};

fuzz_target!(|data: &[u8]| {
    let (json, rest) = line(data);
    let Ok(value) = serde_json::from_slice::<Value>(json) else {
        return;
    };
    let expr = match (Expr::parse(&value), Expr::parse(&value)) {
        (Ok(expr), Ok(_)) => expr,
        (Err(problem), Err(again)) => {
            assert_eq!(problem.to_string(), again.to_string());
            assert!(leads_somewhere(&value, &problem.path), "{problem}");
            return;
        }
        _ => panic!("the same text is taken once and refused once"),
    };
    let Some((request, work)) = request(rest) else {
        return;
    };
    let lookup = Lookup {
        req: &request,
        resp: None,
        work: &work,
    };
    let holds = expr.eval(&lookup);
    assert_eq!(expr.eval(&lookup), holds, "not deterministic");
    let _ = (expr.needs_body(), expr.needs_response());
    // Too deep inside one more list: nothing to compare with.
    if let Ok(not) = Expr::parse(&json!(["!AND", value, value])) {
        assert_eq!(
            not.eval(&lookup),
            !holds,
            "its negation is not the opposite"
        );
    }
    if let Ok(both) = Expr::parse(&json!(["OR", value, value])) {
        assert_eq!(both.eval(&lookup), holds, "twice is not the same as once");
    }
});

/// Whether a problem's path, such as `[0][1]`, is a place in the value.
fn leads_somewhere(value: &Value, path: &str) -> bool {
    let mut value = value;
    for step in path.split_terminator(']') {
        let index = step
            .strip_prefix('[')
            .and_then(|step| step.parse::<usize>().ok());
        match index.and_then(|index| value.get(index)) {
            Some(inner) => value = inner,
            None => return false,
        }
    }
    true
}

fn line(data: &[u8]) -> (&[u8], &[u8]) {
    match data.iter().position(|&b| b == b'\n') {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, b""),
    }
}

/// A request head.
struct Request<'a> {
    target: &'a [u8],
    fields: Vec<(String, &'a [u8])>,
}

fn request(data: &[u8]) -> Option<(Request<'_>, Work)> {
    let (target, mut rest) = line(data);
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let (field, after) = line(rest);
        rest = after;
        if field.is_empty() {
            break;
        }
        let colon = field.iter().position(|&b| b == b':')?;
        let name = std::str::from_utf8(&field[..colon]).ok()?;
        fields.push((name.to_ascii_lowercase(), field[colon + 1..].trim_ascii()));
    }
    let timing = Timing {
        start: Instant::now(),
        wall: SystemTime::UNIX_EPOCH,
    };
    let mut work = Work::new(Conn::default(), Target::parse(target).ok()?, timing);
    // Over already: the variables of time stand still.
    work.finished = Some(timing.start);
    work.body = Some(Bytes::copy_from_slice(rest));
    Some((Request { target, fields }, work))
}

impl ReqView for Request<'_> {
    fn method(&self) -> &str {
        "POST"
    }
    fn target(&self) -> &[u8] {
        self.target
    }
    fn version(&self) -> u8 {
        11
    }
    fn authority(&self) -> &[u8] {
        self.fields
            .iter()
            .find(|(name, _)| name == "host")
            .map_or(b"", |(_, value)| value)
    }
    fn header(&self, key: &HeaderKey) -> Option<&[u8]> {
        self.fields
            .iter()
            .find(|(name, _)| name == key.lower())
            .map(|(_, value)| *value)
    }
    fn each(&self, key: &HeaderKey, f: &mut dyn FnMut(&[u8])) {
        self.fields
            .iter()
            .filter(|(name, _)| name == key.lower())
            .for_each(|(_, value)| f(value));
    }
    fn visit(&self, f: &mut dyn FnMut(&[u8], &[u8])) {
        self.fields
            .iter()
            .for_each(|(name, value)| f(name.as_bytes(), value));
    }
}
