//! Which header fields the configuration looks at: the requests that are kept to try changes on keep
//! those, and no others.
//!
//! Conditions, keys of limits and templates name a field `http_x_tenant`, wherever they stand, so texts
//! are searched for such names. Fields that may hold a secret are left out: by their own name, and
//! where the plugin that reads a secret from them names them.

use std::collections::BTreeSet;
use std::sync::Arc;

use lockgate_plugin::HeaderKey;
use serde_json::Value;

/// Fields that are kept: what a configuration tells requests apart by is few.
const MOST: usize = 32;
/// Names that are remembered: a configuration may be edited for years.
const MOST_KNOWN: usize = 256;
/// How a variable of a field begins.
const PREFIX: &str = "http_";
/// The longest name of one.
const LONGEST: usize = 64;
/// Parts of names that belong to secrets.
const SECRET: &[&str] = &[
    "auth",
    "cookie",
    "key",
    "token",
    "secret",
    "pass",
    "session",
    "signature",
    "credential",
    "jwt",
    "csrf",
    "cert",
    "otp",
    "pin",
];
/// Members by which plugins name the field that a secret is in.
const PLACES: &[&str] = &["header", "header_name"];
/// Fields that are known anyhow, or say who it is.
const NEVER: &[&str] = &["host", "x-forwarded-for", "x-real-ip", "referer"];

/// What was found so far. Only grows: a field that is no longer looked at is kept a while longer.
#[derive(Default)]
pub struct LookedAt {
    found: BTreeSet<String>,
    secret: BTreeSet<String>,
    fields: Arc<[HeaderKey]>,
}

impl LookedAt {
    /// The fields.
    pub fn fields(&self) -> &Arc<[HeaderKey]> {
        &self.fields
    }

    /// A resource as it was written.
    pub fn learn(&mut self, value: &Value) {
        let before = (self.found.len(), self.secret.len());
        self.walk(value);
        if before == (self.found.len(), self.secret.len()) {
            return;
        }
        let open = self
            .found
            .iter()
            .filter(|name| !self.secret.contains(*name));
        let keys = open.filter_map(|name| HeaderKey::from_var(name).ok());
        self.fields = keys.take(MOST).collect();
    }

    fn walk(&mut self, value: &Value) {
        match value {
            Value::String(text) => names(text, |name| {
                if !is_secret(&name) && self.found.len() < MOST_KNOWN {
                    self.found.insert(name);
                }
            }),
            Value::Array(list) => list.iter().for_each(|item| self.walk(item)),
            Value::Object(map) => {
                for (name, inner) in map {
                    match inner.as_str().filter(|_| PLACES.contains(&name.as_str())) {
                        Some(field) if self.secret.len() < MOST_KNOWN => {
                            self.secret.insert(spelled(field));
                        }
                        // Of what is behind nothing is known: rather no field than a secret one.
                        Some(field) => {
                            self.found.remove(&spelled(field));
                        }
                        None => self.walk(inner),
                    }
                }
            }
            _ => {}
        }
    }
}

/// As a field is called.
fn spelled(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "-")
}

/// Whether a field may hold a secret, or is not worth keeping.
fn is_secret(name: &str) -> bool {
    NEVER.contains(&name) || SECRET.iter().any(|part| name.contains(part))
}

/// How variables begin that clients fill in.
const OF_CLIENTS: &[&str] = &["http_", "arg_", "post_arg_"];

/// Whether a text names a variable whose value may be a secret of a client's, as the key of a limit may.
pub(crate) fn reads_secret(text: &str) -> bool {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.map(str::to_ascii_lowercase).any(|word| {
        let named = |prefix: &&str| word.strip_prefix(*prefix).map(spelled);
        let mut names = OF_CLIENTS.iter().filter_map(named);
        word.starts_with("cookie_")
            || names.any(|name| SECRET.iter().any(|part| name.contains(part)))
    })
}

/// Every name of a field in a text.
fn names(text: &str, mut found: impl FnMut(String)) {
    let mut rest = text;
    let mut before = None;
    while let Some(at) = rest.find(PREFIX) {
        let before_it = rest[..at].chars().next_back().or(before);
        let name = &rest[at + PREFIX.len()..];
        let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let name = &name[..end.unwrap_or(name.len())];
        let begins = !before_it.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
        if begins && (1..=LONGEST).contains(&name.len()) {
            found(spelled(name));
        }
        before = rest[..at + PREFIX.len()].chars().next_back();
        rest = &rest[at + PREFIX.len()..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_may_hold_a_secret() {
        for text in [
            "http_x_api_key",
            "$remote_addr $http_Authorization",
            "${arg_token}",
            "cookie_id",
        ] {
            assert!(reads_secret(text), "{text}");
        }
        for text in [
            "",
            "remote_addr",
            "$http_host",
            "$http_x_tenant",
            "consumer_name",
            "$arg_page",
        ] {
            assert!(!reads_secret(text), "{text}");
        }
    }
    use serde_json::json;

    #[test]
    fn fields_are_found_wherever_they_are_named() {
        let check = |values: &[Value], expected: &[&str]| {
            let mut looked_at = LookedAt::default();
            values.iter().for_each(|value| looked_at.learn(value));
            let got: Vec<&str> = looked_at.fields().iter().map(HeaderKey::lower).collect();
            assert_eq!(got, expected, "{values:?}");
        };
        check(&[json!({"vars": [["http_x_env", "==", "a"]]})], &["x-env"]);
        check(
            &[json!({"plugins": {"limit-count": {"key": "$remote_addr $http_x_tenant"}}})],
            &["x-tenant"],
        );
        check(
            &[json!({"a": "http_b"}), json!(["http_a${http_c}"])],
            &["a", "b", "c"],
        );
        // Neither secrets nor what is no name of a field.
        check(
            &[json!([
                "http_authorization",
                "http_x_api_key",
                "http_cookie",
                "http_x_csrf_token"
            ])],
            &[],
        );
        check(
            &[json!([
                "sent_http_x",
                "http_",
                "http://a.test",
                "xhttp_y",
                "HTTP_Z"
            ])],
            &[],
        );
        // A plugin that reads a secret from it knows better than its name, before and after.
        let vars = json!({"vars": [["http_x_team", "==", "a"]]});
        let auth = json!({"plugins": {"key-auth": {"header": "X-Team"}}});
        check(&[vars.clone(), auth.clone()], &[]);
        check(&[auth, vars], &[]);
        let many: Vec<Value> = (0..100).map(|n| json!(format!("http_f{n:03}"))).collect();
        let mut looked_at = LookedAt::default();
        many.iter().for_each(|value| looked_at.learn(value));
        assert_eq!(looked_at.fields().len(), MOST);
    }
}
