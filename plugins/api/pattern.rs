//! Regular expressions with the syntax and meaning of PCRE, as far as APISIX's users see them.
//!
//! Patterns without look-around or back-references run in linear time. Others
//! run with a step limit: a match that exceeds it counts as no match.
//!
//! ```
//! # use lockgate_plugin::Pattern;
//! let pattern = Pattern::new("^/v(\\d+)/(.*)$").unwrap();
//! assert_eq!(pattern.replace_once("/v2/cats", "/$2?v=${1}").as_deref(), Some("/cats?v=2"));
//! ```

use fancy_regex::{Captures, Regex, RegexBuilder};

/// Steps of the backtracking engine before a match is given up.
const BACKTRACK_LIMIT: usize = 100_000;
/// Bytes that a compiled pattern may take.
const SIZE_LIMIT: usize = 4 << 20;

/// A compiled regular expression.
#[derive(Clone, Debug)]
pub struct Pattern {
    regex: Regex,
}

/// The text is not a regular expression, or asks for an unknown flag.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadPattern(String);

impl Pattern {
    /// Compiles a case-sensitive pattern.
    ///
    /// # Errors
    /// In words, what is wrong with the pattern.
    pub fn new(text: &str) -> Result<Pattern, BadPattern> {
        Pattern::with_flags(text, "")
    }

    /// Compiles with PCRE flags as `ngx.re` takes them: `i s m x u`; `j o a d D` only tune the
    /// original's engine and are accepted.
    ///
    /// # Errors
    /// As for [`new`](Self::new); also for an unknown flag.
    pub fn with_flags(text: &str, flags: &str) -> Result<Pattern, BadPattern> {
        let mut inline = String::new();
        for flag in flags.chars() {
            match flag {
                'i' | 's' | 'm' | 'x' => inline.push(flag),
                'u' | 'U' | 'j' | 'o' | 'a' | 'd' | 'D' => {}
                other => return Err(BadPattern(format!("unknown flag \"{other}\""))),
            }
        }
        let text = match inline.is_empty() {
            true => text.to_owned(),
            false => format!("(?{inline}:{text})"),
        };
        let regex = RegexBuilder::new(&text)
            .backtrack_limit(BACKTRACK_LIMIT)
            .delegate_size_limit(SIZE_LIMIT)
            .build()
            .map_err(|e| BadPattern(e.to_string()))?;
        Ok(Pattern { regex })
    }

    /// Whether the pattern occurs anywhere in the text.
    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text).unwrap_or(false)
    }

    /// The first match, as byte offsets.
    pub fn find(&self, text: &str) -> Option<(usize, usize)> {
        self.regex.find(text).ok().flatten().map(|found| (found.start(), found.end()))
    }

    /// The groups of the first match; group 0 is the whole match.
    pub fn captures(&self, text: &str) -> Option<Vec<Option<String>>> {
        let found = self.regex.captures(text).ok().flatten()?;
        let group = |i| found.get(i).map(|m| m.as_str().to_owned());
        Some((0..found.len()).map(group).collect())
    }

    /// Replaces the first match. In the replacement `$1` and `${1}` stand for groups, `$0` and
    /// `$&` for the match, `$$` for a dollar. `None` when there is no match.
    pub fn replace_once(&self, text: &str, replacement: &str) -> Option<String> {
        self.replace(text, replacement, 1)
    }

    /// Replaces every match; `None` when there is none.
    pub fn replace_all(&self, text: &str, replacement: &str) -> Option<String> {
        self.replace(text, replacement, usize::MAX)
    }

    fn replace(&self, text: &str, replacement: &str, limit: usize) -> Option<String> {
        let mut out = String::with_capacity(text.len());
        let mut last = 0;
        for found in self.regex.captures_iter(text).take(limit) {
            // The step limit was hit: what was replaced so far stands.
            let Ok(found) = found else { break };
            let Some(whole) = found.get(0) else { break };
            out.push_str(&text[last..whole.start()]);
            expand(replacement, &found, &mut out);
            last = whole.end();
        }
        if last == 0 && out.is_empty() && !self.is_match(text) {
            return None;
        }
        out.push_str(&text[last..]);
        Some(out)
    }
}

/// Puts the groups of a match into a replacement text.
fn expand(replacement: &str, found: &Captures<'_>, out: &mut String) {
    let mut rest = replacement;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(next) = after.strip_prefix('$') {
            out.push('$');
            rest = next;
            continue;
        }
        if let Some(next) = after.strip_prefix('&') {
            out.push_str(found.get(0).map_or("", |m| m.as_str()));
            rest = next;
            continue;
        }
        let braced = after.strip_prefix('{').and_then(|inner| inner.split_once('}'));
        let (digits, next) = match braced {
            Some((name, next)) if name.bytes().all(|b| b.is_ascii_digit()) => (name, next),
            _ => {
                let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
                after.split_at(end)
            }
        };
        match digits.parse::<usize>() {
            Ok(group) => out.push_str(found.get(group).map_or("", |m| m.as_str())),
            Err(_) => {
                out.push('$');
                rest = after;
                continue;
            }
        }
        rest = next;
    }
    out.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_errors() {
        assert!(Pattern::with_flags("^AB", "ijo").unwrap().is_match("abc"));
        assert!(!Pattern::new("^AB").unwrap().is_match("abc"));
        assert!(Pattern::new("(").is_err());
        assert!(Pattern::with_flags("a", "z").is_err());
        assert!(Pattern::new("(?<!x)a(?=b)").unwrap().is_match("yab"));
    }

    #[test]
    fn replacements() {
        let check = |pattern: &str, text: &str, to: &str, expected: Option<&str>| {
            let got = Pattern::new(pattern).unwrap().replace_once(text, to);
            assert_eq!(got.as_deref(), expected, "{pattern} {text} {to}");
        };
        check("b+", "abba", "$0$0", Some("abbbba"));
        check("(a)(b)?", "a!", "[$1|$2]", Some("[a|]!"));
        check("a", "a", "$$1 ${0} $x", Some("$1 a $x"));
        check("z", "a", "y", None);
        check("^", "a", "y", Some("ya"));
        let all = Pattern::new("a").unwrap().replace_all("banana", "o");
        assert_eq!(all.as_deref(), Some("bonono"));
    }

    #[test]
    fn a_hopeless_match_ends() {
        let pattern = Pattern::new("(?=(a+)+$)(a+)+$b").unwrap();
        assert!(!pattern.is_match(&"a".repeat(200)));
    }
}
