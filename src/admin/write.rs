//! PUT, POST, PATCH and DELETE.
//!
//! Whatever is looked at before a write becomes a guard of it: a resource that is referred to is
//! still there when the reference is stored, and nobody refers to what is deleted.

use serde_json::{Map, Value};

use super::Admin;
use super::check::Checker;
use super::kinds::{Target, called, has_patch, has_post};
use super::merge;
use super::private_keys::{not_opened, without_keys};
use super::references as refs;
use super::request::Request;
use crate::changes::draft::{MOST_LEVELS, is_deeper_than};
use crate::changes::history;
use crate::config::kind::{Key, Kind};
use crate::config::resource::Id;
use crate::endpoint::Answer;
use crate::store::{Commit, Guard, Item, Op, StoreError, Txn};

const TOO_DEEP: &str = "invalid configuration: nested too deeply";

/// How often a write is tried again that met another one. Within this process none does.
pub(super) const TRIES: usize = 5;
/// What an answer ends with instead of a result.
type Ended<T> = Result<T, Failure>;

/// Why a write was not carried out.
pub(super) enum Failure {
    /// The answer says it.
    Answer(Answer),
    /// The store cannot.
    Store(StoreError),
}

impl From<Answer> for Failure {
    fn from(answer: Answer) -> Failure {
        Failure::Answer(answer)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        Failure::Store(error)
    }
}

/// A try of a write.
#[derive(Clone, Copy)]
struct Attempt {
    /// Seconds since 1970.
    now: u64,
    /// Whether what is known of other consumers is enough.
    known: bool,
}

/// A resource that was checked, and what has to stay so until it is stored.
struct Ready {
    id: String,
    path: String,
    value: Value,
    guards: Vec<Guard>,
}

impl Admin {
    /// Carries out a write, and waits until requests see it.
    pub(super) async fn write(&self, target: &Target, request: &Request) -> Ended<Answer> {
        if let (Kind::Secret, None) = (target.kind, &target.owner) {
            return Err(Answer::bad("missing secret type").into());
        }
        let allowed = match request.method.as_str() {
            "POST" => has_post(target.kind),
            "PATCH" => has_patch(target.kind),
            _ => true,
        };
        if !allowed {
            let (method, kind) = (&request.method, called(target.kind));
            let text = format!("not supported `{method}` method for {kind}");
            return Err(Answer::error(405, text).into());
        }
        let body = request.json()?;
        let ttl = request.ttl()?;
        let turn = self.turns.take(target, &request.method).await;
        for attempt in 0..TRIES {
            let at = Attempt {
                now: request.now,
                known: attempt == 0,
            };
            let (txn, answer) = match request.method.as_str() {
                "PUT" => self.put(target, body.clone(), at).await?,
                "POST" => self.post(target, body.clone(), at).await?,
                "PATCH" => self.patch(target, body.as_ref(), request.now).await?,
                _ => self.delete(target, request.force()).await?,
            };
            let mut txn = with_ttl(txn, ttl);
            let author = request.author(request.line(), None);
            history::record(&*self.store, self.history, &mut txn, &author).await?;
            match self.store.commit(txn).await? {
                Commit::Done(revision) => {
                    // Others need not wait until requests see this one.
                    drop(turn);
                    self.in_use(revision).await;
                    return Ok(answer);
                }
                Commit::Refused if request.method == "PATCH" => break,
                Commit::Refused => {}
            }
        }
        Err(Answer::error(503, "value changed before overwritten").into())
    }

    async fn put(&self, target: &Target, body: Option<Value>, at: Attempt) -> Ended<(Txn, Answer)> {
        let map = configuration(body)?;
        forbid_times(&map)?;
        let id = id_for(target, &map)?;
        let ready = self.ready(target, id, map, at.known).await?;
        let old = self.store.get(&ready.path).await?;
        Ok(self.finish(target, ready, old.as_ref(), at.now))
    }

    async fn post(
        &self,
        target: &Target,
        body: Option<Value>,
        at: Attempt,
    ) -> Ended<(Txn, Answer)> {
        let map = configuration(body)?;
        if target.id.is_some() || map.contains_key("id") {
            let text = format!("wrong {} id, do not need it", called(target.kind));
            return Err(Answer::bad(text).into());
        }
        forbid_times(&map)?;
        // The next revision: the write takes it or a later one, so no other id is the same.
        let next = self.store.revision().await? + 1;
        let id = format!("{next:020}");
        let ready = self.ready(target, id, map, at.known).await?;
        Ok(self.finish(target, ready, None, at.now))
    }

