//! Path patterns: the key they are filed under, and the matcher for what a prefix cannot say.
//!
//! | pattern | key | then |
//! | --- | --- | --- |
//! | `/a` | exactly `/a` | |
//! | `/a*`, `/a/*` | prefix `/a`, `/a/` | |
//! | `/a/*/b`, `/a/*rest` | prefix `/a/` | segments: a star takes any text, slashes too, as much as it can |
//! | `/a/:id/b`, with parameters | prefix `/a/` | segments: `:id` takes one that is not empty |
//! | `/a/*/v[0-9]+` | prefix `/a/` | a segment behind the prefix may be a regular expression |
//!
//! Segments are plain text unless they contain one of the characters `*+?()[]{}|^$\` and lie
//! behind the prefix; a dot alone is a dot. A pattern that is not a valid expression is taken as
//! plain text.

use std::sync::Arc;

use fancy_regex::{Regex, RegexBuilder};
use smallvec::SmallVec;

use super::trie::Kind;
use super::{Mode, Params};

/// Steps that an expression may take per request, so that a pattern with nested repeats ends:
/// milliseconds for most patterns. One step may scan the rest of the path, which is bounded itself.
const BACKTRACK_LIMIT: usize = 100_000;

/// Bytes that a compiled expression may take: a route table has many of them.
const REGEX_SIZE_LIMIT: usize = 1 << 20;

/// Characters that make a segment a regular expression. Without the dot: file names have it, and
/// nobody means "any character".
const REGEX_CHARACTERS: &[char] = &[
    '*', '+', '?', '(', ')', '[', ']', '{', '}', '|', '^', '$', '\\',
];

/// Where a path pattern is filed.
pub(super) struct PathKey<'p> {
    pub(super) text: &'p [u8],
    pub(super) kind: Kind,
    pattern: &'p str,
    /// Whether the prefix says everything.
    complete: bool,
}

impl<'p> PathKey<'p> {
    pub(super) fn new(pattern: &'p str, mode: Mode) -> PathKey<'p> {
        let special = |c: char| c == '*' || (c == ':' && mode == Mode::UriWithParameter);
        let Some(at) = pattern.find(special) else {
            return PathKey {
                text: pattern.as_bytes(),
                kind: Kind::Exact,
                pattern,
                complete: true,
            };
        };
        let (prefix, rest) = pattern.split_at(at);
        PathKey {
            text: prefix.as_bytes(),
            kind: Kind::Prefix,
            pattern,
            complete: rest == "*",
        }
    }

    /// The matcher, when the prefix does not say everything.
    pub(super) fn matcher(&self) -> Option<Arc<Matcher>> {
        if self.complete {
            return None;
        }
        Some(Arc::new(Matcher::new(self.pattern, self.text.len())))
    }
}

/// Matches whole paths and captures parameters.
#[derive(Debug)]
pub(super) enum Matcher {
    /// Segments without regular expressions.
    Segments(Box<[Segment]>),
    /// The expression, and the parameter of each group `p0`, `p1`, ...
    Regex(Box<(Regex, Box<[Arc<str>]>)>),
}

/// A part of a pattern between slashes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Segment {
    /// This text.
    Text(Box<str>),
    /// One segment that is not empty; its name.
    One(Arc<str>),
    /// Any number of segments; their name.
    Any(Arc<str>),
}

impl Matcher {
    /// `prefix` is the length of the part that is plain text.
    pub(super) fn new(pattern: &str, prefix: usize) -> Matcher {
        let mut behind = false;
        let mut at = 0;
        let segments: Vec<(Segment, bool)> = pattern
            .split('/')
            .map(|text| {
                at += text.len() + 1;
                behind |= at > prefix;
                let segment = match text.as_bytes().first() {
                    Some(b':') if behind => Segment::One(text[1..].into()),
                    Some(b'*') => {
                        Segment::Any(if text == "*" { ":ext" } else { &text[1..] }.into())
                    }
                    _ => Segment::Text(text.into()),
                };
                (segment, behind && text.contains(REGEX_CHARACTERS))
            })
            .collect();
        let is_regex =
            |(segment, special): &(Segment, bool)| *special && matches!(segment, Segment::Text(_));
        if segments.iter().any(is_regex)
            && let Some(regex) = Matcher::regex(&segments)
        {
            return regex;
        }
        Matcher::Segments(segments.into_iter().map(|(segment, _)| segment).collect())
    }

