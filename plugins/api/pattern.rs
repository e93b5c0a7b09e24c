//! Regular expressions with the syntax and meaning of PCRE, as far as APISIX's users see them.
//!
//! Patterns without look-around or back-references run in linear time. Others run with a step
//! limit: a match that exceeds it counts as no match. Known differences: `$` is the very end of
//! the text, not also the place before a last newline; letters are compared without case by
//! Unicode's rules; recursion (`(?R)`) and branch reset (`(?|`) are refused.
//!
//! ```
//! # use lockgate_plugin::Pattern;
//! let pattern = Pattern::new("^/v(\\d+)/(.*)$").unwrap();
//! assert_eq!(pattern.replace_once("/v2/cats", "/$2?v=${1}").as_deref(), Some("/cats?v=2"));
//! ```

mod syntax;
#[cfg(test)]
mod tests;

use fancy_regex::{Captures, Regex, RegexBuilder};

/// Steps of the backtracking engine before a match is given up: far more than a pattern takes that
/// means to match. A few milliseconds for most patterns; but a step may scan the rest of the text, so
/// one that starts with a look-ahead over everything, such as `(?!.*x)y`, takes a second for a text of
/// 32 KiB. With `^` in front it is tried once, and takes microseconds.
pub const BACKTRACK_LIMIT: usize = 100_000;
/// Bytes that a compiled pattern may take: room for long lists of words, not for `(a{999}){999}`.
pub const SIZE_LIMIT: usize = 4 << 20;
/// Bytes of pattern text.
pub const TEXT_LIMIT: usize = 64 << 10;

/// A compiled regular expression. A clone is cheap.
#[derive(Clone, Debug)]
pub struct Pattern {
    regex: Regex,
    /// As it was written.
    text: Box<str>,
}

/// The text is not a regular expression, or asks for an unknown flag.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadPattern(String);

/// A match took more steps than [`BACKTRACK_LIMIT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the regular expression needs more than {BACKTRACK_LIMIT} steps on this text")]
pub struct TooManySteps;

impl Pattern {
    /// Compiles a case-sensitive pattern.
    ///
    /// # Errors
    /// In words, what is wrong with the pattern.
    pub fn new(text: &str) -> Result<Pattern, BadPattern> {
        Pattern::with_flags(text, "")
    }

    /// Compiles with PCRE flags as `ngx.re` takes them: `i s m x`; `u U j o a d D` tune the
    /// original's engine or hold anyway, and are accepted.
    ///
    /// # Errors
    /// As for [`new`](Self::new); also for an unknown flag.
    pub fn with_flags(text: &str, flags: &str) -> Result<Pattern, BadPattern> {
        if let Some(other) = flags.chars().find(|flag| !"ismxuUjoadD".contains(*flag)) {
            return Err(BadPattern(format!("unknown flag \"{other}\"")));
        }
        if text.len() > TEXT_LIMIT {
            return Err(BadPattern(format!("longer than {TEXT_LIMIT} bytes")));
        }
        let compile = |text: &str| {
            RegexBuilder::new(text)
                .case_insensitive(flags.contains('i'))
                .dot_matches_new_line(flags.contains('s'))
                .multi_line(flags.contains('m'))
                .backtrack_limit(BACKTRACK_LIMIT)
                .delegate_size_limit(SIZE_LIMIT)
                .build()
                .map_err(|e| BadPattern(in_words(&e)))
        };
        // An error in the text as it was written has the right position.
        let regex = compile(&syntax::translate(text, flags.contains('x')))
            .map_err(|e| compile(text).err().unwrap_or(e))?;
        Ok(Pattern {
            regex,
            text: text.into(),
        })
    }

    /// The pattern as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// How many groups it has, the whole match included.
    pub fn groups(&self) -> usize {
        self.regex.captures_len()
    }

    /// Whether the pattern occurs anywhere in the text; not when that takes too long to find out.
    pub fn is_match(&self, text: &str) -> bool {
        self.try_is_match(text).unwrap_or(false)
    }

    /// Whether the pattern occurs anywhere in the text.
    ///
    /// # Errors
    /// When the step limit was hit before that was clear.
    pub fn try_is_match(&self, text: &str) -> Result<bool, TooManySteps> {
        self.regex.is_match(text).map_err(|_| TooManySteps)
    }

    /// The first match, as byte offsets.
    pub fn find(&self, text: &str) -> Option<(usize, usize)> {
        self.regex
            .find(text)
            .ok()
            .flatten()
            .map(|found| (found.start(), found.end()))
    }

    /// The groups of the first match; group 0 is the whole match, a group that took no part is
    /// `None`.
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
        let mut out = String::new();
        let mut last = None;
        for found in self.regex.captures_iter(text).take(limit) {
            // The step limit was hit: what was replaced so far stands.
            let Ok(found) = found else { break };
            let Some(whole) = found.get(0) else { break };
            out.push_str(text.get(last.unwrap_or(0)..whole.start())?);
            expand(replacement, &found, &mut out);
            last = Some(whole.end());
        }
        out.push_str(&text[last?..]);
        Some(out)
    }
}

/// The engine's error; of an engine inside it, what it has to say.
fn in_words(error: &fancy_regex::Error) -> String {
    if let fancy_regex::Error::CompileError(compile) = error
        && let fancy_regex::CompileError::InnerError(inner) = compile
    {
        if inner.size_limit().is_some() {
            return format!("larger than {SIZE_LIMIT} bytes when compiled");
        }
        if let Some(syntax) = inner.syntax_error() {
            return syntax.to_string();
        }
    }
    error.to_string()
}

/// Puts the groups of a match into a replacement text. A group that does not exist or took no
/// part stands for nothing; what is not a group stands for itself.
fn expand(replacement: &str, found: &Captures<'_>, out: &mut String) {
    let mut rest = replacement;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        rest = match reference(after) {
            Some((Reference::Dollar, next)) => {
                out.push('$');
                next
            }
            Some((Reference::Group(group), next)) => {
                out.push_str(found.get(group).map_or("", |m| m.as_str()));
                next
            }
            None => {
                out.push('$');
                after
            }
        };
    }
    out.push_str(rest);
}

enum Reference {
    Dollar,
    Group(usize),
}

/// What stands after a `$`, and what follows it.
fn reference(after: &str) -> Option<(Reference, &str)> {
    if let Some(next) = after.strip_prefix('$') {
        return Some((Reference::Dollar, next));
    }
    if let Some(next) = after.strip_prefix('&') {
        return Some((Reference::Group(0), next));
    }
    let (digits, next) = match after.strip_prefix('{') {
        Some(inner) => inner.split_once('}')?,
        None => after.split_at(
            after
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(after.len()),
        ),
    };
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    // A number too long to read is a group that does not exist.
    plain.then(|| (Reference::Group(digits.parse().unwrap_or(usize::MAX)), next))
}