    async fn patch(&self, target: &Target, body: Option<&Value>, now: u64) -> Ended<(Txn, Answer)> {
        let Some(id) = &target.id else {
            return Err(Answer::bad(missing_id(target.kind)).into());
        };
        if target.below.len() > MOST_LEVELS {
            return Err(Answer::bad(TOO_DEEP).into());
        }
        let patch = body.ok_or_else(|| Answer::bad("missing new configuration"))?;
        if target.below.is_empty() && !patch.is_object() {
            return Err(Answer::bad("invalid configuration").into());
        }
        let path = target.path(id);
        let old = self.store.get(&path).await?.ok_or_else(Answer::no_key)?;
        let mut value: Value = serde_json::from_str(&old.text)
            .map_err(|e| Answer::error(500, format!("what is stored is no JSON: {e}")))?;
        let key = key_of(target, id, &path);
        self.keyring.open(&key, &mut value);
        let given = if target.below.is_empty() {
            merge::merge(&mut value, patch);
            patch.get("update_time").is_some()
        } else {
            merge::replace(&mut value, &target.below, patch.clone())
                .map_err(|path| Answer::bad(format!("invalid sub-path: {path}")))?;
            target.below[0] == "update_time"
        };
        let Value::Object(map) = value else {
            return Err(Answer::bad("invalid configuration").into());
        };
        let id = id_for(target, &map)?;
        let times = (
            map.get("create_time").cloned(),
            map.get("update_time").cloned(),
        );
        // There is no second try.
        let mut ready = self.ready(target, id, map, false).await?;
        ready.guards.push(Guard::Modified(path, old.modified));
        let (mut txn, _) = self.finish(target, ready, Some(&old), now);
        let Some(Op::Put { path, text, .. }) = txn.ops.first_mut() else {
            return Ok((txn, Answer::no_key()));
        };
        let mut value: Value = serde_json::from_str(text)
            .map_err(|e| Answer::error(500, format!("what was to be stored is no JSON: {e}")))?;
        if let (Some(created), Some(map)) = (times.0, value.as_object_mut()) {
            map.insert("create_time".to_owned(), created);
        }
        if let (true, Some(updated), Some(map)) = (given, times.1, value.as_object_mut()) {
            map.insert("update_time".to_owned(), updated);
        }
        *text = value.to_string();
        let answer = self.written(target.kind, 200, path, value);
        Ok((txn, answer))
    }

