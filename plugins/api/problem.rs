//! What is wrong with a configuration: every mistake, each with its place.
//!
//! A check never stops at the first mistake; it adds [`Problem`]s to a
//! [`Problems`] and goes on, so that one start shows the whole list.
//!
//! ```
//! # use lockgate_plugin::Problems;
//! let mut out = Problems::default();
//! out.at("plugins").at("limit-count").add("count", "must be at least 1");
//! assert_eq!(out.to_string(), "plugins.limit-count.count: must be at least 1");
//! ```
//!
//! A list keeps [`Problems::MOST`] of them and counts the rest: whoever has more is not going to
//! read them, and a file can hold millions.

use std::fmt;
use std::sync::Arc;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file it was found in, where one is known.
    pub file: Option<Arc<str>>,
    /// Line and column in that file, both counted from 1.
    pub place: Option<(u32, u32)>,
    /// The resource it belongs to, such as `routes/3`; empty for process settings.
    pub resource: String,
    /// The path inside the document or resource, segments joined by `.`, list
    /// positions as `[N]` counted from 0: `upstream.nodes[1].weight`.
    pub path: String,
    /// What was found and what is allowed.
    pub message: String,
    /// What to do instead, such as the closest valid name.
    pub hint: Option<String>,
}

impl Problem {
    /// A problem with a path and a message; the place is filled in by whoever knows the file.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Problem {
            file: None,
            place: None,
            resource: String::new(),
            path: path.into(),
            message: message.into(),
            hint: None,
        }
    }

    /// Adds what to do instead.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Problem {
    /// `FILE:LINE:COLUMN: RESOURCE PATH: MESSAGE (HINT)`, unknown parts left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}:")?;
            if let Some((line, column)) = self.place {
                write!(f, "{line}:{column}:")?;
            }
            f.write_str(" ")?;
        } else if let Some((line, column)) = self.place {
            write!(f, "line {line}, column {column}: ")?;
        }
        match (self.resource.is_empty(), self.path.is_empty()) {
            (false, false) => write!(f, "{} {}: ", self.resource, self.path)?,
            (false, true) => write!(f, "{}: ", self.resource)?,
            (true, false) => write!(f, "{}: ", self.path)?,
            (true, true) => {}
        }
        f.write_str(&self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, " ({hint})")?;
        }
        Ok(())
    }
}

/// A list of problems, with a current position that prefixes what is added.
#[derive(Clone, Debug, Default)]
pub struct Problems {
    /// At most [`Problems::MOST`], and one that tells of the others.
    list: Vec<Problem>,
    /// How many others there were.
    more: usize,
    prefix: String,
}

impl Problems {
    /// How many problems a list keeps.
    pub const MOST: usize = 100;

    /// Adds a problem at `path` below the current position. `path` may be empty.
    pub fn add(&mut self, path: &str, message: impl Into<String>) {
        self.push(Problem::new(path, message));
    }

    /// Adds a problem whose path is below the current position.
    pub fn push(&mut self, mut problem: Problem) {
        if self.list.len() >= Self::MOST {
            return self.leave_out(1);
        }
        problem.path = join(&self.prefix, &problem.path);
        self.list.push(problem);
    }

    /// Counts problems that are not kept.
    fn leave_out(&mut self, count: usize) {
        if self.more == 0 {
            self.list.push(Problem::new("", ""));
        }
        self.more += count;
        if let Some(last) = self.list.last_mut() {
            let plural = if self.more == 1 { "" } else { "s" };
            last.message = format!("and {} more problem{plural}", self.more);
        }
    }

    /// Adds a problem unless exactly one of the named fields is given, in the words of a schema's
    /// `oneOf`. Of more than two fields, a hint tells which number is which.
    pub fn exactly_one(&mut self, fields: &[(&str, bool)]) {
        let mut given = (1..).zip(fields).filter(|(_, (_, given))| *given);
        match (given.next(), given.next()) {
            (None, _) => self.add("", "value should match only one schema, but matches none"),
            (Some((a, _)), Some((b, _))) => {
                let mut problem = Problem::new(
                    "",
                    format!(
                        "value should match only one schema, but matches both schemas {a} and {b}"
                    ),
                );
                if fields.len() > 2 {
                    let names: Vec<String> = (1..)
                        .zip(fields)
                        .map(|(at, (name, _))| format!("{at} is `{name}`"))
                        .collect();
                    problem = problem.hint(names.join(", "));
                }
                self.push(problem);
            }
            (Some(_), None) => {}
        }
    }

