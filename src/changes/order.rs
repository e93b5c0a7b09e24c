//! What is asked for: single changes, a whole configuration, or both.
//!
//! ```json
//! {"changes": [{"op": "put", "kind": "routes", "id": "1", "value": {"uri": "/a", "upstream_id": "u"}},
//!              {"op": "delete", "kind": "routes", "id": "old"}],
//!  "resources": {"routes": [], "upstreams": []},
//!  "expected_revision": 41, "comment": "ticket 7", "confirm": {"within_seconds": 120}}
//! ```
//!
//! `changes` touches what it names. `resources` is a whole configuration, in the layout of
//! `apisix.yaml` or of ADC's file: what it does not name is deleted. A body may be such a document
//! itself.

use std::collections::HashMap;

use lockgate_plugin::schema::closest;
use lockgate_plugin::{Problem, Problems};
use serde_json::{Map, Value};

use super::layout::{Format, Ids, document, is_storable};
use crate::config::kind::{Key, Kind};
use crate::config::resource::Id;
use crate::explain::Asked;

/// The longest comment: a line or two.
const LONGEST_COMMENT: usize = 1000;
/// How long a confirmation may take: less is no time to look, more is no confirmation.
const CONFIRM_SECONDS: std::ops::RangeInclusive<u64> = 1..=86_400;
/// Requests that may be sent along to be looked at.
pub(crate) const MOST_REQUESTS: usize = 10_000;

/// Everything that is asked for at once.
#[derive(Debug, Default)]
pub struct Order {
    /// Each resource once.
    pub wants: Vec<Want>,
    /// Whether what is not named is to be deleted: the layout of the whole configuration.
    pub whole: Option<Format>,
    /// The revision that the author looked at.
    pub expected: Option<u64>,
    /// Why, in the author's words.
    pub comment: Option<String>,
    /// Whether it goes back by itself.
    pub confirm: Option<Confirm>,
    /// Requests to look at, one a line; JSON where more is said than method and URL.
    pub requests: Option<Vec<String>>,
}

/// What is wanted of one resource.
#[derive(Clone, Debug)]
pub struct Want {
    /// The resource.
    pub key: Key,
    /// Where in the order the resource itself is, for problems: `changes[3].value`.
    pub place: String,
    /// What is to be there.
    pub what: What,
}

/// What is to be at a place.
#[derive(Clone, Debug)]
pub enum What {
    /// This resource.
    Value(Value),
    /// Exactly this stored text.
    Text(String),
    /// Nothing.
    Gone,
}

/// When a change goes back by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Confirm {
    /// Unless it is confirmed in this time.
    pub within_seconds: u64,
    /// Before that, when the share of 5xx among the changed routes' answers rises by more than so
    /// many percentage points.
    pub error_rise: Option<f64>,
}

/// Reads an order.
///
/// # Errors
/// Every mistake with its JSON path. Resources are not looked into here.
pub fn order(body: &Value) -> Result<Order, Problems> {
    const KNOWN: [&str; 7] = [
        "changes",
        "resources",
        "format",
        "expected_revision",
        "comment",
        "confirm",
        "requests",
    ];
    let Value::Object(map) = body else {
        return Err(Problem::new("", "expected an object with `changes` or `resources`").into());
    };
    let is_document = |name: &String| Kind::ALL.iter().any(|kind| kind.plural() == name);
    if !map.keys().any(|name| KNOWN.contains(&name.as_str())) && map.keys().any(is_document) {
        let (format, wants) = document(body, "", Ids::Needed, None)?;
        return Order {
            wants,
            whole: Some(format),
            ..Order::default()
        }
        .each_once();
    }
    let mut out = Problems::default();
    unknown(map, &KNOWN, &mut out);
    let format = format(map, &mut out);
    let mut order = Order {
        expected: number(map, "expected_revision", &mut out),
        comment: comment(map, &mut out),
        confirm: confirm(map, &mut out),
        requests: requests(map, &mut out),
        ..Order::default()
    };
    let given = |name: &str| map.get(name).filter(|value| !value.is_null());
    if given("changes").is_none() && given("resources").is_none() {
        out.add(
            "",
            "nothing is asked for: give `changes`, `resources`, or both",
        );
    }
    if let Some(resources) = given("resources") {
        match document(resources, "resources", Ids::Needed, format) {
            Ok((format, wants)) => (order.whole, order.wants) = (Some(format), wants),
            Err(problems) => out.extend(problems),
        }
    }
    match given("changes") {
        None => {}
        Some(Value::Array(list)) => {
            for (at, item) in list.iter().enumerate() {
                order
                    .wants
                    .extend(change(item, &format!("changes[{at}]"), &mut out));
            }
        }
        Some(_) => out.add("changes", "expected a list"),
    }
    out.into_result()?;
    order.each_once()
}

