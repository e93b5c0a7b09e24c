//! Paths into JSON.

/// How many steps a path may have. The walker keeps a set of positions in one word.
pub(super) const MAX_PATH: usize = 32;

/// One step of a path into JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// A member by name.
    Name(Box<str>),
    /// An element by position, from 0.
    Index(usize),
    /// Every member or element.
    Every,
    /// Everything below, by name.
    Below(Box<str>),
}

/// Splits `a.b[0]..c[*]['d.e']`; `None` when it is malformed or too long.
pub(super) fn parse(path: &str) -> Option<Vec<Segment>> {
    let mut out = Vec::new();
    let mut rest = path.strip_prefix('$').unwrap_or(path);
    while !rest.is_empty() {
        if out.len() >= MAX_PATH {
            return None;
        }
        let segment;
        (segment, rest) = if let Some(after) = rest.strip_prefix("..") {
            let (name, next) = word(after)?;
            (Segment::Below(name.into()), next)
        } else if let Some(after) = rest.strip_prefix('[') {
            bracket(after)?
        } else {
            let (name, next) = word(rest.strip_prefix('.').unwrap_or(rest))?;
            (
                if name == "*" {
                    Segment::Every
                } else {
                    Segment::Name(name.into())
                },
                next,
            )
        };
        out.push(segment);
    }
    (!out.is_empty()).then_some(out)
}

fn word(text: &str) -> Option<(&str, &str)> {
    let (name, next) = text.split_at(text.find(['.', '[']).unwrap_or(text.len()));
    (!name.is_empty()).then_some((name, next))
}

fn bracket(after: &str) -> Option<(Segment, &str)> {
    if let Some(quote) = after.chars().next().filter(|c| matches!(c, '\'' | '"')) {
        let (name, next) = after[1..].split_once(quote)?;
        return Some((Segment::Name(name.into()), next.strip_prefix(']')?));
    }
    let (inner, next) = after.split_once(']')?;
    let segment = match inner.trim() {
        "*" => Segment::Every,
        number => Segment::Index(number.parse().ok()?),
    };
    Some((segment, next))
}
