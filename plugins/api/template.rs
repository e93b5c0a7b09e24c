//! Text with variables in it, parsed once.
//!
//! `$name` and `${name}` stand for variables, `${name ?? text}` gives a default,
//! `\$` is a dollar that is left alone (with its backslash, as in APISIX).

use std::borrow::Cow;

use crate::var::{Var, VarSource};

/// A parsed template.
#[derive(Clone, Debug, Default)]
pub struct Template {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug)]
enum Piece {
    Text(String),
    Var { var: Var, default: Option<String> },
}

impl Template {
    /// Parses a template. Text that is not well formed stands for itself.
    pub fn parse(text: &str) -> Template {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            let escaped = rest[..at].ends_with('\\');
            plain.push_str(&rest[..at]);
            let after = &rest[at + 1..];
            match (!escaped).then(|| reference(after)).flatten() {
                Some((var, default, next)) => {
                    if !plain.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    }
                    pieces.push(Piece::Var { var, default });
                    rest = next;
                }
                None => {
                    plain.push('$');
                    rest = after;
                }
            }
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Template { pieces }
    }

    /// The text for a request. Borrowed when the template has no variables. Variables without a
    /// value stand for nothing.
    pub fn render<'a>(&'a self, source: &dyn VarSource) -> Cow<'a, str> {
        match self.pieces.as_slice() {
            [] => Cow::Borrowed(""),
            [Piece::Text(text)] => Cow::Borrowed(text),
            _ => Cow::Owned(self.render_counted(source).0),
        }
    }

    /// The text, and how many variables had a value or a default.
    pub fn render_counted(&self, source: &dyn VarSource) -> (String, usize) {
        let (mut out, mut resolved) = (String::new(), 0);
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Var { var, default } => {
                    if let Some(value) = source.var(var) {
                        out.push_str(&value.as_text());
                        resolved += 1;
                    } else if let Some(default) = default {
                        out.push_str(default);
                        resolved += 1;
                    }
                }
            }
        }
        (out, resolved)
    }

    /// Whether there are no variables in it.
    pub fn is_constant(&self) -> bool {
        self.pieces.iter().all(|piece| matches!(piece, Piece::Text(_)))
    }

    /// Whether some variable looks into the request body.
    pub fn needs_body(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Var { var, .. } if var.needs_body()))
    }
}

/// A variable after `$`: the variable, its default, and what follows.
fn reference(after: &str) -> Option<(Var, Option<String>, &str)> {
    if let Some((inner, next)) = after.strip_prefix('{').and_then(|s| s.split_once('}')) {
        let (name, default) = match inner.split_once("??") {
            Some((name, default)) => (name.trim(), Some(default.trim().to_owned())),
            None => (inner.trim(), None),
        };
        return (!name.is_empty()).then(|| (Var::parse(name), default, next));
    }
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.');
    let (name, next) = after.split_at(after.find(word).unwrap_or(after.len()));
    (!name.is_empty()).then(|| (Var::parse(name), None, next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::var::VarValue;

    struct Fixed;
    impl VarSource for Fixed {
        fn var<'b>(&'b self, var: &'b Var) -> Option<VarValue<'b>> {
            match var.name() {
                "uri" => Some(VarValue::Str("/a".into())),
                "arg_flag" => Some(VarValue::True),
                _ => None,
            }
        }
    }

    fn check(text: &str, expected: &str, resolved: usize) {
        assert_eq!(Template::parse(text).render_counted(&Fixed), (expected.to_owned(), resolved), "{text}");
        assert_eq!(Template::parse(text).render(&Fixed), expected);
    }

    #[test]
    fn texts() {
        check("plain", "plain", 0);
        check("$uri", "/a", 1);
        check("x${uri}y$uri", "x/ay/a", 2);
        check("${ uri }", "/a", 1);
        check("$nothing.", "", 0);
        check("${nothing ?? else}", "else", 1);
        check("${uri ?? else}", "/a", 1);
        check("\\$uri", "\\$uri", 0);
        check("5$ and $", "5$ and $", 0);
        check("${}", "${}", 0);
        check("${arg_flag}", "true", 1);
    }
}
