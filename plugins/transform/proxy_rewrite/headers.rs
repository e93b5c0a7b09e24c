//! Header changes of the upstream request: add, then set, then remove.

use bytes::Bytes;
use lockgate_plugin::{Ctx, HeaderKey, Problem, Problems, Template, Var};
use serde_json::{Map, Value};

use crate::text::name_and_value;

/// The groups of the `regex_uri` match; the first is the whole match.
pub(super) type Groups = Vec<Option<String>>;

/// The keys of the long form.
const FORM: [&str; 3] = ["add", "set", "remove"];

/// Fields that say where a message ends: a change could make two requests of one.
const FRAMING: [&str; 2] = ["content-length", "transfer-encoding"];

/// The changes, in the order in which they are made.
pub(super) struct HeaderChanges {
    ops: Vec<Op>,
    /// Whether some value names a group.
    wants_groups: bool,
}

enum Op {
    Add(HeaderKey, Text),
    Set(HeaderKey, Text),
    Remove(HeaderKey),
}

/// A value: the same for every request, with variables, or with groups of the match as well.
enum Text {
    Constant(Bytes),
    Template(Template),
    Grouped(Vec<Part>),
}

enum Part {
    Text(Template),
    Group(usize),
}

impl HeaderChanges {
    /// Reads `{add, set, remove}`, or a mapping of names to values that are set.
    pub(super) fn parse(conf: &Map<String, Value>, out: &mut Problems) -> HeaderChanges {
        let mut ops = Vec::new();
        let is_form = |name: &str| {
            conf.get(name)
                .is_some_and(|v| v.is_object() || v.is_array())
        };
        if !FORM.into_iter().any(is_form) {
            for (name, value) in conf {
                if value.is_array() {
                    out.push(Problem::new(
                        name,
                        "a list needs the form `set: {...}` or `add: {...}`",
                    ));
                } else {
                    set(name, value, out, &mut ops);
                }
            }
            return HeaderChanges::new(ops);
        }
        for name in conf.keys().filter(|name| !FORM.contains(&name.as_str())) {
            out.push(Problem::new(name, "not allowed beside add, set and remove"));
        }
        for (name, value) in members(conf, "add", out) {
            for (key, value) in values(name, value, &mut out.at("add")) {
                ops.push(Op::Add(key, value));
            }
        }
        for (name, value) in members(conf, "set", out) {
            set(name, value, &mut out.at("set"), &mut ops);
        }
        removals(conf, out, &mut ops);
        HeaderChanges::new(ops)
    }

    fn new(ops: Vec<Op>) -> HeaderChanges {
        let grouped =
            |op: &Op| matches!(op, Op::Add(_, text) | Op::Set(_, text) if text.is_grouped());
        HeaderChanges {
            wants_groups: ops.iter().any(grouped),
            ops,
        }
    }

    /// Whether some value names a group.
    pub(super) fn wants_groups(&self) -> bool {
        self.wants_groups
    }

    /// Whether some value uses a variable of which `is` holds.
    pub(super) fn any_var(&self, is: &dyn Fn(&Var) -> bool) -> bool {
        let uses = |op: &Op| matches!(op, Op::Add(_, text) | Op::Set(_, text) if text.any_var(is));
        self.ops.iter().any(uses)
    }

    pub(super) fn apply(&self, cx: &mut Ctx<'_>, groups: Option<&[Option<String>]>) {
        for op in &self.ops {
            match op {
                Op::Add(key, value) => {
                    let value = value.render(cx, groups);
                    cx.append_header(key, value);
                }
                Op::Set(key, value) => {
                    let value = value.render(cx, groups);
                    cx.set_header(key, value);
                }
                Op::Remove(key) => cx.remove_header(key),
            }
        }
    }
}

