//! Replacements in a body.

use bytes::Bytes;
use lockgate_plugin::{Pattern, Problems};
use schemars::JsonSchema;
use serde::Deserialize;

/// A replacement in the body.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct FilterConf {
    /// What is replaced: a regular expression.
    #[schemars(length(min = 1))]
    regex: String,
    /// `once`: the first match. `global`: every match.
    #[serde(default)]
    scope: Scope,
    /// The new text. `$1` and `${1}` are groups, `$0` is the match, `$$` a dollar.
    replace: String,
    /// Flags of the expression: `i` letters of either case, `s` dots also match line ends, `m` `^`
    /// and `$` match at lines, `x` spaces and comments do not count. Others of PCRE are accepted.
    #[serde(default = "options")]
    options: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, serde::Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Scope {
    #[default]
    Once,
    Global,
}

fn options() -> String {
    "jo".to_owned()
}

/// A replacement, ready to be made.
pub(super) struct Filter {
    pattern: Pattern,
    scope: Scope,
    replace: String,
}

impl Filter {
    pub(super) fn new(conf: FilterConf, out: &mut Problems) -> Option<Filter> {
        match Pattern::with_flags(&conf.regex, &conf.options) {
            Ok(pattern) => Some(Filter {
                pattern,
                scope: conf.scope,
                replace: conf.replace,
            }),
            Err(e) => {
                out.add(
                    "regex",
                    format!("regex \"{}\" validation failed: {e}", conf.regex),
                );
                None
            }
        }
    }

    /// The changed text; `None` when nothing matched.
    fn text(&self, text: &str) -> Option<String> {
        match self.scope {
            Scope::Once => self.pattern.replace_once(text, &self.replace),
            Scope::Global => self.pattern.replace_all(text, &self.replace),
        }
    }

    /// The changed bytes. Expressions match text, so that each stretch of valid UTF-8 is looked at
    /// by itself; other bytes stay where they are.
    fn bytes(&self, body: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(body.len());
        let mut changed = false;
        for part in body.utf8_chunks() {
            let done = changed && self.scope == Scope::Once;
            match (!done).then(|| self.text(part.valid())).flatten() {
                Some(text) => {
                    changed = true;
                    out.extend_from_slice(text.as_bytes());
                }
                None => out.extend_from_slice(part.valid().as_bytes()),
            }
            out.extend_from_slice(part.invalid());
        }
        changed.then_some(out)
    }
}

/// Applies filters one after the other.
pub(super) fn apply(filters: &[Filter], body: Vec<u8>) -> Bytes {
    let mut body = body;
    for filter in filters {
        let changed = match std::str::from_utf8(&body) {
            Ok(text) => filter.text(text).map(String::into_bytes),
            Err(_) => filter.bytes(&body),
        };
        body = changed.unwrap_or(body);
    }
    Bytes::from(body)
}
