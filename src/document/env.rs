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
    for (from, _) in text.match_indices("${{") {
        // Inside a reference that was already replaced.
        if from < done {
            continue;
        }
        let Some((reference, to)) = reference(text, from) else {
            continue;
        };
        out.push_str(&text[done..from]);
        done = to;
        match env(reference.name).or_else(|| reference.default.map(str::to_owned)) {
            Some(value) => out.push_str(&value),
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

/// The reference at `from` and where it ends. It has to end on its line.
fn reference(text: &str, from: usize) -> Option<(Reference<'_>, usize)> {
    let start = from + "${{".len();
    let len = text[start..].lines().next()?.find("}}")?;
    let inner = text[start..start + len].trim();
    let (name, default) = match inner.split_once(":=") {
        Some((name, default)) => (name.trim_end(), Some(default)),
        None => (inner, None),
    };
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if !name.starts_with(word) {
        return None;
    }
    Some((Reference { name, default }, start + len + "}}".len()))
}
