//! Text with variables in it, parsed once.
//!
//! `$name` and `${name}` stand for variables, `${name ?? text}` gives a default, `\$` is a dollar
//! that is left alone (with its backslash, as in APISIX). Unlike in nginx, names may hold dots.
//!
//! ```
//! # use lockgate_plugin::Template;
//! assert!(Template::parse("https://example.com/").is_constant());
//! assert!(Template::parse("${post_arg.model ?? none}").needs_body());
//! ```

use std::borrow::Cow;

use crate::var::{Var, VarSource, VarValue};

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
        let mut out = String::new();
        let resolved = self.each_piece(source, &mut |_, piece| out.push_str(piece));
        (out, resolved)
    }

    /// The pieces of the text with their places, one after the other, without putting them together;
    /// returns how many variables had a value or a default. A variable without one is no piece, and its
    /// place is left out.
    pub fn each_piece(&self, source: &dyn VarSource, f: &mut dyn FnMut(usize, &str)) -> usize {
        let mut resolved = 0;
        for (at, piece) in self.pieces.iter().enumerate() {
            match piece {
                Piece::Text(text) => f(at, text),
                Piece::Var { var, default } => {
                    let value = source.var(var);
                    let text = value.as_ref().map(VarValue::as_text);
                    if let Some(text) = text.as_deref().or(default.as_deref()) {
                        f(at, text);
                        resolved += 1;
                    }
                }
            }
        }
        resolved
    }

    /// Whether there are no variables in it.
    pub fn is_constant(&self) -> bool {
        self.vars().next().is_none()
    }

    /// Whether there is more than one variable in it.
    pub fn has_several_vars(&self) -> bool {
        self.vars().nth(1).is_some()
    }

    /// Whether it uses a variable of which `is` holds.
    pub fn any_var(&self, is: &dyn Fn(&Var) -> bool) -> bool {
        self.vars().any(is)
    }

    /// Whether some variable looks into the request body.
    pub fn needs_body(&self) -> bool {
        self.vars().any(Var::needs_body)
    }

    /// Whether some variable comes with the response.
    pub fn needs_response(&self) -> bool {
        self.vars().any(Var::needs_response)
    }

    fn vars(&self) -> impl Iterator<Item = &Var> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Var { var, .. } => Some(var),
            Piece::Text(_) => None,
        })
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
    let other = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.');
    let (name, next) = after.split_at(after.find(other).unwrap_or(after.len()));
    (!name.is_empty()).then(|| (Var::parse(name), None, next))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(
            Template::parse(text).render_counted(&Fixed),
            (expected.to_owned(), resolved),
            "{text}"
        );
        assert_eq!(Template::parse(text).render(&Fixed), expected);
    }

    #[test]
    fn texts() {
        check("", "", 0);
        check("plain", "plain", 0);
        check("$uri", "/a", 1);
        check("x${uri}y$uri", "x/ay/a", 2);
        check("${ uri }", "/a", 1);
        check("$uri-$uri", "/a-/a", 2);
        check("$nothing.", "", 0);
        check("${nothing}!", "!", 0);
        check("${nothing ?? else}", "else", 1);
        check("${nothing ?? a ?? b}", "a ?? b", 1);
        check("${nothing??}", "", 1);
        check("${uri ?? else}", "/a", 1);
        check("\\$uri", "\\$uri", 0);
        check("\\${uri}", "\\${uri}", 0);
        check("$uri\\$uri", "/a\\$uri", 1);
        check("5$ and $", "5$ and $", 0);
        check("${}", "${}", 0);
        check("${ }", "${ }", 0);
        check("${uri", "${uri", 0);
        check("$$uri", "$/a", 1);
        check("é$urié", "é/aé", 1);
        check("é${uri}é", "é/aé", 1);
        check("${arg_flag}", "true", 1);
    }

    #[test]
    fn what_is_known_beforehand() {
        let check = |text: &str, constant: bool, body: bool, response: bool, unknown: &[&str]| {
            let template = Template::parse(text);
            let got = (
                template.is_constant(),
                template.needs_body(),
                template.needs_response(),
            );
            assert_eq!(got, (constant, body, response), "{text}");
            let names = template.vars().filter(|var| !var.is_known()).map(Var::name);
            assert_eq!(names.collect::<Vec<_>>(), unknown, "{text}");
            let borrowed = matches!(template.render(&Fixed), Cow::Borrowed(_));
            assert_eq!(borrowed, constant, "{text}");
        };
        check("", true, false, false, &[]);
        check("a \\$uri", true, false, false, &[]);
        check("$uri", false, false, false, &[]);
        check("$uri$post_arg_a", false, true, false, &[]);
        check("${status}", false, false, true, &[]);
        check(
            "$uri $nope ${nope.2}",
            false,
            false,
            false,
            &["nope", "nope.2"],
        );
    }
}