    fn regex(segments: &[(Segment, bool)]) -> Option<Matcher> {
        let mut names = Vec::new();
        let mut text = String::from(r"\A");
        for (at, (segment, special)) in segments.iter().enumerate() {
            if at > 0 {
                text.push('/');
            }
            let (name, group) = match segment {
                Segment::Text(segment) if *special => {
                    text.push_str(segment);
                    continue;
                }
                Segment::Text(segment) => {
                    text.push_str(&fancy_regex::escape(segment));
                    continue;
                }
                Segment::One(name) => (name, "[^/]+"),
                Segment::Any(name) => (name, "(?s:.*)"),
            };
            text.push_str(&format!("(?P<p{}>{group})", names.len()));
            names.push(Arc::clone(name));
        }
        text.push_str(r"\z");
        let regex = RegexBuilder::new(&text)
            .backtrack_limit(BACKTRACK_LIMIT)
            .delegate_size_limit(REGEX_SIZE_LIMIT)
            .build();
        Some(Matcher::Regex(Box::new((
            regex.ok()?,
            names.into_boxed_slice(),
        ))))
    }

    /// The parameters, when the whole path matches.
    pub(super) fn captures(&self, path: &str) -> Option<Params> {
        match self {
            Matcher::Segments(segments) => capture_segments(segments, path),
            Matcher::Regex(regex) => {
                let (regex, names) = &**regex;
                // An expression that exceeds its limit does not match.
                let found = regex.captures(path).ok()??;
                // An alternative in a segment, such as `a|b`, leaves the ends out.
                if found.get(0)?.as_str() != path {
                    return None;
                }
                let mut params = Params::new();
                for (at, name) in names.iter().enumerate() {
                    if let Some(value) = found.name(&format!("p{at}")) {
                        keep(&mut params, name, value.as_str());
                    }
                }
                Some(params)
            }
        }
    }
}

/// Matches from the right: then the usual method for stars, which takes as little as possible and
/// widens only the last star met, gives the leftmost star as much as possible. At most
/// `pattern × path` steps.
fn capture_segments(pattern: &[Segment], path: &str) -> Option<Params> {
    let parts = parts(path);
    // Both count what is left to match on the left side.
    let (mut p, mut s) = (pattern.len(), parts.len());
    // The star met last and how many parts were left when it was given one more.
    let mut star: Option<(usize, usize)> = None;
    // Where each star starts and ends, right to left.
    let mut stars: SmallVec<[(usize, usize); 2]> = SmallVec::new();
    while s > 0 || p > 0 {
        let fits = p > 0
            && s > 0
            && match &pattern[p - 1] {
                Segment::Text(text) => **text == path[parts[s - 1].clone()],
                Segment::One(_) => !parts[s - 1].is_empty(),
                Segment::Any(_) => {
                    // One part at least: between two slashes there is always one, maybe empty.
                    p -= 1;
                    s -= 1;
                    star = Some((p, s));
                    stars.push((s, s + 1));
                    continue;
                }
            };
        if fits {
            p -= 1;
            s -= 1;
            continue;
        }
        // Give the last star one part more and try again from there.
        let (star_p, star_s) = star?;
        if star_s == 0 {
            return None;
        }
        (p, s) = (star_p, star_s - 1);
        star = Some((p, s));
        if let Some(last) = stars.last_mut() {
            last.0 = s;
        }
    }
    Some(collect(pattern, path, &parts, &stars))
}

fn collect(
    pattern: &[Segment],
    path: &str,
    parts: &[std::ops::Range<usize>],
    stars: &[(usize, usize)],
) -> Params {
    let mut params = Params::new();
    let mut stars = stars.iter().rev();
    let mut s = 0;
    for segment in pattern {
        match segment {
            Segment::Text(_) => s += 1,
            Segment::One(name) => {
                keep(&mut params, name, &path[parts[s].clone()]);
                s += 1;
            }
            Segment::Any(name) => {
                let Some(&(first, after)) = stars.next() else {
                    return params;
                };
                keep(
                    &mut params,
                    name,
                    &path[parts[first].start..parts[after - 1].end],
                );
                s = after;
            }
        }
    }
    params
}

fn keep(params: &mut Params, name: &Arc<str>, value: &str) {
    if !name.is_empty() {
        params.push((Arc::clone(name), value.into()));
    }
}

/// The places between slashes.
fn parts(path: &str) -> SmallVec<[std::ops::Range<usize>; 16]> {
    let mut at = 0;
    path.split('/')
        .map(|part| {
            let range = at..at + part.len();
            at = range.end + 1;
            range
        })
        .collect()
}
