//! The history as it is told, without secrets; and what a time to live has ended.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chrono::{DateTime, SecondsFormat};
use serde_json::{Value, json};

use super::{Changed, Entry, Generation};
use crate::changes::diff::{Field, Shown, fields};
use crate::config::keyring::Keyring;
use crate::config::kind::Key;
use crate::store::Listing;

impl Generation {
    /// As JSON, without what the resources held.
    fn summary(&self) -> Value {
        let Entry { changes, .. } = &self.entry;
        let named =
            |change: &Changed| json!({ "action": change.action(), "resource": change.path });
        self.with(&changes.iter().map(named).collect::<Vec<_>>())
    }

    /// As JSON, with every field that changed.
    pub fn shown(&self, keyring: &Keyring) -> Value {
        let changes = self.entry.changes.iter();
        self.with(
            &changes
                .map(|change| change.shown(keyring))
                .collect::<Vec<_>>(),
        )
    }

    fn with(&self, changes: &[Value]) -> Value {
        let Entry {
            at,
            key,
            client,
            action,
            comment,
            kept,
            ..
        } = &self.entry;
        json!({
            "revision": self.revision,
            "time": time(*at),
            "key": key,
            "client": client,
            "action": action,
            "comment": comment,
            "kept": kept,
            "changes": changes,
        })
    }
}

/// A time for people: UTC, to the second.
pub fn time(millis: u64) -> String {
    let at = i64::try_from(millis)
        .ok()
        .and_then(DateTime::from_timestamp_millis);
    at.map(|at| at.to_rfc3339_opts(SecondsFormat::Secs, true))
        .unwrap_or_default()
}

/// Milliseconds since 1970.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// All changes, the newest first, as JSON without what the resources held. `generations` are in that
/// order. Among them is what a time to live has ended: no write tells of that, so it is found by what
/// was to end and is gone.
pub fn summaries(generations: &[Generation], listing: &Listing, now: u64) -> Vec<Value> {
    let changes = generations.iter();
    let mut all: Vec<(u64, Value)> = changes.map(|g| (g.entry.at, g.summary())).collect();
    for (at, path, revision) in expired(generations, listing, now) {
        let place = all.partition_point(|(other, _)| *other > at);
        let told = json!({
            "revision": null,
            "time": time(at),
            "key": null,
            "client": null,
            "action": "expired",
            "comment": format!("its time to live, set at revision {revision}, is over"),
            "kept": "nothing",
            "changes": [{ "action": "delete", "resource": path }],
        });
        all.insert(place, (at, told));
    }
    all.into_iter().map(|(_, told)| told).collect()
}

/// What has ended by itself: when, where, and the revision that said so beforehand.
fn expired<'a>(
    generations: &'a [Generation],
    listing: &Listing,
    now: u64,
) -> Vec<(u64, &'a str, u64)> {
    let mut out = Vec::new();
    // What is there after the change that is looked at: the newest comes first.
    let mut later: HashMap<&str, (bool, u64)> = HashMap::new();
    for generation in generations {
        for change in &generation.entry.changes {
            let path = &*change.path;
            let next = later.insert(path, (!change.made, generation.entry.at));
            let (was_there, until) = next.unwrap_or_else(|| (listing.find(path).is_some(), now));
            let Some(seconds) = change.ttl.filter(|_| !change.gone && !was_there) else {
                continue;
            };
            let end = generation
                .entry
                .at
                .saturating_add(seconds.saturating_mul(1000));
            // Gone before that, somebody has deleted it.
            if end <= until {
                out.push((end, path, generation.revision));
            }
        }
    }
    out
}

impl Changed {
    /// `create`, `update` or `delete`.
    pub fn action(&self) -> &'static str {
        match (self.made, self.gone) {
            (_, true) => "delete",
            (true, _) => "create",
            _ => "update",
        }
    }

    fn shown(&self, keyring: &Keyring) -> Value {
        let Some(key) = Key::from_path(&self.path) else {
            return json!({ "action": self.action(), "resource": self.path, "fields": [] });
        };
        let shown = |text: &Option<String>| {
            let mut value = serde_json::from_str(text.as_deref()?).unwrap_or(Value::Null);
            keyring.open(&key, &mut value);
            Some(Shown::new(&key, &value))
        };
        let fields = match (shown(&self.before), shown(&self.after)) {
            (Some(before), Some(after)) => fields(&before, &after),
            (None, None) => Vec::new(),
            (before, after) => vec![Field {
                path: String::new(),
                before: before.map(|shown| shown.value().clone()),
                after: after.map(|shown| shown.value().clone()),
            }],
        };
        let fields: Vec<Value> = fields.iter().map(Field::shown).collect();
        json!({ "action": self.action(), "resource": self.path, "fields": fields })
    }
}
