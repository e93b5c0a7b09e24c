//! Which fields of a resource differ, as people read it: without secrets.

use serde_json::{Value, json};

use crate::config::keyring::hide;
use crate::config::kind::Key;

/// Differences of one resource that are told one by one.
const MOST_FIELDS: usize = 200;

/// One difference.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Where: `upstream.nodes[1].weight`; empty for the whole.
    pub path: String,
    /// What was there; `None` for nothing. Secrets are hidden.
    pub before: Option<Value>,
    /// What is there now.
    pub after: Option<Value>,
}

impl Field {
    /// As JSON; a side without anything is left out.
    pub fn shown(&self) -> Value {
        let mut map = serde_json::Map::new();
        map.insert("path".to_owned(), json!(self.path));
        if let Some(before) = &self.before {
            map.insert("before".to_owned(), before.clone());
        }
        if let Some(after) = &self.after {
            map.insert("after".to_owned(), after.clone());
        }
        Value::Object(map)
    }
}

/// A resource in plain form, and the same for everybody's eyes.
pub struct Shown {
    plain: Value,
    hidden: Value,
}

impl Shown {
    /// A resource. Who made it when is no content.
    pub fn new(key: &Key, plain: &Value) -> Shown {
        let plain = content(plain);
        let mut hidden = plain.clone();
        hide(key, &mut hidden);
        Shown { plain, hidden }
    }

    /// Without secrets.
    pub fn value(&self) -> &Value {
        &self.hidden
    }
}

/// A resource without the members that say when it was written.
pub(crate) fn content(value: &Value) -> Value {
    let mut value = value.clone();
    if let Some(map) = value.as_object_mut() {
        for name in ["create_time", "update_time", "modifiedIndex"] {
            map.shift_remove(name);
        }
    }
    value
}

/// Every difference, in the order of members.
pub(crate) fn fields(before: &Shown, after: &Shown) -> Vec<Field> {
    let mut out = Vec::new();
    let before = Some((&before.plain, &before.hidden));
    let after = Some((&after.plain, &after.hidden));
    compare("", before, after, &mut out);
    if out.len() > MOST_FIELDS {
        let more = out.len() - MOST_FIELDS;
        out.truncate(MOST_FIELDS);
        out.push(Field {
            path: format!("and {more} more"),
            before: None,
            after: None,
        });
    }
    out
}

/// A value, and what is shown of it: hiding keeps the shape.
type Pair<'a> = (&'a Value, &'a Value);

fn compare(path: &str, before: Option<Pair<'_>>, after: Option<Pair<'_>>, out: &mut Vec<Field>) {
    match (before, after) {
        (Some((a, _)), Some((b, _))) if a == b => {}
        (Some((Value::Object(a), ah)), Some((Value::Object(b), bh))) => {
            let names = a
                .keys()
                .chain(b.keys().filter(|name| !a.contains_key(*name)));
            for name in names {
                let left = a.get(name).zip(ah.get(name));
                let right = b.get(name).zip(bh.get(name));
                compare(&join(path, name), left, right, out);
            }
        }
        (Some((Value::Array(a), ah)), Some((Value::Array(b), bh))) => {
            lists(path, (a, ah), (b, bh), out);
        }
        (before, after) => out.push(Field {
            path: path.to_owned(),
            before: before.map(|(_, shown)| shown.clone()),
            after: after.map(|(_, shown)| shown.clone()),
        }),
    }
}

/// Lists differ between what they begin and what they end with alike: items there are compared one
/// by one when they are as many, else they are gone or new.
fn lists(
    path: &str,
    (a, ah): (&[Value], &Value),
    (b, bh): (&[Value], &Value),
    out: &mut Vec<Field>,
) {
    let start = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let most = a.len().min(b.len()) - start;
    let back = a.iter().rev().zip(b.iter().rev());
    let end = back.take(most).take_while(|(x, y)| x == y).count();
    let (left, right) = (start..a.len() - end, start..b.len() - end);
    if left.len() == right.len() {
        for at in left {
            let name = format!("{path}[{at}]");
            let (left, right) = (a.get(at).zip(ah.get(at)), b.get(at).zip(bh.get(at)));
            compare(&name, left, right, out);
        }
        return;
    }
    for at in left {
        out.push(Field {
            path: format!("{path}[{at}]"),
            before: ah.get(at).cloned(),
            after: None,
        });
    }
    for at in right {
        out.push(Field {
            path: format!("{path}[{at}]"),
            before: None,
            after: bh.get(at).cloned(),
        });
    }
}