impl Order {
    /// The order, if it names each resource once.
    fn each_once(self) -> Result<Order, Problems> {
        let mut out = Problems::default();
        let mut seen: HashMap<&Key, &str> = HashMap::new();
        for want in &self.wants {
            if let Some(first) = seen.insert(&want.key, &want.place) {
                let text = format!("{} is named twice", want.key);
                let hint = format!("the first one is {first}");
                out.push(Problem::new(&*want.place, text).hint(hint));
            }
        }
        out.into_result().map(|()| self)
    }
}

/// The layout that a whole configuration is said to have.
fn format(map: &Map<String, Value>, out: &mut Problems) -> Option<Format> {
    let value = map.get("format").filter(|value| !value.is_null())?;
    let format = value.as_str().and_then(Format::named);
    if format.is_none() {
        out.add(
            "format",
            "expected `apisix` or `adc`: the layout of `resources`",
        );
    }
    format
}

fn change(item: &Value, place: &str, out: &mut Problems) -> Option<Want> {
    let mut out = out.at(place);
    let Value::Object(map) = item else {
        out.add(
            "",
            "expected an object with `op`, `kind`, `id` and, to put, `value`",
        );
        return None;
    };
    unknown(map, &["op", "kind", "id", "value"], &mut out);
    let op = map.get("op").and_then(Value::as_str);
    if !matches!(op, Some("put" | "delete")) {
        out.add("op", "expected `put` or `delete`");
    }
    let key = key(map, &mut out);
    let value = map.get("value");
    let what = match (op?, value) {
        ("put", Some(value)) if value.is_object() => What::Value(value.clone()),
        ("put", Some(_)) => {
            out.add("value", "wrong type: a resource is an object");
            return None;
        }
        ("put", None) => {
            out.add("value", "is required to put");
            return None;
        }
        ("delete", None) => What::Gone,
        ("delete", Some(_)) => {
            out.add("value", "there is none to delete");
            return None;
        }
        _ => return None,
    };
    Some(Want {
        key: key?,
        place: match what {
            What::Gone => place.to_owned(),
            _ => format!("{place}.value"),
        },
        what,
    })
}

fn key(map: &Map<String, Value>, out: &mut Problems) -> Option<Key> {
    let names = || Kind::ALL.into_iter().map(Kind::plural);
    let kind = match map.get("kind").and_then(Value::as_str) {
        None => {
            out.add(
                "kind",
                "is required, as the plural: `routes`, `upstreams`, ...",
            );
            None
        }
        Some(name) => {
            let kind = Kind::ALL.into_iter().find(|kind| kind.plural() == name);
            if kind.is_none() {
                let mut problem = Problem::new("kind", format!("unknown kind `{name}`"));
                problem.hint =
                    closest(name, names()).map(|close| format!("did you mean `{close}`?"));
                out.push(problem);
            }
            kind
        }
    };
    let Some(id) = map.get("id").and_then(Id::text) else {
        out.add("id", "is required: a text or a number");
        return None;
    };
    let kind = match kind? {
        Kind::Consumer if id.contains("/credentials/") => Kind::Credential,
        kind => kind,
    };
    let key = Key::new(kind, &id);
    if !is_storable(&key) {
        let mut problem = Problem::new("id", format!("`{id}` is no id"));
        problem.hint = match kind {
            Kind::Credential => Some("of a credential it is CONSUMER/credentials/ID".to_owned()),
            Kind::Secret => Some("of a secret it is MANAGER/ID".to_owned()),
            _ => None,
        };
        out.push(problem);
        return None;
    }
    Some(key)
}

