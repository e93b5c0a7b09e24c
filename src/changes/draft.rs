//! What an order means for what a store holds: which resources change, checked as a whole.

use std::collections::{HashMap, HashSet};

use lockgate_plugin::Problems;
use serde_json::{Map, Value, json};

use super::diff::{Field, Shown, content, fields};
use super::layout::Format;
use super::order::{Want, What};
use super::references;
use crate::config::catalogue::Catalogue;
use crate::config::keyring::Keyring;
use crate::config::kind::{Key, Kind};
use crate::config::resource::Id;
use crate::store::{Guard, Item, Listing, Txn};

/// Resources whose own revisions are conditions of the transaction. Of more, that nothing was written
/// to any collection says the same, except for what a program other than lockgate deletes in that
/// very moment. Fewer than etcd takes, with the conditions for collections.
const OWN_GUARDS: usize = 40;
/// Levels of a resource: fewer than the 128 that a text is read with, so that what is stored can be
/// read again.
pub(crate) const MOST_LEVELS: usize = 125;

/// What a draft is made by.
pub struct Rules<'a> {
    /// What is encrypted in the store.
    pub keyring: &'a Keyring,
    /// The plugins.
    pub catalogue: &'a Catalogue,
    /// What is wrong with a resource by itself; paths are inside of it.
    pub check: &'a dyn Fn(&Key, &Value) -> Problems,
    /// Seconds since 1970.
    pub now: u64,
}

impl Rules<'_> {
    /// A stored text in plain form; null if it is no JSON.
    pub(super) fn plain(&self, key: &Key, text: &str) -> Value {
        let mut value = serde_json::from_str(text).unwrap_or(Value::Null);
        self.keyring.open(key, &mut value);
        value
    }
}

/// One resource that changes.
#[derive(Debug)]
pub struct Step {
    /// The resource.
    pub key: Key,
    /// Where the store has it.
    pub path: String,
    /// Where the order has it.
    pub(super) place: String,
    /// What is there.
    pub old: Option<Item>,
    /// The same in plain form.
    pub before: Option<Value>,
    /// What is to be there, in plain form.
    pub after: Option<Value>,
    /// What is to be stored.
    pub text: Option<String>,
}

impl Step {
    /// `create`, `update` or `delete`.
    pub fn action(&self) -> &'static str {
        match (&self.before, &self.after) {
            (None, _) => "create",
            (_, None) => "delete",
            _ => "update",
        }
    }

    /// What differs, for people.
    pub fn fields(&self) -> Vec<Field> {
        let shown = |value: &Option<Value>| value.as_ref().map(|v| Shown::new(&self.key, v));
        match (shown(&self.before), shown(&self.after)) {
            (Some(before), Some(after)) => fields(&before, &after),
            (before, after) => vec![Field {
                path: String::new(),
                before: before.map(|shown| shown.value().clone()),
                after: after.map(|shown| shown.value().clone()),
            }],
        }
    }

    /// As JSON.
    pub fn shown(&self) -> Value {
        let fields: Vec<Value> = self.fields().iter().map(Field::shown).collect();
        json!({ "action": self.action(), "resource": self.key.to_string(), "fields": fields })
    }
}

/// What is to be done.
#[derive(Debug, Default)]
pub struct Draft {
    /// The revision of the store it was made from.
    pub revision: u64,
    /// Only what changes.
    pub steps: Vec<Step>,
    /// Resources that are asked for and are so already.
    pub unchanged: usize,
}

/// Makes a draft of what is wanted. `whole`: what is not named is deleted, as far as the layout knows
/// of it.
///
/// # Errors
/// Every problem, each with its place in the order.
pub fn draft(
    wants: Vec<Want>,
    whole: Option<Format>,
    listing: &Listing,
    rules: &Rules<'_>,
) -> Result<Draft, Problems> {
    let mut out = Problems::default();
    let held: HashMap<&str, &Item> = listing.items.iter().map(|i| (&*i.path, i)).collect();
    let mut draft = Draft {
        revision: listing.revision,
        ..Draft::default()
    };
    let mut named: HashSet<String> = HashSet::with_capacity(wants.len());
    for want in wants {
        let path = want.key.to_string();
        let old = held.get(path.as_str()).copied();
        named.insert(path.clone());
        match step(want, path, old, rules, &mut out) {
            Some(step) => draft.steps.push(step),
            None => draft.unchanged += 1,
        }
    }
    let ownerless = ownerless(&draft.steps);
    let gone: Vec<&Item> = listing
        .items
        .iter()
        .filter(|item| !named.contains(&*item.path))
        .filter(|item| {
            whole.is_some_and(|format| format.speaks_of(item, listing))
                || ownerless.contains(owner(&item.path))
        })
        .collect();
    for item in gone {
        let Some(key) = Key::from_path(&item.path) else {
            continue;
        };
        draft.steps.push(deletion(key, "resources", item, rules));
    }
    references::check(&draft.steps, listing, rules, &mut out);
    out.into_result().map(|()| draft)
}

/// The consumers that are deleted: their credentials go with them.
fn ownerless(steps: &[Step]) -> HashSet<String> {
    let gone = steps
        .iter()
        .filter(|step| step.key.kind == Kind::Consumer && step.after.is_none());
    gone.map(|step| step.path.clone()).collect()
}

/// The consumer of a credential; empty for everything else.
fn owner(path: &str) -> &str {
    path.split_once("/credentials/")
        .map_or("", |(owner, _)| owner)
}