/// Names with a dot in them are set in quotes, so that a path says where it leads.
fn join(path: &str, name: &str) -> String {
    let name = if name.contains(['.', '[', '"']) || name.is_empty() {
        format!("{name:?}")
    } else {
        name.to_owned()
    };
    if path.is_empty() {
        name
    } else {
        format!("{path}.{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::kind::Kind;

    fn check(kind: Kind, before: Value, after: Value, expected: &[(&str, Value, Value)]) {
        let key = Key::new(kind, "1");
        let got = fields(&Shown::new(&key, &before), &Shown::new(&key, &after));
        let got: Vec<(&str, Value, Value)> = got
            .iter()
            .map(|f| {
                let side = |v: &Option<Value>| v.clone().unwrap_or(json!("nothing"));
                (f.path.as_str(), side(&f.before), side(&f.after))
            })
            .collect();
        assert_eq!(got, expected, "{before} {after}");
    }

    #[test]
    fn differences_by_field() {
        let route = |b, a, e: &[(&str, Value, Value)]| check(Kind::Route, b, a, e);
        route(json!({"uri": "/a"}), json!({"uri": "/a"}), &[]);
        // The order of members is no difference, nor is the time.
        route(
            json!({"uri": "/a", "name": "x", "update_time": 1}),
            json!({"name": "x", "update_time": 2, "uri": "/a"}),
            &[],
        );
        route(
            json!({"uri": "/a", "host": "h"}),
            json!({"uri": "/b", "desc": null}),
            &[
                ("uri", json!("/a"), json!("/b")),
                ("host", json!("h"), json!("nothing")),
                ("desc", json!("nothing"), json!(null)),
            ],
        );
        route(
            json!({"upstream": {"nodes": {"127.0.0.1:80": 1, "b:1": 1}}}),
            json!({"upstream": {"nodes": {"127.0.0.1:80": 2, "b:1": 1}}}),
            &[(r#"upstream.nodes."127.0.0.1:80""#, json!(1), json!(2))],
        );
        route(
            json!({"uris": ["/a", "/b", "/c"]}),
            json!({"uris": ["/a", "/x", "/c"]}),
            &[("uris[1]", json!("/b"), json!("/x"))],
        );
        route(
            json!({"uris": ["/a", "/c"]}),
            json!({"uris": ["/a", "/b", "/c"]}),
            &[("uris[1]", json!("nothing"), json!("/b"))],
        );
        route(
            json!({"uris": ["/a", "/a"]}),
            json!({"uris": ["/a"]}),
            &[("uris[1]", json!("/a"), json!("nothing"))],
        );
        route(
            json!({"a": [1]}),
            json!({"a": {"b": 1}}),
            &[("a", json!([1]), json!({"b": 1}))],
        );
    }

    #[test]
    fn secrets_are_not_shown_and_their_change_is() {
        check(
            Kind::Consumer,
            json!({"plugins": {"key-auth": {"key": "one"}}}),
            json!({"plugins": {"key-auth": {"key": "two"}}}),
            &[("plugins.key-auth.key", json!("***"), json!("***"))],
        );
        check(
            Kind::Ssl,
            json!({"sni": "a", "keys": ["---1"]}),
            json!({"sni": "a", "key": "---2", "keys": ["---1", "---3"]}),
            &[
                ("keys[1]", json!("nothing"), json!("***")),
                ("key", json!("nothing"), json!("***")),
            ],
        );
    }

    #[test]
    fn a_long_list_of_differences_ends() {
        let many = |n: u32| {
            json!(
                (0..1000)
                    .map(|at| (at.to_string(), n))
                    .collect::<std::collections::BTreeMap<_, _>>()
            )
        };
        let key = Key::new(Kind::Route, "1");
        let got = fields(&Shown::new(&key, &many(1)), &Shown::new(&key, &many(2)));
        assert_eq!(got.len(), MOST_FIELDS + 1);
        assert_eq!(got[MOST_FIELDS].path, "and 800 more");
    }
}
