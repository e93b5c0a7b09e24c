//! Values from the environment are not shown: what a mistake is about may be a password, and errors
//! end up in logs and tickets.

use std::cell::RefCell;

use lockgate_plugin::Problems;

/// Shorter ones are switches and small numbers, and would be found where they are not meant.
const SHORTEST: usize = 4;
/// So much of a value is enough to know it by: errors cut long ones off.
const KNOWN_BY: usize = 12;

/// Looks variables up and remembers what it gave away.
pub struct Filling<'a> {
    env: &'a dyn Fn(&str) -> Option<String>,
    used: RefCell<Vec<(String, String)>>,
}

impl<'a> Filling<'a> {
    /// Over the environment.
    pub fn new(env: &'a dyn Fn(&str) -> Option<String>) -> Filling<'a> {
        Filling {
            env,
            used: RefCell::default(),
        }
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<String> {
        let value = (self.env)(name)?;
        let mut used = self.used.borrow_mut();
        if value.len() >= SHORTEST && used.iter().all(|(known, _)| known != name) {
            used.push((name.to_owned(), value.clone()));
        }
        Some(value)
    }

    /// What was given away.
    pub fn into_hidden(self) -> Hidden {
        let mut hidden = Hidden::default();
        hidden.merge(Hidden(self.used.into_inner()));
        hidden
    }
}

/// Names and values that errors may not show.
#[derive(Clone, Debug, Default)]
pub struct Hidden(Vec<(String, String)>);

impl Hidden {
    /// What either may not show.
    pub(super) fn merge(&mut self, other: Hidden) {
        self.0.extend(other.0);
        // Of two values of which one begins the other, the longer one is meant.
        self.0
            .sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
    }

    /// Puts the variable's name where its value is told.
    pub fn mask(&self, problems: &mut Problems) {
        if self.0.is_empty() {
            return;
        }
        for problem in problems.iter_mut() {
            self.mask_text(&mut problem.message);
            problem
                .hint
                .iter_mut()
                .for_each(|hint| self.mask_text(hint));
        }
    }

    fn mask_text(&self, text: &mut String) {
        for (name, value) in &self.0 {
            // Told as it is, or as JSON writes it.
            let quoted = serde_json::Value::from(value.as_str()).to_string();
            let forms = [value.as_str(), quoted.trim_matches('"')];
            for form in forms {
                replace(text, form, forms, name);
            }
        }
    }
}

/// Replaces what begins like `form`, as far as it goes on like one of the forms.
fn replace(text: &mut String, form: &str, forms: [&str; 2], name: &str) {
    let known = form.char_indices().nth(KNOWN_BY);
    let known = &form[..known.map_or(form.len(), |(at, _)| at)];
    if known.is_empty() || !text.contains(known) {
        return;
    }
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find(known) {
        let told = &rest[at..];
        let len = forms.map(|form| same(told, form)).into_iter().max();
        out.push_str(&rest[..at]);
        out.push_str(&format!("${{{{{name}}}}}"));
        rest = &told[len.unwrap_or(0).max(known.len())..];
    }
    out.push_str(rest);
    *text = out;
}

/// How many bytes both texts begin with.
fn same(one: &str, other: &str) -> usize {
    let pairs = one.chars().zip(other.chars());
    let same = pairs.take_while(|(one, other)| one == other);
    same.map(|(char, _)| char.len_utf8()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(text: &str) -> String {
        let env = |name: &str| match name {
            "PASSWORD" => Some("12345678".to_owned()),
            "LONG" => Some("a-very-long-secret \"that\" goes on".to_owned()),
            "ON" => Some("on".to_owned()),
            _ => None,
        };
        let filling = Filling::new(&env);
        for name in ["PASSWORD", "LONG", "ON", "NONE", "LONG"] {
            filling.get(name);
        }
        let mut problems = Problems::default();
        problems.add("a", text);
        filling.into_hidden().mask(&mut problems);
        problems.to_string()
    }

    #[test]
    fn values_are_not_told() {
        for (text, expected) in [
            (
                "found 12345678, or 12345678",
                "a: found ${{PASSWORD}}, or ${{PASSWORD}}",
            ),
            ("found 1234567", "a: found 1234567"),
            (
                "found a-very-long-secret \"that\" goes on",
                "a: found ${{LONG}}",
            ),
            (
                "found \"a-very-long-secret \\\"that\\\" goes on\"",
                "a: found \"${{LONG}}\"",
            ),
            ("found \"a-very-long-sec…\"", "a: found \"${{LONG}}…\""),
            ("on", "a: on"),
        ] {
            assert_eq!(masked(text), expected);
        }
    }
}