fn deletion(key: Key, place: &str, item: &Item, rules: &Rules<'_>) -> Step {
    Step {
        before: Some(rules.plain(&key, &item.text)),
        path: item.path.to_string(),
        place: place.to_owned(),
        old: Some(item.clone()),
        after: None,
        text: None,
        key,
    }
}

/// What becomes of one resource; `None` when it is so already, or cannot be.
fn step(
    want: Want,
    path: String,
    old: Option<&Item>,
    rules: &Rules<'_>,
    out: &mut Problems,
) -> Option<Step> {
    let Want { key, place, what } = want;
    let (after, text) = match what {
        What::Gone => {
            let Some(old) = old else {
                out.add(&place, format!("there is no {path} to delete"));
                return None;
            };
            return Some(deletion(key, &place, old, rules));
        }
        What::Text(text) => {
            if old.is_some_and(|old| *old.text == *text) {
                return None;
            }
            (rules.plain(&key, &text), Some(text))
        }
        What::Value(value) => (wanted(&key, &place, &value, rules, out)?, None),
    };
    let before = old.map(|old| rules.plain(&key, &old.text));
    if text.is_none()
        && before
            .as_ref()
            .is_some_and(|b| content(b) == content(&after))
    {
        return None;
    }
    let mut problems = (rules.check)(&key, &after);
    // The place says which one.
    problems
        .iter_mut()
        .for_each(|problem| problem.resource.clear());
    out.at(&place).extend(problems);
    let text = text.unwrap_or_else(|| stored(&key, &after, before.as_ref(), rules));
    Some(Step {
        key,
        path,
        place,
        old: old.cloned(),
        before,
        after: Some(after),
        text: Some(text),
    })
}

/// A resource as it will be, with its id and without times.
fn wanted(
    key: &Key,
    place: &str,
    value: &Value,
    rules: &Rules<'_>,
    out: &mut Problems,
) -> Option<Value> {
    let mut value = content(value);
    if is_deeper_than(&value, MOST_LEVELS) {
        out.add(place, "nested too deeply");
        return None;
    }
    if key.kind == Kind::Ssl {
        // Whoever sends back what a write was answered with sends the key encrypted.
        rules.keyring.open(key, &mut value);
    }
    let Some(map) = value.as_object_mut() else {
        out.add(place, "wrong type: a resource is an object");
        return None;
    };
    named(key, map, &mut out.at(place));
    Some(value)
}

/// Gives a resource the name that its key says.
fn named(key: &Key, map: &mut Map<String, Value>, out: &mut Problems) {
    let own = |name: &str| map.get(name).filter(|id| !id.is_null()).and_then(Id::text);
    let name = if key.kind == Kind::Consumer {
        "username"
    } else {
        "id"
    };
    let id = short_id(key);
    match own(name) {
        Some(own) if *own != *id && *own != *key.id => {
            out.add(name, format!("`{own}` is not the id `{}`", key.id));
        }
        _ => {
            map.insert(name.to_owned(), Value::from(id));
        }
    }
}

/// The id inside a resource: of a credential without its consumer.
fn short_id(key: &Key) -> String {
    let id = match key.kind {
        Kind::Credential => key.id.split_once("/credentials/").map(|(_, id)| id),
        _ => None,
    };
    id.unwrap_or(&key.id).to_owned()
}

/// The text to be stored: with the times, and encrypted.
fn stored(key: &Key, after: &Value, before: Option<&Value>, rules: &Rules<'_>) -> String {
    let mut value = after.clone();
    if let (true, Some(map)) = (key.kind != Kind::PluginMetadata, value.as_object_mut()) {
        let made = before.and_then(|before| before.get("create_time")).cloned();
        map.insert("create_time".to_owned(), made.unwrap_or(rules.now.into()));
        map.insert("update_time".to_owned(), rules.now.into());
    }
    rules.keyring.seal(key, &mut value);
    value.to_string()
}

/// Whether a value has more levels than that. A store holds no more than a file may.
pub(crate) fn is_deeper_than(value: &Value, levels: usize) -> bool {
    let is_deeper = |part: &Value| levels == 0 || is_deeper_than(part, levels - 1);
    match value {
        Value::Array(list) => list.iter().any(is_deeper),
        Value::Object(map) => map.values().any(is_deeper),
        _ => false,
    }
}

impl Draft {
    /// The transaction: carried out only if nothing was written since the draft was made.
    pub fn txn(&self) -> Txn {
        let mut txn = Txn::default();
        txn.ops.extend(self.steps.iter().map(Step::op));
        let own = self.steps.iter().take(OWN_GUARDS).map(Step::own_guard);
        txn.guards.extend(own);
        txn.guards.extend(unchanged_since(self.revision));
        txn
    }

    /// What is there so far, by path.
    pub fn olds(&self) -> HashMap<&str, &Item> {
        let olds = self.steps.iter();
        olds.filter_map(|step| Some((&*step.path, step.old.as_ref()?)))
            .collect()
    }

    /// Bytes that are to be written.
    pub fn bytes(&self) -> usize {
        let texts = self.steps.iter().filter_map(|step| step.text.as_ref());
        texts.map(String::len).sum()
    }
}

/// Nothing was put into any collection after a revision, and no change was made by lockgate.
pub(super) fn unchanged_since(revision: u64) -> impl Iterator<Item = Guard> {
    let kinds = Kind::ALL
        .into_iter()
        .filter(|kind| *kind != Kind::Credential);
    let folders = kinds.map(Kind::plural).chain([super::history::FOLDER]);
    folders.map(move |folder| Guard::Unchanged(folder, revision))
}
