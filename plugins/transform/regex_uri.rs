//! The pair that `regex_uri` of `proxy-rewrite` and `redirect` consists of.

use lockgate_plugin::Pattern;
use lockgate_plugin::pattern::TooManySteps;

/// An expression over the path, and what its match is replaced by.
pub(super) struct RegexUri {
    pattern: Pattern,
    replacement: String,
}

impl RegexUri {
    /// In the replacement `$1` and `${1}` stand for groups, `$0` and `$&` for the match, `$$` for
    /// a dollar. Anything else after a `$` is refused, as the original does.
    ///
    /// # Errors
    /// In words, what is wrong with either of the two.
    pub(super) fn parse(pattern: &str, replacement: &str) -> Result<RegexUri, String> {
        let pattern = Pattern::new(pattern).map_err(|e| e.to_string())?;
        match unknown_reference(replacement) {
            Some(rest) => Err(format!(
                "invalid capturing variable name found in \"{rest}\""
            )),
            None => Ok(RegexUri {
                pattern,
                replacement: replacement.to_owned(),
            }),
        }
    }

    /// The expression as it was written.
    pub(super) fn pattern(&self) -> &str {
        self.pattern.text()
    }

    /// Whether the expression occurs in the text.
    ///
    /// # Errors
    /// When that takes too long to find out.
    pub(super) fn is_match(&self, text: &str) -> Result<bool, TooManySteps> {
        self.pattern.try_is_match(text)
    }

    /// The text with its first match replaced; `None` without a match.
    pub(super) fn replace(&self, text: &str) -> Option<String> {
        self.pattern.replace_once(text, &self.replacement)
    }

    /// The groups of the first match; group 0 is the whole match.
    pub(super) fn groups(&self, text: &str) -> Option<Vec<Option<String>>> {
        self.pattern.captures(text)
    }
}

/// What follows the first `$` that stands for nothing.
fn unknown_reference(replacement: &str) -> Option<&str> {
    let mut rest = replacement;
    while let Some((_, after)) = rest.split_once('$') {
        rest = match after.as_bytes() {
            [b'$' | b'&' | b'0'..=b'9', ..] => &after[1..],
            [b'{', ..] => match after[1..].split_once('}') {
                Some((n, next)) if !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()) => next,
                _ => return Some(after),
            },
            _ => return Some(after),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, replacement: &str, text: &str, expected: Option<&str>) {
        let pair = RegexUri::parse(pattern, replacement).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(
            pair.is_match(text),
            Ok(expected.is_some()),
            "{pattern} {text}"
        );
        assert_eq!(pair.replace(text).as_deref(), expected, "{pattern} {text}");
    }

    #[test]
    fn replacements() {
        check("^/a/(.*)/(.*)$", "/$2/${1}", "/a/x/y", Some("/y/x"));
        check("b", "[$0$&$$]", "/abc", Some("/a[bb$]c"));
        check("^/z", "/", "/abc", None);
    }

    #[test]
    fn pairs_that_are_refused() {
        let check = |pattern: &str, replacement: &str, expected: &str| {
            let text = RegexUri::parse(pattern, replacement)
                .err()
                .unwrap_or_default();
            assert!(text.contains(expected), "{pattern} {replacement}: {text}");
        };
        check("(", "/", "without closing parenthesis");
        for bad in ["/$`1", "/$uri", "/${uri}", "/${1", "/${}", "/$"] {
            check("a", bad, "invalid capturing variable name found");
        }
    }

    #[test]
    fn a_match_that_takes_too_long_is_an_error() {
        let pair = RegexUri::parse("^(a|aa)+(?=$)(?<!x)b", "/").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(pair.is_match(&"a".repeat(60)), Err(TooManySteps));
    }
}
