//! The path normaliser against its rules, written again as plainly as they can be: decode, split,
//! keep a stack of segments. The first byte of the input chooses the options of matching.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockgate_plugin::Target;
use lockgate_plugin::target::{BadTarget, MatchOptions, arg, arg_value, host_of};

fuzz_target!(|data: &[u8]| {
    let Some((&choice, raw)) = data.split_first() else {
        return;
    };
    let parsed = Target::parse(raw);
    match (&parsed, model(raw)) {
        (Ok(target), Ok(expected)) => accepted(raw, target, &expected, choice),
        (got, expected) => assert_eq!(got.as_ref().err(), expected.as_ref().err()),
    }
    host_of(raw);
});

/// What the rules give.
struct Expected {
    path: String,
    args: Option<String>,
}

fn model(raw: &[u8]) -> Result<Expected, BadTarget> {
    if raw.first() != Some(&b'/') {
        return Err(BadTarget::NotAbsolute);
    }
    if raw.iter().any(|&b| b <= b' ' || b == 0x7f) {
        return Err(BadTarget::Control);
    }
    let end = raw.iter().position(|&b| b == b'#').unwrap_or(raw.len());
    let mut parts = raw[..end].splitn(2, |&b| b == b'?');
    let decoded = decode(parts.next().unwrap_or_default())?;
    let args = parts.next().filter(|args| !args.is_empty()).map(text);
    let mut stack: Vec<&[u8]> = Vec::new();
    let segments: Vec<&[u8]> = decoded[1..].split(|&b| b == b'/').collect();
    for segment in &segments {
        match *segment {
            b"" | b"." => {}
            b".." => drop(stack.pop().ok_or(BadTarget::AboveRoot)?),
            segment => stack.push(segment),
        }
    }
    let mut path = b"/".to_vec();
    path.extend(stack.join(&b'/'));
    // What ends in a folder keeps the slash.
    if path.len() > 1 && matches!(segments.last(), Some(&b"" | &b"." | &b"..")) {
        path.push(b'/');
    }
    Ok(Expected {
        path: text(&path),
        args,
    })
}

fn decode(path: &[u8]) -> Result<Vec<u8>, BadTarget> {
    let mut out = Vec::new();
    let mut at = 0;
    let mut nul = false;
    while at < path.len() {
        if path[at] != b'%' {
            out.push(path[at]);
            at += 1;
            continue;
        }
        let digits = path.get(at + 1..at + 3).ok_or(BadTarget::Escape)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(BadTarget::Escape);
        }
        let digits = std::str::from_utf8(digits).expect("digits are text");
        let byte = u8::from_str_radix(digits, 16).expect("two digits");
        // The first mistake is the one that is named.
        nul |= byte == 0;
        if nul {
            return Err(BadTarget::Nul);
        }
        out.push(byte);
        at += 3;
    }
    Ok(out)
}

/// As text; what is not UTF-8 as escapes.
fn text(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        for byte in chunk.invalid() {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn accepted(raw: &[u8], target: &Target, expected: &Expected, choice: u8) {
    let path = target.uri(raw);
    let args = target.args(raw);
    assert_eq!(path, expected.path);
    assert_eq!(args, expected.args.as_deref());
    is_normal(path);
    let whole = target.request_uri(raw);
    assert_eq!(
        whole.strip_prefix(path).map(|rest| rest.strip_prefix('?')),
        Some(args)
    );

    // What goes upstream means the same, and nothing is left to normalise in it.
    let sent = target.upstream_target(raw);
    is_sendable(&sent);
    let again = Target::parse(&sent).expect("what is sent is a target");
    assert_eq!(again.uri(&sent), path);
    assert_eq!(again.args(&sent), args);
    assert_eq!(again.upstream_target(&sent), sent);

    // A plugin that sets the path to what it is changes nothing.
    let mut same = target.clone();
    let rewritten = same.rewrite(path, args);
    is_sendable(&rewritten);
    let parsed = Target::parse(&rewritten).expect("what is sent is a target");
    assert_eq!(parsed.uri(&rewritten), path);
    assert_eq!((same.uri(raw), same.args(raw)), (path, args));
    // Whatever text a plugin sets, the request line holds.
    let any = String::from_utf8_lossy(raw);
    is_sendable(&same.rewrite(&any, Some(&any)));

    matching(raw, target, path, choice);
    let name = String::from_utf8_lossy(raw.get(1..3).unwrap_or_default());
    if let Some(args) = args {
        assert_eq!(arg(args, &name).is_some(), arg_value(args, &name).is_some());
    }
}

fn matching(raw: &[u8], target: &Target, path: &str, choice: u8) {
    let options = MatchOptions {
        delete_tail_slash: choice & 1 != 0,
        like_servlet: choice & 2 != 0,
        encoded_slash: choice & 4 != 0,
    };
    let Ok(matched) = target.match_path(raw, &options) else {
        assert!(options.like_servlet);
        return;
    };
    assert!(matched.starts_with('/'));
    assert!(!matched.contains('\0'));
    if options == MatchOptions::default() {
        assert_eq!(matched, path);
    }
    if options.like_servlet {
        assert!(!matched.contains(';'));
    } else if options.delete_tail_slash {
        assert!(matched.len() == 1 || !matched.ends_with('/'));
    }
    is_normal(&matched);
}

fn is_normal(path: &str) {
    assert!(path.starts_with('/') && !path.contains('\0'));
    let segments: Vec<&str> = path[1..].split('/').collect();
    assert!(!segments.contains(&".") && !segments.contains(&".."));
    assert!(!segments[..segments.len() - 1].contains(&""));
}

fn is_sendable(sent: &[u8]) {
    assert_eq!(sent.first(), Some(&b'/'));
    assert!(!sent.iter().any(|&b| b <= b' ' || b == 0x7f || b == b'#'));
}
