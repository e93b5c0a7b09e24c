//! One violation, for people who read a file and for clients of the original.

use std::fmt::Write;

use crate::problem::Problem;

/// The way from a value to a part of it, as the schema takes it.
#[derive(Clone, Copy)]
pub(super) enum Step<'a> {
    /// A member that the schema names.
    Member(&'a str),
    /// A member whose name matches a pattern: name, pattern.
    Matching(&'a str, &'a str),
    /// A member that the schema does not name.
    Extra(&'a str),
    /// An element, from 0.
    Item(usize),
    /// An element behind the ones that have schemas of their own.
    ExtraItem(usize),
    /// The same value in one part of an `allOf`, from 0.
    AllOf(usize),
    /// The same value, as the presence of a member wants it.
    Dependent(&'a str),
}

/// One violation.
pub(super) struct Violation {
    /// Where, as in [`Problem::path`].
    path: String,
    text: String,
    hint: Option<String>,
    /// The original's text, with the way to it.
    pub(super) nested: String,
}

impl Violation {
    pub(super) fn new(steps: &[Step<'_>], text: String, hint: Option<String>) -> Violation {
        Violation {
            path: path(steps),
            nested: nested(steps, &text),
            text,
            hint,
        }
    }

    /// For a property that should not be there: below the value, while the original names it in
    /// the text only.
    pub(super) fn extra(steps: &[Step<'_>], name: &str, hint: Option<String>) -> Violation {
        let text = format!("additional properties forbidden, found {name}");
        let nested = nested(steps, &text);
        let mut path = path(steps);
        push_name(&mut path, name);
        Violation {
            path,
            nested,
            text,
            hint,
        }
    }

    pub(super) fn into_problem(self) -> Problem {
        let mut problem = Problem::new(self.path, self.text);
        problem.hint = self.hint;
        problem
    }

    /// One line, to explain another violation with it.
    pub(super) fn line(&self) -> String {
        if self.path.is_empty() {
            self.text.clone()
        } else {
            format!("{}: {}", self.path, self.text)
        }
    }
}

fn push_name(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

fn path(steps: &[Step<'_>]) -> String {
    let mut path = String::new();
    for step in steps {
        match step {
            Step::Member(name) | Step::Matching(name, _) | Step::Extra(name) => {
                push_name(&mut path, name)
            }
            Step::Item(at) | Step::ExtraItem(at) => {
                let _ = write!(path, "[{at}]");
            }
            Step::AllOf(_) | Step::Dependent(_) => {}
        }
    }
    path
}

/// `leaf` behind the way to it, in the original's words.
pub(super) fn nested(steps: &[Step<'_>], leaf: &str) -> String {
    let mut text = String::new();
    for step in steps {
        let _ = match step {
            Step::Member(name) => write!(text, "property \"{name}\" validation failed: "),
            Step::Matching(name, pattern) => {
                write!(text, "failed to validate {name} (matching \"{pattern}\"): ")
            }
            Step::Extra(name) => write!(text, "failed to validate additional property {name}: "),
            Step::Item(at) => write!(text, "failed to validate item {}: ", at + 1),
            Step::ExtraItem(at) => write!(text, "failed to validate additional item {}: ", at + 1),
            Step::AllOf(at) => write!(text, "allOf {} failed: ", at + 1),
            Step::Dependent(name) => {
                write!(text, "failed to validate dependent schema for \"{name}\": ")
            }
        };
    }
    text.push_str(leaf);
    text
}
