//! Where a limit is counted.

use std::fmt::Write;

/// A key text beyond this is replaced by its digest: a client may choose it, and neither the wire nor
/// the server's memory is its to fill.
const LONGEST: usize = 64;

/// The parts of a key: see [`key_text`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name<'a> {
    /// Names the slot in a cluster.
    pub scope: &'a str,
    /// Which limit.
    pub rule: &'a str,
    /// Whose count.
    pub text: &'a str,
}

impl Name<'_> {
    /// The key.
    pub fn key(&self) -> String {
        key_text(self.scope, self.rule, self.text)
    }
}

/// The key of a limit: `gw:{scope}:rule:text`. Limits of one request have to have one scope in a cluster: it
/// names the slot. Different parts make different keys, whoever chose them.
pub fn key_text(scope: &str, rule: &str, text: &str) -> String {
    let mut key = String::with_capacity(16 + scope.len() + rule.len() + text.len().min(LONGEST));
    key.push_str("gw:{");
    // Without anything between the braces they would not name a slot.
    part(&mut key, if scope.is_empty() { "%" } else { scope });
    key.push_str("}:");
    part(&mut key, rule);
    key.push(':');
    if text.len() <= LONGEST && !text.starts_with('#') {
        key.push_str(text);
    } else {
        // Strings take what is written.
        let _ = write!(key, "#{}", sha1_smol::Sha1::from(text).digest());
    }
    key
}

/// Where it is written down who took permits of a count: in the same slot of a cluster, with the same
/// beginning, as access lists may go by it, and never where another limit is counted.
pub(crate) fn book_of(key: &str) -> String {
    match key.strip_prefix("gw:{") {
        Some(rest) => format!("gw:lease:{{{rest}"),
        None if key.contains('{') => format!("gw:lease:+{key}"),
        None => format!("gw:lease:+{{{key}}}"),
    }
}

/// A part that others follow, without what would end it.
fn part(key: &mut String, part: &str) {
    for c in part.chars() {
        match c {
            '{' => key.push_str("%7B"),
            '}' => key.push_str("%7D"),
            ':' => key.push_str("%3A"),
            '%' => key.push_str("%25"),
            c => key.push(c),
        }
    }
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
        assert_eq!(key_text("a}b", "r", "x"), "gw:{a%7Db}:r:x");
        assert_ne!(key_text("s", "a", "b:c"), key_text("s", "a:b", "c"));
        assert!(key_text("", "r", "x").starts_with("gw:{%"));
        let long = |c: &str| key_text("s", "r", &c.repeat(1 << 20));
        assert_eq!(long("x").len(), "gw:{s}:r:#".len() + 40);
        assert_ne!(long("x"), long("y"));
        // Nobody gets the key of another by naming its digest.
        let digest = long("x").split_once("r:").unwrap().1.to_owned();
        assert_ne!(key_text("s", "r", &digest), long("x"));
    }

    #[test]
    fn a_book_is_in_the_slot_of_its_count() {
        assert_eq!(book_of("gw:{a}:r:x"), "gw:lease:{a}:r:x");
        assert_eq!(book_of("other:{a}:x"), "gw:lease:+other:{a}:x");
        assert_eq!(book_of("plugin-limit"), "gw:lease:+{plugin-limit}");
    }
}
