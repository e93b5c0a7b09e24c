//! `${{NAME}}` in raw text: replaced before it is parsed, so that the value's type follows the
//! rules of the syntax around it.
//!
//! ```
//! # use lockgate::document::substitute_env;
//! let env = |name: &str| (name == "PORT").then(|| "1980".to_owned());
//! let text = substitute_env("port: ${{PORT}}, host: ${{ HOST:=localhost }}", &env, "f").unwrap();
//! assert_eq!(text, "port: 1980, host: localhost");
//! ```

use std::borrow::Cow;

use lockgate_plugin::Problems;

use super::{MAX_TEXT, end_of, problem};

/// Replaces `${{NAME}}` and `${{NAME:=default}}`, spaces inside the braces allowed. Text that only
/// looks similar stays as it is.
///
/// # Errors
/// `can't find environment variable NAME` with its place, for each that has neither value nor
/// default; a result that is longer than what may be read.
pub fn substitute_env<'a>(
    text: &'a str,
    env: &dyn Fn(&str) -> Option<String>,
    file: &str,
) -> Result<Cow<'a, str>, Problems> {
    let mut problems = Problems::default();
    let mut out = String::new();
    let mut done = 0;
    let mut ends = Ends::of(text);
    for (from, _) in text.match_indices("${{") {
        // Inside a reference that was already replaced.
        if from < done {
            continue;
        }
        let Some((reference, to)) = ends.reference(from) else {
            continue;
        };
        out.push_str(&text[done..from]);
        done = to;
        match env(reference.name).or_else(|| reference.default.map(str::to_owned)) {
            Some(value) => out.push_str(&value),
            // Enough to mend; to find a place costs the length of the text.
            None if problems.len() >= Problems::MOST => {}
            None => {
                let message = format!("can't find environment variable {}", reference.name);
                let hint = format!(
                    "set it, or give a default: ${{{{{}:=value}}}}",
                    reference.name
                );
                let place = Some(end_of(&text[..from]));
                problems.push(problem(&file.into(), place, message).hint(hint));
            }
        }
        if out.len() > MAX_TEXT {
            let message = format!("with environment variables it is longer than {MAX_TEXT} bytes");
            problems.push(problem(&file.into(), None, message));
            break;
        }
    }
    problems.into_result()?;
    if done == 0 {
        return Ok(Cow::Borrowed(text));
    }
    out.push_str(&text[done..]);
    Ok(Cow::Owned(out))
}

struct Reference<'a> {
    name: &'a str,
    default: Option<&'a str>,
}

/// Finds where references end. Starts rise, so each part of the text is searched once, however
/// many references begin and never end.
struct Ends<'a> {
    text: &'a str,
    /// The first `}}` and the first line break behind the last start; the length where there is none.
    close: usize,
    line: usize,
}

impl<'a> Ends<'a> {
    fn of(text: &'a str) -> Ends<'a> {
        Ends {
            text,
            close: 0,
            line: 0,
        }
    }

    /// The reference at `from` and where it ends. It has to end on its line.
    fn reference(&mut self, from: usize) -> Option<(Reference<'a>, usize)> {
        let start = from + "${{".len();
        let next = |what: &str| {
            let found = self.text[start..].find(what);
            found.map_or(self.text.len(), |at| start + at)
        };
        if self.close < start {
            self.close = next("}}");
        }
        if self.line < start {
            self.line = next("\n");
        }
        if self.close >= self.line {
            return None;
        }
        let inner = self.text[start..self.close].trim();
        let (name, default) = match inner.split_once(":=") {
            Some((name, default)) => (name.trim_end(), Some(default.trim_start())),
            None => (inner, None),
        };
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let reference = Reference { name, default };
        name.starts_with(word)
            .then_some((reference, self.close + "}}".len()))
    }
}
