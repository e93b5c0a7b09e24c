//! Configuration text, read into values that remember where they were written.
//!
//! The checks behind a configuration name a mistake by its path; whoever reads
//! the file knows the line. [`Document`] brings the two together, for YAML and
//! for JSON alike, at twelve bytes a node.
//!
//! ```
//! # use lockgate::document::read_yaml;
//! let doc = read_yaml(b"routes:\n  - id: 1\n    uri: /a\n", "conf/apisix.yaml").unwrap();
//! assert_eq!(doc.value()["routes"][0]["uri"], "/a");
//! assert_eq!(doc.place("routes[0].uri"), Some((3, 5)));
//! assert_eq!(doc.place("routes[0].uri.deeper"), Some((3, 5)));
//! ```

mod env;
mod hidden;
mod json;
mod scalar;
mod tree;
mod yaml;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use lockgate_plugin::{Problem, Problems};
use serde_json::{Map, Value};

use tree::Spot;

pub use env::substitute_env;
pub use hidden::{Filling, Hidden};

/// Longest text that is read, in bytes. Some 100 000 routes; a longer file is more likely the
/// wrong file, and its tree would not fit a small machine.
pub const MAX_TEXT: usize = 64 << 20;
/// Deepest nesting of lists and mappings. No schema needs a third of it, and everything that
/// walks a value may recurse.
pub const MAX_DEPTH: usize = 64;
/// Most values in one document, copies included: what a file of [`MAX_TEXT`] bytes of ordinary
/// configuration holds, twice over.
pub const MAX_NODES: usize = 10_000_000;
/// Most values that anchors, aliases and merges may copy: a few lines of nested aliases can ask
/// for billions.
pub const MAX_COPIED_NODES: usize = 2_000_000;

/// A text that was read: its value and the place of each part.
#[derive(Clone, Debug)]
pub struct Document {
    file: Arc<str>,
    value: Value,
    root: Spot,
    /// Children of one container lie side by side, in the order of the value's own children.
    spots: Vec<Spot>,
    /// What came from the environment.
    hidden: Hidden,
}

/// Reads one YAML document. Nothing but comments is an empty mapping.
///
/// Scalars follow the core schema of YAML 1.2, and `yes`, `no`, `on` and `off` are booleans as the
/// original reads them; quote them to mean the words. Keys are text as written. `<<` merges.
///
/// # Errors
/// Syntax errors, text that is not UTF-8, duplicate keys, several documents, and texts above the
/// limits of this module, each with its place.
pub fn read_yaml(text: &[u8], file: &str) -> Result<Document, Problems> {
    let file: Arc<str> = file.into();
    let text = checked_text(text, &file)?;
    let (value, root, spots) = yaml::read(text, &file)?;
    Ok(Document {
        file,
        value,
        root,
        spots,
        hidden: Hidden::default(),
    })
}

/// Reads one YAML document with values from the environment, which errors will not show.
///
/// # Errors
/// As [`substitute_env`] and [`read_yaml`].
pub fn read_filled(
    text: &str,
    env: &dyn Fn(&str) -> Option<String>,
    file: &str,
) -> Result<Document, Problems> {
    let filling = Filling::new(env);
    let filled = substitute_env(text, &|name| filling.get(name), file)?;
    let read = read_yaml(filled.as_bytes(), file);
    let hidden = filling.into_hidden();
    match read {
        Ok(document) => Ok(document.hiding(hidden)),
        Err(mut problems) => {
            hidden.mask(&mut problems);
            Err(problems)
        }
    }
}

/// Reads one JSON text, strictly: no comments, no trailing commas, no duplicate names. Nothing but
/// white space is an empty mapping.
///
/// # Errors
/// Syntax errors, text that is not UTF-8, duplicate names, and texts above the limits of this
/// module, each with its place.
pub fn read_json(text: &[u8], file: &str) -> Result<Document, Problems> {
    let file: Arc<str> = file.into();
    let text = checked_text(text, &file)?;
    let (value, root, spots) = json::read(text, &file)?;
    Ok(Document {
        file,
        value,
        root,
        spots,
        hidden: Hidden::default(),
    })
}

impl Document {
    /// Errors about this text will not show these.
    #[must_use]
    pub fn hiding(mut self, hidden: Hidden) -> Document {
        self.hidden = hidden;
        self
    }

    /// Errors about this text will not show these either.
    pub fn hide_more(&mut self, hidden: Hidden) {
        self.hidden.merge(hidden);
    }

    /// Puts the names of variables where problems tell what came from them.
    pub fn mask(&self, problems: &mut Problems) {
        self.hidden.mask(problems);
    }

    /// What was read.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The file's name as it was given.
    pub fn file(&self) -> &Arc<str> {
        &self.file
    }