    /// A guard for one level deeper; what is added through it carries the segment.
    pub fn at(&mut self, segment: &str) -> At<'_> {
        let len = self.prefix.len();
        self.prefix = join(&self.prefix, segment);
        At {
            problems: self,
            len,
        }
    }

    /// A guard for position `index` of a list.
    pub fn at_index(&mut self, index: usize) -> At<'_> {
        self.at(&format!("[{index}]"))
    }

    /// Takes over all problems of another list, below the current position.
    pub fn extend(&mut self, other: Problems) {
        let kept = other.list.len() - usize::from(other.more > 0);
        for problem in other.list.into_iter().take(kept) {
            self.push(problem);
        }
        if other.more > 0 {
            self.leave_out(other.more);
        }
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// How many were found, kept or not.
    pub fn len(&self) -> usize {
        self.list.len() - usize::from(self.more > 0) + self.more
    }

    /// What was found, in order; the last one may tell how many there are beyond.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.list.iter()
    }

    /// Changes each problem, to add the file or the place.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, Problem> {
        self.list.iter_mut()
    }

    /// `Ok` when nothing was found.
    ///
    /// # Errors
    /// The list itself, when it is not empty.
    pub fn into_result(self) -> Result<(), Problems> {
        if self.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl IntoIterator for Problems {
    type Item = Problem;
    type IntoIter = std::vec::IntoIter<Problem>;
    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}

impl<'a> IntoIterator for &'a Problems {
    type Item = &'a Problem;
    type IntoIter = std::slice::Iter<'a, Problem>;
    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        let mut out = Problems::default();
        out.push(problem);
        out
    }
}

impl fmt::Display for Problems {
    /// One problem a line, no trailing newline.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.list.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// Restores the position of a [`Problems`] when dropped.
pub struct At<'a> {
    problems: &'a mut Problems,
    len: usize,
}

impl std::ops::Deref for At<'_> {
    type Target = Problems;
    fn deref(&self) -> &Problems {
        self.problems
    }
}

impl std::ops::DerefMut for At<'_> {
    fn deref_mut(&mut self) -> &mut Problems {
        self.problems
    }
}

impl Drop for At<'_> {
    fn drop(&mut self) {
        self.problems.prefix.truncate(self.len);
    }
}

fn join(prefix: &str, path: &str) -> String {
    if prefix.is_empty() || path.is_empty() || path.starts_with('[') {
        format!("{prefix}{path}")
    } else {
        format!("{prefix}.{path}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined_and_restored() {
        let mut out = Problems::default();
        {
            let mut nodes = out.at("upstream");
            let mut nodes = nodes.at("nodes");
            nodes.at_index(1).add("weight", "must be at least 0");
        }
        out.add("uri", "is required");
        assert_eq!(
            out.to_string(),
            "upstream.nodes[1].weight: must be at least 0\nuri: is required"
        );
    }

    #[test]
    fn what_is_beyond_is_counted() {
        let many = |n: usize| {
            let mut out = Problems::default();
            (0..n).for_each(|i| out.at_index(i).add("", "x"));
            out
        };
        let check = |out: &Problems, len: usize, last: &str| {
            assert_eq!(out.len(), len);
            assert!(out.iter().count() <= Problems::MOST + 1);
            assert_eq!(out.iter().last().unwrap().to_string(), last);
        };
        check(&many(100), 100, "[99]: x");
        check(&many(101), 101, "and 1 more problem");
        check(&many(250), 250, "and 150 more problems");
        let mut out = many(1);
        out.at("below").extend(many(250));
        check(&out, 251, "and 151 more problems");
        out.extend(many(3));
        check(&out, 254, "and 154 more problems");
    }

    #[test]
    fn place_and_hint_are_shown() {
        let mut problem =
            Problem::new("apisix.node_lisen", "unknown key").hint("did you mean `node_listen`?");
        problem.file = Some("conf/config.yaml".into());
        problem.place = Some((3, 5));
        assert_eq!(
            problem.to_string(),
            "conf/config.yaml:3:5: apisix.node_lisen: unknown key (did you mean `node_listen`?)"
        );
    }
}
