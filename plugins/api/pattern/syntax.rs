//! From PCRE's spelling to that of the engine, where the two differ.
//!
//! `\d \w \s \h` and their like are ASCII in PCRE; `\<` is a plain `<` there; `[` and doubled
//! `& ~ -` mean nothing inside its classes; `\Q..\E` quotes.

/// The same pattern in the engine's spelling. What it does not know is left for the engine to
/// refuse. `extended` is the flag `x`, done here because the engine drops blanks in classes too.
pub(super) fn translate(text: &str, extended: bool) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = match c {
            '\\' => escape(rest, Where::Outside, &mut out),
            '[' => class(rest, &mut out),
            '#' if extended => rest.split_once('\n').map_or("", |(_, next)| next),
            _ if extended && c.is_ascii_whitespace() => &rest[1..],
            _ => {
                out.push(c);
                &rest[c.len_utf8()..]
            }
        };
    }
    out
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    Outside,
    Class,
}

/// Takes an escape, starting at its backslash; gives what follows it.
fn escape<'t>(rest: &'t str, place: Where, out: &mut String) -> &'t str {
    let after = &rest[1..];
    let Some(c) = after.chars().next() else {
        out.push('\\');
        return after;
    };
    let next = &after[c.len_utf8()..];
    if c == 'Q' {
        let (quoted, next) = next.split_once("\\E").unwrap_or((next, ""));
        quoted.chars().for_each(|c| literal(c, out));
        return next;
    }
    if let Some((members, negated)) = kind(c) {
        match (place, negated) {
            (Where::Class, false) => out.push_str(members),
            (_, negated) => {
                out.push_str(if negated { "[^" } else { "[" });
                out.push_str(members);
                out.push(']');
            }
        }
        return next;
    }
    match (c, place) {
        ('<' | '>', _) => out.push(c),
        ('b', Where::Class) => out.push_str("\\x08"),
        ('R', Where::Outside) => out.push_str("(?>\\r\\n|[\\n\\x0B\\x0C\\r])"),
        ('N', Where::Outside) => out.push_str("[^\\n]"),
        ('E', _) => {}
        _ => {
            out.push('\\');
            out.push(c);
        }
    }
    next
}

/// The members of a class escape, and whether it stands for all others.
fn kind(c: char) -> Option<(&'static str, bool)> {
    Some(match c {
        'd' => ("0-9", false),
        'D' => ("0-9", true),
        'w' => ("0-9A-Za-z_", false),
        'W' => ("0-9A-Za-z_", true),
        's' => ("[:space:]", false),
        'S' => ("[:space:]", true),
        'h' => ("[:blank:]", false),
        'H' => ("[:blank:]", true),
        'v' => ("\\n\\x0B\\x0C\\r", false),
        'V' => ("\\n\\x0B\\x0C\\r", true),
        _ => return None,
    })
}

fn literal(c: char, out: &mut String) {
    if c.is_ascii() && !c.is_ascii_alphanumeric() {
        out.push_str(&format!("\\x{:02X}", u32::from(c)));
    } else {
        out.push(c);
    }
}

/// Takes a class, starting at its `[`; gives what follows it.
fn class<'t>(rest: &'t str, out: &mut String) -> &'t str {
    out.push('[');
    let mut rest = &rest[1..];
    if let Some(after) = rest.strip_prefix('^') {
        out.push('^');
        rest = after;
    }
    // A `]` that comes first is a member.
    if let Some(after) = rest.strip_prefix(']') {
        out.push_str("\\]");
        rest = after;
    }
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        rest = match c {
            ']' => {
                out.push(']');
                return after;
            }
            '\\' => escape(rest, Where::Class, out),
            '[' => match posix(rest) {
                Some(len) => {
                    out.push_str(&rest[..len]);
                    &rest[len..]
                }
                None => {
                    out.push_str("\\[");
                    after
                }
            },
            '&' | '~' | '-' if after.starts_with(c) => {
                out.push(c);
                out.push('\\');
                out.push(c);
                &after[1..]
            }
            _ => {
                out.push(c);
                after
            }
        };
    }
    rest
}

/// The length of a name such as `[:alpha:]` at the start.
fn posix(rest: &str) -> Option<usize> {
    let inner = rest.strip_prefix("[:")?;
    let end = inner.find(":]")?;
    let name = inner[..end].strip_prefix('^').unwrap_or(&inner[..end]);
    let named = !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase());
    named.then_some(end + 4)
}