impl Text {
    /// Variables and, as `$1` or `${1}`, groups. What a group holds is not searched for variables:
    /// it comes from the client.
    fn parse(text: &str) -> Text {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, group, after)) = next_group(rest) {
            parts.push(Part::Text(Template::parse(before)));
            parts.push(Part::Group(group));
            rest = after;
        }
        let last = Template::parse(rest);
        if !parts.is_empty() {
            parts.push(Part::Text(last));
            return Text::Grouped(parts);
        }
        if last.is_constant() {
            Text::Constant(Bytes::copy_from_slice(text.as_bytes()))
        } else {
            Text::Template(last)
        }
    }

    fn is_grouped(&self) -> bool {
        matches!(self, Text::Grouped(_))
    }

    fn any_var(&self, is: &dyn Fn(&Var) -> bool) -> bool {
        match self {
            Text::Constant(_) => false,
            Text::Template(template) => template.any_var(is),
            Text::Grouped(parts) => parts
                .iter()
                .any(|part| matches!(part, Part::Text(template) if template.any_var(is))),
        }
    }

    fn render(&self, cx: &Ctx<'_>, groups: Option<&[Option<String>]>) -> Bytes {
        match self {
            Text::Constant(text) => text.clone(),
            Text::Template(template) => Bytes::from(template.render(&cx.lookup()).into_owned()),
            Text::Grouped(parts) => {
                let mut out = String::new();
                for part in parts {
                    match part {
                        Part::Text(template) => out.push_str(&template.render(&cx.lookup())),
                        Part::Group(n) => {
                            let group = groups.and_then(|groups| groups.get(*n)?.as_deref());
                            out.push_str(group.unwrap_or(""));
                        }
                    }
                }
                Bytes::from(out)
            }
        }
    }
}

/// The text before the first group, the group's number, and the text behind it.
fn next_group(text: &str) -> Option<(&str, usize, &str)> {
    for (at, _) in text.match_indices('$') {
        if text[..at].ends_with('\\') {
            continue;
        }
        let after = &text[at + 1..];
        let inner = after.strip_prefix('{').unwrap_or(after);
        let end = inner
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(inner.len());
        if end == 0 {
            continue;
        }
        let next = match (inner.len() < after.len(), inner[end..].strip_prefix('}')) {
            (true, Some(next)) => next,
            (true, None) => continue,
            (false, _) => &inner[end..],
        };
        // A number too long to read is a group that does not exist.
        return Some((
            &text[..at],
            inner[..end].parse().unwrap_or(usize::MAX),
            next,
        ));
    }
    None
}

/// The members of `add` or `set`; says so when there are none.
fn members<'v>(
    conf: &'v Map<String, Value>,
    part: &str,
    out: &mut Problems,
) -> impl Iterator<Item = (&'v String, &'v Value)> + use<'v> {
    let map = conf.get(part).and_then(Value::as_object);
    if conf.contains_key(part) && map.is_none_or(Map::is_empty) {
        out.add(part, "expected an object with at least 1 properties");
    }
    map.into_iter().flatten()
}

fn removals(conf: &Map<String, Value>, out: &mut Problems, ops: &mut Vec<Op>) {
    let Some(remove) = conf.get("remove") else {
        return;
    };
    let list = remove.as_array().map_or(&[][..], Vec::as_slice);
    if list.is_empty() {
        out.add("remove", "expect array to have at least 1 items");
    }
    let mut out = out.at("remove");
    for (i, name) in list.iter().enumerate() {
        match name
            .as_str()
            .and_then(|name| name.parse::<HeaderKey>().ok())
        {
            Some(key) if FRAMING.contains(&key.lower()) => out.at_index(i).add("", framing(&key)),
            Some(key) => ops.push(Op::Remove(key)),
            None => out.at_index(i).add("", "invalid field character in header"),
        }
    }
}

/// Of several values the first one replaces what was there.
fn set(name: &str, value: &Value, out: &mut Problems, ops: &mut Vec<Op>) {
    for (i, (key, text)) in values(name, value, out).into_iter().enumerate() {
        ops.push(if i == 0 {
            Op::Set(key, text)
        } else {
            Op::Add(key, text)
        });
    }
}

/// Each value of a header: a text, a number, or a list of them.
fn values(name: &str, value: &Value, out: &mut Problems) -> Vec<(HeaderKey, Text)> {
    let list = value
        .as_array()
        .map_or_else(|| std::slice::from_ref(value), Vec::as_slice);
    if list.is_empty() {
        out.push(Problem::new(name, "expect array to have at least 1 items"));
    }
    let mut made = Vec::with_capacity(list.len());
    for value in list {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(n) => n.to_string(),
            _ => {
                out.push(Problem::new(
                    name,
                    "wrong type: expected one of string, number",
                ));
                continue;
            }
        };
        match name_and_value(name, &text, out) {
            Some(key) if FRAMING.contains(&key.lower()) => {
                out.push(Problem::new(name, framing(&key)))
            }
            Some(key) => made.push((key, Text::parse(&text))),
            None => {}
        }
    }
    made
}

fn framing(key: &HeaderKey) -> String {
    format!("`{key}` says where the message ends and is the gateway's alone")
}
