//! The whole configuration in one call, kept in memory: `GET`, `HEAD` and `PUT` of `/configs`.
//!
//! Whoever writes says how new each collection is and what the whole is called (`X-Digest`); a
//! collection that is not newer stays as it was. These endpoints take the place of all others.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::Admin;
use super::access::Role;
use super::kinds::item_key;
use super::private_keys::{without_client_keys, without_keys};
use super::request::Request;
use super::write::Failure;
use crate::changes::history;
use crate::config::kind::{Key, Kind};
use crate::endpoint::Answer;
use crate::store::{Commit, Item, Op, Txn};

/// The longest configuration: what a file may have.
pub(super) const MAX_CONFIGURATION: usize = crate::document::MAX_TEXT;

/// The configuration that is in force.
#[derive(Default)]
pub(super) struct Standalone {
    /// Collections as they were sent, and their versions.
    document: Map<String, Value>,
    digest: Option<String>,
    /// Seconds since 1970.
    modified: Option<u64>,
}

/// The collections, and what stands for the list of plugins, which is kept and has no effect.
fn collections() -> impl Iterator<Item = (&'static str, Option<Kind>)> {
    let kinds = Kind::ALL
        .into_iter()
        .filter(|kind| *kind != Kind::Credential);
    let kinds = kinds.map(|kind| (kind.plural(), Some(kind)));
    kinds.chain([("plugins", None)])
}

fn version_of(name: &str) -> String {
    format!("{name}_conf_version")
}

impl Standalone {
    fn version(&self, name: &str) -> Option<u64> {
        self.document.get(&version_of(name)).and_then(Value::as_u64)
    }

    fn named(&self, mut answer: Answer) -> Answer {
        if let Some(at) = self.modified {
            answer.headers.push(("X-Last-Modified", at.to_string()));
        }
        if let Some(digest) = &self.digest {
            answer.headers.push(("X-Digest", digest.clone()));
        }
        answer.unversioned()
    }

    /// Everything, with versions of 0 for what was never written. Private keys are not for viewers.
    fn shown(&self, role: Role) -> Value {
        let mut all = self.document.clone();
        if role == Role::Viewer {
            let ssls = all
                .get_mut(Kind::Ssl.plural())
                .and_then(Value::as_array_mut);
            ssls.into_iter().flatten().for_each(without_keys);
            all.values_mut().for_each(without_client_keys);
        }
        for (name, _) in collections() {
            all.entry(version_of(name)).or_insert(json!(0));
        }
        if let (Some(at), Some(digest)) = (self.modified, &self.digest) {
            all.insert("X-Last-Modified".to_owned(), json!(at));
            all.insert("X-Digest".to_owned(), json!(digest));
        }
        Value::Object(all)
    }
}

impl Admin {
    /// Answers in the mode in which the configuration is written as a whole.
    pub(super) async fn whole(&self, request: &Request) -> Answer {
        let Some(standalone) = &self.standalone else {
            return Answer::error(404, "not found").unversioned();
        };
        match (request.segment(1), request.method.as_str()) {
            (Some("validate"), "POST") => self.configs(request),
            (None, "HEAD") => standalone.lock().await.named(Answer::text(200, "")),
            (None, "GET") => {
                let held = standalone.lock().await;
                let all = held.shown(request.role);
                held.named(if request.accepts_yaml {
                    Answer::text(200, serde_yaml::to_string(&all).unwrap_or_default())
                } else {
                    Answer::json(200, all.to_string())
                })
            }
            (None, "PUT") => {
                let mut held = standalone.lock().await;
                match self.replace(&mut held, request).await {
                    Ok(answer) | Err(Failure::Answer(answer)) => answer.unversioned(),
                    Err(Failure::Store(error)) => super::unavailable(&error).unversioned(),
                }
            }
            _ => Answer::error(404, "not found").unversioned(),
        }
    }

    async fn replace(&self, held: &mut Standalone, request: &Request) -> Result<Answer, Failure> {
        let Some(digest) = request.digest.as_deref().filter(|text| !text.is_empty()) else {
            return Err(Answer::bad("missing digest header").into());
        };
        if held.digest.as_deref() == Some(digest) {
            return Ok(held.named(Answer::text(204, "")));
        }
        let Some(body) = request.document()? else {
            return Err(Answer::bad("invalid request body: empty request body").into());
        };
        let Value::Object(mut body) = body else {
            return Err(Answer::bad("invalid request body: expected an object").into());
        };
        let mut next = Map::new();
        let (mut txn, mut olds) = (Txn::default(), HashMap::new());
        for (name, kind) in collections() {
            let version = newer(held.version(name), body.get(&version_of(name)), name)?;
            let Some(version) = version else {
                // Not newer: what was sent is not looked at.
                for kept in [name.to_owned(), version_of(name)] {
                    if let Some(value) = held.document.get(&kept) {
                        next.insert(kept, value.clone());
                    }
                }
                continue;
            };
            next.insert(version_of(name), json!(version));
            let Some(list) = body.shift_remove(name).filter(|list| !list.is_null()) else {
                if let Some(kind) = kind {
                    self.put_list(kind, &[], &mut txn, &mut olds).await?;
                }
                continue;
            };
            if let Some(kind) = kind {
                let none = Vec::new();
                let items = match &list {
                    Value::Array(items) => items,
                    Value::Object(map) if map.is_empty() => &none,
                    _ => return Err(Answer::bad(format!("{name} must be a list")).into()),
                };
                self.put_list(kind, items, &mut txn, &mut olds).await?;
            }
            next.insert(name.to_owned(), list);
        }
        let author = request.author(request.line(), None);
        // Nothing else writes here while this is held: what was read is there still.
        let old = |path: &str| olds.get(path).cloned();
        history::record_known(&*self.store, self.history, &mut txn, &author, old).await?;
        let Commit::Done(revision) = self.store.commit(txn).await? else {
            return Err(
                Answer::error(503, "something else was written just now: try again").into(),
            );
        };
        self.in_use(revision).await;
        *held = Standalone {
            document: next,
            digest: Some(digest.to_owned()),
            modified: Some(request.now),
        };
        Ok(held.named(Answer::text(202, "")))
    }