    /// Line and column, from 1, of the part at `path`: for an entry of a mapping the place of its
    /// key. Of a path that leads nowhere, the place of the nearest part that exists. `None` only
    /// for a text without content.
    ///
    /// The longest key that fits is taken, so keys with dots are found.
    pub fn place(&self, path: &str) -> Option<(u32, u32)> {
        let (_, spot, _) = self.walk(path);
        (spot.line > 0).then_some((spot.line, spot.column))
    }

    /// The part at `path`, as it was written.
    pub fn get(&self, path: &str) -> Option<&Value> {
        let (value, _, rest) = self.walk(path);
        rest.is_empty().then_some(value)
    }

    /// Follows `path` as far as it leads: the part there, its place, and what remains.
    fn walk<'p>(&self, path: &'p str) -> (&Value, Spot, &'p str) {
        let (mut value, mut spot, mut rest) = (&self.value, self.root, path);
        while !rest.is_empty() {
            let step = match value {
                Value::Array(items) => index_step(items, rest),
                Value::Object(map) => key_step(map, rest),
                _ => None,
            };
            let Some((at, child, remaining)) = step else {
                break;
            };
            let Some(next) = self.spots.get(spot.children as usize + at) else {
                break;
            };
            (value, spot, rest) = (child, *next, remaining);
        }
        (value, spot, rest)
    }

    /// Fills in the file and the place of each problem that has none. `prefix` is put before the
    /// problem's own path: `routes[3]` for a problem inside the fourth route.
    pub fn locate(&self, problems: &mut Problems, prefix: &str) {
        self.mask(problems);
        for problem in problems.iter_mut() {
            if problem.place.is_some() || problem.file.as_ref().is_some_and(|f| *f != self.file) {
                continue;
            }
            let path = match (prefix.is_empty(), problem.path.is_empty()) {
                (true, _) => problem.path.clone(),
                (_, true) => prefix.to_owned(),
                _ if problem.path.starts_with('[') => format!("{prefix}{}", problem.path),
                _ => format!("{prefix}.{}", problem.path),
            };
            problem.file = Some(self.file.clone());
            problem.place = self.place(&path);
        }
    }
}

/// `[N]` at the start of `rest`: position, item, what remains.
fn index_step<'v, 'p>(items: &'v [Value], rest: &'p str) -> Option<(usize, &'v Value, &'p str)> {
    let (index, remaining) = rest.strip_prefix('[')?.split_once(']')?;
    let index = index.parse().ok()?;
    Some((index, items.get(index)?, remaining))
}

/// The longest key at the start of `rest`: position, value, what remains.
fn key_step<'v, 'p>(
    map: &'v Map<String, Value>,
    rest: &'p str,
) -> Option<(usize, &'v Value, &'p str)> {
    let rest = rest.strip_prefix('.').unwrap_or(rest);
    let ends = rest.rmatch_indices(['.', '[']).map(|(at, _)| at);
    let (end, value) = std::iter::once(rest.len())
        .chain(ends)
        .find_map(|end| Some((end, map.get(&rest[..end])?)))?;
    // The map does not tell positions, but comparing addresses is next to nothing.
    let at = map.values().position(|item| std::ptr::eq(item, value))?;
    Some((at, value, &rest[end..]))
}

/// The text as UTF-8 of bearable length, byte order mark removed.
fn checked_text<'a>(text: &'a [u8], file: &Arc<str>) -> Result<&'a str, Problems> {
    if text.len() > MAX_TEXT {
        let message = format!("is {} bytes long; at most {MAX_TEXT} are read", text.len());
        return Err(problem(file, None, message).into());
    }
    match std::str::from_utf8(text) {
        Ok(text) => Ok(text.strip_prefix('\u{feff}').unwrap_or(text)),
        Err(e) => {
            let good = String::from_utf8_lossy(&text[..e.valid_up_to()]);
            let bad = text.get(e.valid_up_to()).copied().unwrap_or_default();
            let message = format!("is not UTF-8: byte 0x{bad:02X}");
            Err(problem(file, Some(end_of(&good)), message).into())
        }
    }
}

/// The place right behind `text`.
fn end_of(text: &str) -> (u32, u32) {
    let line = text.bytes().filter(|b| *b == b'\n').count() + 1;
    let column = text
        .rsplit('\n')
        .next()
        .map_or(0, |last| last.chars().count())
        + 1;
    (count(line), count(column))
}

/// A length or position as it is stored. Texts are far shorter than `u32::MAX`.
fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// A problem of the text itself.
fn problem(file: &Arc<str>, place: Option<(u32, u32)>, message: impl Into<String>) -> Problem {
    let mut problem = Problem::new("", message);
    problem.file = Some(file.clone());
    problem.place = place;
    problem
}
