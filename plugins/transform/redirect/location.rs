//! The address that `uri` describes. Its variables are not those of other templates: a name ends
//! at a dot, so that `$uri.html` works, and there are no defaults.

use lockgate_plugin::{Ctx, Var};

/// A text with variables.
pub(super) struct Location {
    pieces: Vec<Piece>,
}

enum Piece {
    Text(String),
    Var(Var),
}

impl Location {
    /// `\$name` stays as it is, a backslash before anything else is dropped, a `$` before anything
    /// else stays.
    pub(super) fn parse(text: &str) -> Location {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['$', '\\']) {
            plain.push_str(&rest[..at]);
            let found = &rest[at..];
            if let Some(after) = found.strip_prefix("\\$")
                && let Some(name) = name(after)
            {
                plain.push_str(&found[..2 + name.len()]);
                rest = &after[name.len()..];
            } else if let Some((name, after)) = found.strip_prefix('$').and_then(reference) {
                if !plain.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                }
                pieces.push(Piece::Var(Var::parse(name)));
                rest = after;
            } else {
                if found.starts_with('$') {
                    plain.push('$');
                }
                rest = &found[1..];
            }
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Location { pieces }
    }

    /// Whether it uses a variable of which `is` holds.
    pub(super) fn any_var(&self, is: &dyn Fn(&Var) -> bool) -> bool {
        let uses = |piece: &Piece| matches!(piece, Piece::Var(var) if is(var));
        self.pieces.iter().any(uses)
    }

    /// The address for a request. A variable without a value stands for nothing.
    pub(super) fn render(&self, cx: &Ctx<'_>) -> String {
        let mut out = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Var(var) => {
                    if let Some(value) = cx.var(var) {
                        out.push_str(&value.as_text());
                    }
                }
            }
        }
        out
    }
}

/// A variable after `$`: its name and what follows.
fn reference(after: &str) -> Option<(&str, &str)> {
    if let Some(inner) = after.strip_prefix('{') {
        let name = name(inner)?;
        return Some((name, inner[name.len()..].strip_prefix('}')?));
    }
    let name = name(after)?;
    Some((name, &after[name.len()..]))
}

/// The name at the start of the text.
fn name(text: &str) -> Option<&str> {
    let other = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    let name = &text[..text.find(other).unwrap_or(text.len())];
    (!name.is_empty()).then_some(name)
}

/// Percent-encodes what nginx encodes in a path (blank, `#`, `%`, control bytes, everything from
/// DEL up) in front of the first `?`; the query stays.
pub(super) fn encode_path(location: &str) -> String {
    let (path, query) = location.split_at(location.find('?').unwrap_or(location.len()));
    let mut out = String::with_capacity(location.len() + 16);
    for byte in path.bytes() {
        match byte {
            0..=b' ' | b'#' | b'%' | 0x7f.. => {
                const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
                let digit = |n: u8| char::from(DIGITS[usize::from(n)]);
                out.extend(['%', digit(byte >> 4), digit(byte & 15)]);
            }
            byte => out.push(char::from(byte)),
        }
    }
    out.push_str(query);
    out
}