    async fn delete(&self, target: &Target, force: bool) -> Ended<(Txn, Answer)> {
        let Some(id) = &target.id else {
            return Err(Answer::bad(missing_id(target.kind)).into());
        };
        let path = target.path(id);
        let Some(_) = self.store.get(&path).await? else {
            return Err(Answer::no_key().into());
        };
        let mut txn = Txn::delete(path.as_str()).when(Guard::Present(path.clone()));
        if !force {
            let guards = refs::unused(&*self.store, target.kind, id).await??;
            txn.guards.extend(guards);
        }
        if target.kind == Kind::Consumer {
            // None is made meanwhile: that needs the consumer.
            txn.ops.push(Op::DeleteAll(format!("{path}/credentials/")));
        }
        let key = Value::from(format!("{}{path}", self.store.prefix()));
        Ok((
            txn,
            Answer::json(200, format!(r#"{{"deleted":"1","key":{key}}}"#)),
        ))
    }

    /// Checks a resource, and everything it has to do with. Where `known` is enough, what other
    /// consumers have is not read from the store: a guard of the write sees to it that it is so.
    async fn ready(
        &self,
        target: &Target,
        id: String,
        mut map: Map<String, Value>,
        known: bool,
    ) -> Ended<Ready> {
        let path = target.path(&id);
        // An id that is only in the body stays as it is there, a number say.
        if target.kind != Kind::Consumer && (target.id.is_some() || !map.contains_key("id")) {
            map.insert("id".to_owned(), Value::from(stored_id(target, &id)));
        }
        let mut value = Value::Object(map);
        if is_deeper_than(&value, MOST_LEVELS) {
            return Err(Answer::bad(TOO_DEEP).into());
        }
        let key = key_of(target, &id, &path);
        if target.kind == Kind::Ssl {
            // Whoever sends back what a write was answered with sends the key encrypted.
            self.keyring.open(&key, &mut value);
        }
        let checker: &Checker = &self.checker;
        checker
            .check(&key, &value)
            .map_err(|answer| not_opened(&self.keyring, &key, &value).unwrap_or(answer))?;
        let mut guards = refs::present(&*self.store, target, &id, &value).await??;
        match target.kind {
            Kind::GlobalRule => {
                guards.extend(refs::plugin_once(&*self.store, &id, &value).await??);
            }
            Kind::Consumer | Kind::Credential => {
                let consumers = refs::Consumers {
                    store: &*self.store,
                    known: self.mirror.as_deref().filter(|_| known),
                    catalogue: checker.catalogue(),
                    keyring: &self.keyring,
                };
                guards.extend(consumers.key_once(&path, &value).await??);
            }
            _ => {}
        }
        Ok(Ready {
            id,
            path,
            value,
            guards,
        })
    }
}

impl Admin {
    /// The write and its answer. What was there before keeps when it was made.
    fn finish(&self, target: &Target, ready: Ready, old: Option<&Item>, now: u64) -> (Txn, Answer) {
        let Ready {
            id,
            path,
            mut value,
            mut guards,
        } = ready;
        if let (true, Some(map)) = (target.kind != Kind::PluginMetadata, value.as_object_mut()) {
            let before = old.and_then(|old| serde_json::from_str::<Value>(&old.text).ok());
            let made = before
                .as_ref()
                .and_then(|old| old.get("create_time"))
                .cloned();
            map.insert("create_time".to_owned(), made.unwrap_or(Value::from(now)));
            map.insert("update_time".to_owned(), Value::from(now));
        }
        self.keyring.seal(&key_of(target, &id, &path), &mut value);
        guards.push(match old {
            Some(old) => Guard::Modified(path.clone(), old.modified),
            None => Guard::Absent(path.clone()),
        });
        let mut txn = Txn::put(path.as_str(), value.to_string());
        txn.guards = guards;
        let status = if old.is_some() { 200 } else { 201 };
        (txn, self.written(target.kind, status, &path, value))
    }

    /// The envelope of what was written.
    fn written(&self, kind: Kind, status: u16, path: &str, mut value: Value) -> Answer {
        if kind == Kind::Ssl && self.keyring.is_empty() {
            without_keys(&mut value);
        }
        let key = Value::from(format!("{}{path}", self.store.prefix()));
        Answer::json(status, format!(r#"{{"key":{key},"value":{value}}}"#))
    }
}

/// The resource at a path. One whose id has a slash in it, say, has no such path; its check says so.
fn key_of(target: &Target, id: &str, path: &str) -> Key {
    Key::from_path(path)
        .filter(|key| key.kind == target.kind)
        .unwrap_or_else(|| Key::new(target.kind, id))
}

fn with_ttl(mut txn: Txn, given: Option<std::time::Duration>) -> Txn {
    for op in &mut txn.ops {
        if let Op::Put { ttl, .. } = op {
            *ttl = given;
        }
    }
    txn
}

fn configuration(body: Option<Value>) -> Ended<Map<String, Value>> {
    match body {
        None => Err(Answer::bad("missing configurations").into()),
        Some(Value::Object(map)) => Ok(map),
        Some(other) => {
            let found = match other {
                Value::String(_) => "string",
                Value::Number(_) => "number",
                Value::Bool(_) => "boolean",
                Value::Null => "null",
                _ => "table",
            };
            let text = format!("invalid configuration: wrong type: expected object, got {found}");
            Err(Answer::bad(text).into())
        }
    }
}

/// Times are the store's own. Source: APISIX, with both blanks.
fn forbid_times(map: &Map<String, Value>) -> Ended<()> {
    for (part, within) in [
        ("", Some(map)),
        ("upstream.", object(map, "upstream")),
        ("plugins.", object(map, "plugins")),
    ] {
        for name in ["create_time", "update_time"] {
            if within.is_some_and(|within| within.contains_key(name)) {
                let text = format!("the property is forbidden:  {part}{name}");
                return Err(Answer::bad(text).into());
            }
        }
    }
    Ok(())
}

fn object<'a>(map: &'a Map<String, Value>, name: &str) -> Option<&'a Map<String, Value>> {
    map.get(name).and_then(Value::as_object)
}

/// The id of a resource: of its path, else of its body; both have to agree.
fn id_for(target: &Target, map: &Map<String, Value>) -> Ended<String> {
    let kind = target.kind;
    let name = if kind == Kind::Consumer {
        "username"
    } else {
        "id"
    };
    let own = map.get(name).filter(|id| !id.is_null());
    let text = own.and_then(Id::text);
    let own = match (kind, text, &target.owner) {
        (Kind::Secret, Some(text), Some(manager)) => {
            let short = text.strip_prefix(&format!("{manager}/"));
            Some(short.map_or_else(|| text.to_string(), str::to_owned))
        }
        (_, text, _) => text.map(std::borrow::Cow::into_owned),
    };
    match (&target.id, own) {
        (Some(id), Some(own)) if *id != own && kind == Kind::Consumer => {
            Err(Answer::bad("wrong username").into())
        }
        (Some(id), Some(own)) if *id != own && kind != Kind::PluginMetadata => {
            Err(Answer::bad(format!("wrong {} id", called(kind))).into())
        }
        (Some(id), _) => Ok(id.clone()),
        (None, Some(own)) => Ok(own),
        // The check of the resource says what is missing.
        (None, None) if kind == Kind::Consumer => Ok(String::new()),
        (None, None) => Err(Answer::bad(missing_id(kind)).into()),
    }
}

fn missing_id(kind: Kind) -> String {
    match kind {
        Kind::PluginMetadata => "missing plugin name".to_owned(),
        Kind::Consumer => "missing consumer name".to_owned(),
        Kind::Secret => "no secret id".to_owned(),
        kind => format!("missing {} id", called(kind)),
    }
}

/// The id as it is stored: that of a secret names its manager.
fn stored_id(target: &Target, id: &str) -> String {
    match (target.kind, &target.owner) {
        (Kind::Secret, Some(manager)) => format!("{manager}/{id}"),
        _ => id.to_owned(),
    }
}