fn unknown(map: &Map<String, Value>, known: &[&str], out: &mut Problems) {
    for name in map.keys().filter(|name| !known.contains(&name.as_str())) {
        let mut problem = Problem::new(name.as_str(), format!("unknown key `{name}`"));
        problem.hint = Some(match closest(name, known.iter().copied()) {
            Some(close) => format!("did you mean `{close}`?"),
            None => format!("allowed: {}", known.join(", ")),
        });
        out.push(problem);
    }
}

fn number(map: &Map<String, Value>, name: &str, out: &mut Problems) -> Option<u64> {
    let value = map.get(name).filter(|value| !value.is_null())?;
    let number = value.as_u64();
    if number.is_none() {
        out.add(name, "expected a whole number");
    }
    number
}

fn comment(map: &Map<String, Value>, out: &mut Problems) -> Option<String> {
    let value = map.get("comment").filter(|value| !value.is_null())?;
    match value.as_str() {
        Some(text) if text.len() <= LONGEST_COMMENT => Some(text.to_owned()),
        Some(_) => {
            out.add("comment", format!("is longer than {LONGEST_COMMENT} bytes"));
            None
        }
        None => {
            out.add("comment", "expected a text");
            None
        }
    }
}

fn confirm(map: &Map<String, Value>, out: &mut Problems) -> Option<Confirm> {
    let value = map.get("confirm").filter(|value| !value.is_null())?;
    let mut out = out.at("confirm");
    let Value::Object(map) = value else {
        out.add("", "expected an object with `within_seconds`");
        return None;
    };
    unknown(map, &["within_seconds", "error_rise_percent"], &mut out);
    let within = number(map, "within_seconds", &mut out);
    if !within.is_some_and(|seconds| CONFIRM_SECONDS.contains(&seconds)) {
        let (first, last) = CONFIRM_SECONDS.into_inner();
        out.add("within_seconds", format!("is required: {first} to {last}"));
    }
    let rise = map.get("error_rise_percent").filter(|v| !v.is_null());
    let error_rise = rise.and_then(Value::as_f64);
    if rise.is_some() && !error_rise.is_some_and(|rise| (0.0..100.0).contains(&rise)) {
        out.add("error_rise_percent", "expected a number from 0, below 100");
    }
    Some(Confirm {
        within_seconds: within?,
        error_rise,
    })
}

fn requests(map: &Map<String, Value>, out: &mut Problems) -> Option<Vec<String>> {
    let value = map.get("requests").filter(|value| !value.is_null())?;
    let Value::Array(list) = value else {
        out.add(
            "requests",
            "expected a list: of lines, `GET http://a.test/b`, or of objects, as `explain` takes them",
        );
        return None;
    };
    if list.len() > MOST_REQUESTS {
        out.add("requests", format!("has more than {MOST_REQUESTS} lines"));
        return None;
    }
    let mut lines = Vec::with_capacity(list.len());
    for (at, item) in list.iter().enumerate() {
        let place = format!("requests[{at}]");
        match item {
            Value::String(line) => lines.push(line.clone()),
            Value::Object(_) => match serde_json::from_value::<Asked>(item.clone()) {
                Ok(_) => lines.push(item.to_string()),
                Err(error) => out.add(&place, error.to_string()),
            },
            _ => out.add(&place, "expected a line, or an object with `url`"),
        }
    }
    Some(lines)
}