    /// Checks a list, and adds what leads to exactly it: the same text again is no change. `olds` gets
    /// what is there so far.
    async fn put_list(
        &self,
        kind: Kind,
        items: &[Value],
        txn: &mut Txn,
        olds: &mut HashMap<String, Item>,
    ) -> Result<(), Failure> {
        let list = self.store.list(&format!("{}/", kind.plural())).await?.items;
        let held: HashMap<&str, &str> = list.iter().map(|i| (&*i.path, &*i.text)).collect();
        let mut seen = HashSet::new();
        for (at, item) in items.iter().enumerate() {
            let key = item_key(kind, item, at);
            if let Some(text) = self.checker.problem(&key, item) {
                return Err(Answer::bad(text).into());
            }
            let (path, text) = (key.to_string(), item.to_string());
            if held.get(path.as_str()) != Some(&text.as_str()) {
                txn.ops.push(Op::Put {
                    path: path.clone(),
                    text,
                    ttl: None,
                });
            }
            if !seen.insert(path) {
                return Err(Answer::bad(duplicate(&key)).into());
            }
        }
        let gone = held.keys().filter(|path| !seen.contains(**path));
        txn.ops
            .extend(gone.map(|path| Op::Delete((*path).to_owned())));
        olds.extend(list.into_iter().map(|item| (item.path.to_string(), item)));
        Ok(())
    }
}

/// The version a collection gets: the one that is sent, or the next. `None` when it is the one in
/// force.
fn newer(held: Option<u64>, sent: Option<&Value>, name: &str) -> Result<Option<u64>, Failure> {
    let Some(sent) = sent.filter(|sent| !sent.is_null()) else {
        return Ok(Some(held.unwrap_or(0).saturating_add(1)));
    };
    let refused =
        |text: String| Failure::from(Answer::bad(format!("{name}_conf_version must be {text}")));
    if !sent.is_number() {
        return Err(refused("a number".to_owned()));
    }
    let new = whole(sent).ok_or_else(|| refused("a whole number".to_owned()))?;
    match held {
        Some(held) if new < held => Err(refused(format!("greater than or equal to ({held})"))),
        Some(held) if new == held => Ok(None),
        _ => Ok(Some(new)),
    }
}

/// A version to its last digit: a double would take neighbours for the same. One that is written
/// with a point or an exponent is read as far as a double is exact.
fn whole(version: &Value) -> Option<u64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let as_float = || {
        version
            .as_f64()
            .filter(|n| n.fract() == 0.0 && (0.0..=EXACT).contains(n))
    };
    version.as_u64().or_else(|| as_float().map(|n| n as u64))
}

/// What is said of an id that is there twice.
pub(super) fn duplicate(key: &Key) -> String {
    let id = &key.id;
    match key.kind {
        Kind::Consumer => format!("found duplicate username {id} in consumers"),
        Kind::Credential => format!("found duplicate credential id {id} in consumers"),
        kind => format!("found duplicate id {id} in {}", kind.plural()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_exact() {
        let check = |held: Option<u64>, sent: Value, expected: Result<Option<u64>, &str>| {
            let got = newer(held, Some(&sent), "routes").map_err(|failure| match failure {
                Failure::Answer(answer) => answer.body,
                Failure::Store(error) => error.chain(),
            });
            let wrong =
                |text| format!("{{\"error_msg\":\"routes_conf_version must be {text}\"}}\n");
            assert_eq!(got, expected.map_err(wrong), "{held:?} {sent}");
        };
        const ODD: u64 = (1 << 53) + 1;
        check(None, json!(0), Ok(Some(0)));
        check(None, Value::Null, Ok(Some(1)));
        check(Some(7), Value::Null, Ok(Some(8)));
        check(Some(u64::MAX), Value::Null, Ok(Some(u64::MAX)));
        check(Some(ODD), json!(ODD), Ok(None));
        check(Some(ODD), json!(ODD + 1), Ok(Some(ODD + 1)));
        check(
            Some(ODD),
            json!(ODD - 1),
            Err("greater than or equal to (9007199254740993)"),
        );
        check(None, json!(u64::MAX), Ok(Some(u64::MAX)));
        check(None, json!(1e3), Ok(Some(1000)));
        check(None, json!("1"), Err("a number"));
        check(None, json!(true), Err("a number"));
        for fraction in [json!(1.5), json!(-1), json!(1e300)] {
            check(None, fraction, Err("a whole number"));
        }
    }
}
