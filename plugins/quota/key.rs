//! Where a limit is counted.

use std::fmt::Write;

/// A key text beyond this is replaced by its digest: a client may choose it, and neither the wire nor
/// the server's memory is its to fill.
const LONGEST: usize = 64;

/// The key of a limit: `gw:{scope}:rule:text`. Limits of one request have to have one scope in a cluster: it
/// names the slot.
pub fn key_text(scope: &str, rule: &str, text: &str) -> String {
    let mut key = String::with_capacity(16 + scope.len() + rule.len() + text.len().min(LONGEST));
    key.push_str("gw:{");
    // A brace would end the part that names the slot.
    key.extend(scope.chars().filter(|c| !matches!(c, '{' | '}')));
    key.push_str("}:");
    key.push_str(rule);
    key.push(':');
    push(&mut key, text);
    key
}

/// Appends what a client may have chosen.
fn push(key: &mut String, text: &str) {
    if text.len() <= LONGEST {
        key.push_str(text);
        return;
    }
    // Strings take what is written.
    let _ = write!(key, "#{}", sha1_smol::Sha1::from(text).digest());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_digests_and_scopes_keep_their_slot() {
        assert_eq!(
            key_text("ann", "per-user", "192.0.2.1"),
            "gw:{ann}:per-user:192.0.2.1"
        );
        assert_eq!(key_text("a}b{c", "r", "x"), "gw:{abc}:r:x");
        let long = |c: &str| key_text("s", "r", &c.repeat(1 << 20));
        assert_eq!(long("x").len(), "gw:{s}:r:#".len() + 40);
        assert_ne!(long("x"), long("y"));
    }
}
