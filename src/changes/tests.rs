//! Orders over a store in memory: what they come to, what is refused, and the way back.

use std::sync::Arc;
use std::time::Duration;

use lockgate_plugin::Problems;
use serde_json::{Value, json};

use super::draft::{Draft, Rules, draft};
use super::history::{self, Author, Generation, Kept, Limits};
use super::pending::{self, Confirmations, Pending};
use super::*;
use crate::config::catalogue::Catalogue;
use crate::config::decode::decode;
use crate::config::keyring::Keyring;
use crate::config::kind::Key;
use crate::observe::recent::Recent;
use crate::store::{Commit, Memory, Op, Store, Txn};

mod adc;
mod busy;
mod notes;
mod trust;

const LIMITS: Limits = Limits {
    generations: 100,
    bytes: 1 << 20,
};

struct World {
    store: Arc<Memory>,
    keyring: Keyring,
    limits: Limits,
    now: u64,
}

fn world() -> World {
    World {
        store: Arc::default(),
        keyring: Keyring::default(),
        limits: LIMITS,
        now: 1_790_000_000_000,
    }
}

fn catalogue() -> Catalogue {
    Catalogue::everything(lockgate_plugins::ALL)
}

fn problems(error: &Problems) -> Vec<String> {
    error.iter().map(ToString::to_string).collect()
}

impl World {
    async fn draft(&self, wants: Vec<Want>, whole: Option<Format>) -> Result<Draft, Problems> {
        let catalogue = catalogue();
        let rules = Rules {
            keyring: &self.keyring,
            catalogue: &catalogue,
            check: &|key, value| {
                decode(key, value, &catalogue, &mut Problems::default())
                    .err()
                    .unwrap_or_default()
            },
            now: self.now / 1000,
        };
        let listing = self.store.list("").await.unwrap();
        draft(wants, whole, &listing, &rules)
    }

    async fn plan(&self, body: Value) -> Result<Draft, Problems> {
        let order = order(&body)?;
        self.draft(order.wants, order.whole).await
    }

    /// Writes a draft with its history.
    async fn write(&self, draft: &Draft, action: &str, more: Vec<Op>) -> u64 {
        let mut txn = draft.txn();
        txn.ops.extend(more);
        let author = Author {
            action: action.to_owned(),
            now: self.now,
            ..Author::default()
        };
        let old = |path: &str| draft.steps.iter().find(|s| s.path == path)?.old.clone();
        history::record_known(&*self.store, self.limits, &mut txn, &author, old)
            .await
            .unwrap();
        match self.store.commit(txn).await.unwrap() {
            Commit::Done(revision) => revision,
            Commit::Refused => panic!("refused"),
        }
    }

    async fn apply(&self, body: Value) -> u64 {
        let draft = self.plan(body).await.unwrap_or_else(|e| panic!("{e}"));
        self.write(&draft, "apply", Vec::new()).await
    }

    async fn single(&self, txn: Txn) -> u64 {
        let mut txn = txn;
        let author = Author {
            action: "PUT".to_owned(),
            now: self.now,
            ..Author::default()
        };
        history::record(&*self.store, self.limits, &mut txn, &author)
            .await
            .unwrap();
        match self.store.commit(txn).await.unwrap() {
            Commit::Done(revision) => revision,
            Commit::Refused => panic!("refused"),
        }
    }

    async fn history(&self) -> Vec<Generation> {
        history::generations(&*self.store).await.unwrap()
    }

    /// Every path with its text.
    async fn texts(&self) -> Vec<(String, String)> {
        let items = self.store.list("").await.unwrap().items;
        items
            .iter()
            .map(|i| (i.path.to_string(), i.text.to_string()))
            .collect()
    }

    async fn paths(&self) -> Vec<String> {
        self.texts()
            .await
            .into_iter()
            .map(|(path, _)| path)
            .collect()
    }

    fn confirmations(&self) -> Confirmations {
        Confirmations {
            store: Arc::clone(&self.store) as Arc<dyn Store>,
            keyring: self.keyring.clone(),
            catalogue: catalogue(),
            limits: self.limits,
            recent: Arc::new(Recent::new(10)),
            wake: Arc::default(),
            writes: Arc::default(),
        }
    }
}

fn put(kind: &str, id: &str, value: Value) -> Value {
    json!({ "op": "put", "kind": kind, "id": id, "value": value })
}

fn delete(kind: &str, id: &str) -> Value {
    json!({ "op": "delete", "kind": kind, "id": id })
}

fn upstream() -> Value {
    json!({ "nodes": { "127.0.0.1:1": 1 } })
}

/// A certificate of type client, but for what is said instead.
fn shown_to_nodes(instead: Value) -> Value {
    use openssl::{asn1::Asn1Time, hash::MessageDigest, pkey::PKey, rsa::Rsa, x509::X509};
    let key = PKey::from_rsa(Rsa::generate(2048).unwrap()).unwrap();
    let mut cert = X509::builder().unwrap();
    cert.set_pubkey(&key).unwrap();
    let day = |n| Asn1Time::days_from_now(n).unwrap();
    cert.set_not_before(&day(0)).unwrap();
    cert.set_not_after(&day(1)).unwrap();
    cert.sign(&key, MessageDigest::sha256()).unwrap();
    let text = |pem: Vec<u8>| String::from_utf8(pem).unwrap();
    let cert = text(cert.build().to_pem().unwrap());
    let key = text(key.private_key_to_pem_pkcs8().unwrap());
    let mut value = json!({ "type": "client", "cert": cert, "key": key });
    let all = value.as_object_mut().unwrap();
    all.extend(instead.as_object().unwrap().clone());
    value
}

fn route(uri: &str) -> Value {
    json!({ "uri": uri, "upstream_id": "u" })
}

#[test]
fn orders_name_every_mistake_with_its_place() {
    let check = |body: Value, expected: &[&str]| {
        let error = order(&body).err().unwrap_or_default();
        assert_eq!(problems(&error), expected, "{body}");
    };
    check(json!({"changes": []}), &[]);
    check(
        json!([]),
        &["expected an object with `changes` or `resources`"],
    );
    check(
        json!({}),
        &["nothing is asked for: give `changes`, `resources`, or both"],
    );
    check(
        json!({"change": [], "changes": {}, "comment": 1, "expected_revision": "x"}),
        &[
            "change: unknown key `change` (did you mean `changes`?)",
            "expected_revision: expected a whole number",
            "comment: expected a text",
            "changes: expected a list",
        ],
    );
    check(
        json!({"changes": [
            1,
            {"op": "add", "kind": "routes", "id": "1"},
            {"op": "put", "kind": "route", "id": "1", "value": {}},
            {"op": "put", "kind": "routes", "value": []},
            {"op": "put", "kind": "routes", "id": "1"},
            {"op": "delete", "kind": "routes", "id": "a/b"},
            {"op": "delete", "kind": "routes", "id": "1", "value": {}, "x": 1},
            {"op": "delete", "kind": "credentials", "id": "c"},
        ]}),
        &[
            "changes[0]: expected an object with `op`, `kind`, `id` and, to put, `value`",
            "changes[1].op: expected `put` or `delete`",
            "changes[2].kind: unknown kind `route` (did you mean `routes`?)",
            "changes[3].id: is required: a text or a number",
            "changes[3].value: wrong type: a resource is an object",
            "changes[4].value: is required to put",
            "changes[5].id: `a/b` is no id",
            "changes[6].x: unknown key `x` (allowed: op, kind, id, value)",
            "changes[6].value: there is none to delete",
            "changes[7].id: `c` is no id (of a credential it is CONSUMER/credentials/ID)",
        ],
    );
    check(
        json!({"resources": {"routes": [{"uri": "/a"}], "x": []}}),
        &[
            "resources.x: unknown key `x` (allowed: plugin_metadata, upstreams, ssls, plugin_configs, services, \
           consumer_groups, consumers, global_rules, routes, protos, secrets, stream_routes)",
        ],
    );
    check(
        json!({"resources": {"routes": [{"id": 1, "uri": "/a"}, {"uri": "/b"}], "consumers": [{}]},
               "changes": [{"op": "delete", "kind": "routes", "id": 1}]}),
        &[
            "resources.routes[1]: needs its `id`: a store knows resources by it",
            "resources.consumers[0]: needs its `username`: a store knows resources by it",
        ],
    );
    check(
        json!({"resources": {"routes": [{"id": 1, "uri": "/a"}]},
               "changes": [{"op": "delete", "kind": "routes", "id": "1"}]}),
        &["changes[0]: routes/1 is named twice (the first one is resources.routes[0])"],
    );
    check(
        json!({"changes": [], "confirm": {"within_seconds": 0, "error_rise_percent": -1}}),
        &[
            "confirm.within_seconds: is required: 1 to 86400",
            "confirm.error_rise_percent: expected a number from 0, below 100",
        ],
    );
}

#[tokio::test]
async fn resources_are_checked_together() {
    let world = world();
    world
        .apply(json!({"changes": [
            put("upstreams", "u", upstream()), put("routes", "r", route("/a")),
            put("consumers", "ann", json!({"username": "ann", "plugins": {"key-auth": {"key": "one"}}})),
            put("global_rules", "g", json!({"plugins": {"cors": {}}})),
            put("ssls", "c", shown_to_nodes(json!({}))),
            put("upstreams", "mtls", json!({"nodes": {"127.0.0.1:1": 1}, "scheme": "https", "tls": {"client_cert_id": "c"}})),
        ]}))
        .await;
    let check = async |changes: Value, expected: &[&str]| {
        let got = world.plan(json!({ "changes": changes })).await;
        assert_eq!(
            problems(&got.err().unwrap_or_default()),
            expected,
            "{changes}"
        );
    };
    // Order does not matter: it is one moment.
    check(
        json!([
            put("routes", "x", json!({"uri": "/", "service_id": "s"})),
            put("services", "s", json!({}))
        ]),
        &[],
    )
    .await;
    check(
        json!([put(
            "routes",
            "x",
            json!({"uri": "/", "service_id": "s", "upstream_id": "v"})
        )]),
        &[
            "changes[0].value.upstream_id: there is no upstreams/v",
            "changes[0].value.service_id: there is no services/s",
        ],
    )
    .await;
    check(
        json!([delete("upstreams", "u")]),
        &["changes[0]: cannot be deleted: routes/r still refers to it (upstream_id)"],
    )
    .await;
    check(
        json!([delete("upstreams", "u"), delete("routes", "r")]),
        &[],
    )
    .await;
    check(
        json!([
            delete("upstreams", "u"),
            put("routes", "r", json!({"uri": "/b", "upstream_id": "u"}))
        ]),
        &["changes[1].value.upstream_id: there is no upstreams/u"],
    )
    .await;
    check(
        json!([
            delete("upstreams", "u"),
            put("routes", "r", json!({"uri": "/b", "plugins": {}}))
        ]),
        &[],
    )
    .await;
    let split = json!({"uri": "/s", "plugins": {"traffic-split": {"rules": [{"weighted_upstreams": [{"upstream_id": "u"}]}]}}});
    check(json!([put("routes", "r", json!({"uri": "/b", "plugins": {}})), delete("upstreams", "u"), put("routes", "s", split)]),
        &["changes[2].value.plugins.traffic-split: plugin traffic-split is not available in this version",
          "changes[2].value.plugins.traffic-split.rules[0].weighted_upstreams[0].upstream_id: there is no upstreams/u"]).await;
    check(
        json!([put(
            "consumers",
            "bob",
            json!({"plugins": {"key-auth": {"key": "one"}}})
        )]),
        &["changes[0].value.plugins.key-auth.key: consumers/ann is recognised by the same"],
    )
    .await;
    // The other one gives it up.
    check(
        json!([
            put(
                "consumers",
                "bob",
                json!({"plugins": {"key-auth": {"key": "one"}}})
            ),
            delete("consumers", "ann")
        ]),
        &[],
    )
    .await;
    check(
        json!([put("ssls", "c", shown_to_nodes(json!({"type": "server", "sni": "a.test"})))]),
        &["changes[0].value: upstreams/mtls still refers to it (tls.client_cert_id): it has to stay of type client, with status 1"],
    )
    .await;
    check(
        json!([put("ssls", "c", shown_to_nodes(json!({"status": 0})))]),
        &["changes[0].value: upstreams/mtls still refers to it (tls.client_cert_id): it has to stay of type client, with status 1"],
    )
    .await;
    let renewed = json!({"desc": "renewed"});
    check(json!([put("ssls", "c", shown_to_nodes(renewed))]), &[]).await;
    check(
        json!([
            put("ssls", "c", shown_to_nodes(json!({"status": 0}))),
            put("upstreams", "mtls", upstream())
        ]),
        &[],
    )
    .await;
    check(
        json!([put("global_rules", "h", json!({"plugins": {"cors": {}}}))]),
        &["changes[0].value.plugins.cors: global rule g has this plugin, too"],
    )
    .await;
    check(
        json!([put(
            "consumers",
            "bob/credentials/c",
            json!({"plugins": {"key-auth": {"key": "two"}}})
        )]),
        &["changes[0].value: there is no consumers/bob"],
    )
    .await;
    check(
        json!([
            delete("routes", "none"),
            put(
                "routes",
                "y",
                json!({"uri": 1, "id": "z", "plugins": {"nothing": {}}})
            )
        ]),
        &[
            "changes[0]: there is no routes/none to delete",
            "changes[1].value.id: `z` is not the id `y`",
            "changes[1].value.uri: wrong type: expected string, got number",
            "changes[1].value.plugins.nothing: unknown plugin [nothing] (did you mean `mocking`?)",
        ],
    )
    .await;
}

#[tokio::test]
async fn only_what_differs_is_a_change() {
    let world = world();
    world
        .apply(json!({"changes": [put("upstreams", "u", upstream()), put("routes", "r", route("/a"))]}))
        .await;
    let texts = world.texts().await;
    assert_eq!(
        texts[0].1,
        r#"{"uri":"/a","upstream_id":"u","id":"r","create_time":1790000000,"update_time":1790000000}"#
    );
    // What was read comes back as it is, times and all.
    let stored: Value = serde_json::from_str(&texts[0].1).unwrap();
    let same = json!({"routes": [stored], "upstreams": [{"id": "u", "nodes": {"127.0.0.1:1": 1}}]});
    let draft = world.plan(json!({ "resources": same })).await.unwrap();
    assert_eq!((draft.steps.len(), draft.unchanged), (0, 2));
    // A whole configuration says what is gone, too.
    let less =
        json!({"upstreams": [{"id": "u", "nodes": {"127.0.0.1:1": 2}}, {"id": "v", "nodes": {}}]});
    let draft = world.plan(json!({ "resources": less })).await.unwrap();
    let shown: Vec<Value> = draft.steps.iter().map(draft::Step::shown).collect();
    assert_eq!(
        json!(shown),
        json!([
            {"action": "update", "resource": "upstreams/u",
             "fields": [{"path": r#"nodes."127.0.0.1:1""#, "before": 1, "after": 2}]},
            {"action": "create", "resource": "upstreams/v",
             "fields": [{"path": "", "after": {"id": "v", "nodes": {}}}]},
            {"action": "delete", "resource": "routes/r",
             "fields": [{"path": "", "before": {"id": "r", "uri": "/a", "upstream_id": "u"}}]},
        ])
    );
}

#[tokio::test]
async fn a_draft_holds_only_as_long_as_nothing_is_written() {
    let world = world();
    world
        .apply(json!({"changes": [put("upstreams", "u", upstream())]}))
        .await;
    let stale = world
        .plan(json!({"changes": [put("routes", "r", route("/a")), put("upstreams", "w", upstream())]}))
        .await
        .unwrap();
    // By another gateway, say: a deletion, which no resource tells of.
    world.single(Txn::delete("upstreams/u")).await;
    let before = world.texts().await;
    assert_eq!(
        world.store.commit(stale.txn()).await.unwrap(),
        Commit::Refused
    );
    assert_eq!(world.texts().await, before);
}

#[tokio::test]
async fn there_and_back_again() {
    let world = world();
    let one = world
        .apply(json!({"changes": [put("upstreams", "u", upstream()), put("routes", "r", route("/a"))]}))
        .await;
    let at_one = world.texts().await;
    let two = world
        .single(Txn::put(
            "routes/r",
            r#"{"id":"r", "uri":"/b","plugins":{}}"#,
        ))
        .await;
    let at_two = world.texts().await;
    let three = world
        .apply(json!({"resources": {"upstreams": [{"id": "v", "nodes": {}}]}}))
        .await;
    let at_three = world.texts().await;
    let known = world.history().await;
    let revisions: Vec<u64> = known.iter().map(|g| g.revision).collect();
    assert_eq!(revisions, [three, two, one]);
    for (to, expected) in [
        (two, &at_two),
        (one, &at_one),
        (three, &at_three),
        (one - 1, &Vec::new()),
    ] {
        let listing = world.store.list("").await.unwrap();
        let wants = history::back_to(&world.history().await, 0, to, &listing).unwrap();
        let draft = world.draft(wants, None).await.unwrap();
        world.write(&draft, "rollback", Vec::new()).await;
        // Byte for byte, and itself a change.
        assert_eq!(world.texts().await, *expected, "to {to}");
        assert_eq!(world.history().await[0].entry.action, "rollback");
    }
    let listing = world.store.list("").await.unwrap();
    let refused = |to| {
        problems(
            &history::back_to(&known, 0, to, &listing)
                .err()
                .unwrap_or_default(),
        )
        .join("\n")
    };
    assert_eq!(
        refused(one + 100),
        format!(
            "to: revision {} is not there yet; the store is at {}",
            one + 100,
            listing.revision
        )
    );
    assert_eq!(
        history::back_to(&known[..1], 0, one, &listing)
            .err()
            .map(|e| problems(&e).join("\n")),
        Some(format!(
            "to: the history begins at revision {three}, and does not know what was there at {one}"
        ))
    );
}

#[tokio::test]
async fn one_change_is_taken_back_alone() {
    let world = world();
    world
        .apply(json!({"changes": [put("upstreams", "u", upstream())]}))
        .await;
    let a = world
        .apply(json!({"changes": [put("routes", "a", route("/a"))]}))
        .await;
    let b = world
        .apply(json!({"changes": [put("routes", "b", route("/b"))]}))
        .await;
    let again = world
        .apply(json!({"changes": [put("routes", "b", route("/c"))]}))
        .await;
    let undo = async |revision| {
        let listing = world.store.list("").await.unwrap();
        history::undo(&world.history().await, revision, &listing).map_err(|e| problems(&e))
    };
    let wants = undo(a).await.unwrap();
    let draft = world.draft(wants, None).await.unwrap();
    world.write(&draft, "undo", Vec::new()).await;
    assert_eq!(world.paths().await, ["routes/b", "upstreams/u"]);
    assert_eq!(
        undo(b).await.err().unwrap(),
        [format!(
            "routes/b: was changed again at revision {again}: go back to a revision before, or undo that first"
        )]
    );
    assert_eq!(
        undo(9999).await.err().unwrap(),
        ["undo: no change in the history has the revision 9999"]
    );
    // What it made is in use by now.
    let first = world.history().await.last().unwrap().revision;
    let wants = undo(first).await.unwrap();
    let error = world.draft(wants, None).await.err().unwrap();
    assert_eq!(
        problems(&error),
        ["upstreams/u: cannot be deleted: routes/b still refers to it (upstream_id)"]
    );
}

#[tokio::test]
async fn the_history_is_bounded_in_number_and_size() {
    let mut world = world();
    world.limits = Limits {
        generations: 3,
        bytes: 2000,
    };
    for at in 0..6 {
        world.single(Txn::put(format!("routes/{at}"), "{}")).await;
    }
    assert_eq!(world.history().await.len(), 3);
    // There is room for it and two small ones. More than all of it: what is, then what was is left out.
    let text = |n: usize| json!({ "desc": "x".repeat(n) }).to_string();
    world.single(Txn::put("routes/0", text(1500))).await;
    let known = world.history().await;
    assert_eq!((known.len(), known[0].entry.kept), (3, Kept::Both));
    let before = world.single(Txn::put("routes/0", text(1499))).await;
    let known = world.history().await;
    assert_eq!((known.len(), known[0].entry.kept), (1, Kept::Before));
    assert!(known[0].entry.changes[0].before.is_some());
    world.single(Txn::put("routes/0", text(5000))).await;
    let nothing = world.single(Txn::put("routes/0", text(1))).await;
    let known = world.history().await;
    assert_eq!(known[0].entry.kept, Kept::Nothing);
    let bytes: usize = known
        .iter()
        .map(|g| serde_json::to_string(&g.entry).unwrap().len())
        .sum();
    assert!(bytes <= 2000, "{bytes}");
    let listing = world.store.list("").await.unwrap();
    let error = history::back_to(&known, 0, nothing - 1, &listing)
        .err()
        .unwrap();
    assert_eq!(
        problems(&error),
        [format!(
            "to: the change at revision {nothing} was too large to be kept: what was there before it is not known"
        )]
    );
    assert!(before < nothing);
}

#[tokio::test]
async fn histories_show_no_secrets_and_keep_them_as_the_store_does() {
    let mut world = world();
    world.keyring = Keyring::new(vec!["0123456789abcdef".to_owned()]).unwrap();
    let ann = |key: &str| json!({"plugins": {"key-auth": {"key": key}}});
    world
        .apply(json!({"changes": [put("consumers", "ann", ann("secret-one"))]}))
        .await;
    world
        .apply(json!({"changes": [put("consumers", "ann", ann("secret-two"))]}))
        .await;
    let kept = world.store.list("lockgate/").await.unwrap().items;
    assert!(kept.iter().all(|item| !item.text.contains("secret-")));
    let known = world.history().await;
    let shown = known[0].shown(&world.keyring);
    assert_eq!(
        shown["changes"],
        json!([{"action": "update", "resource": "consumers/ann",
                "fields": [{"path": "plugins.key-auth.key", "before": "***", "after": "***"}]}])
    );
    assert!(
        !known[1]
            .shown(&world.keyring)
            .to_string()
            .contains("secret-")
    );
}

/// Writes a change that waits for its confirmation.
async fn waiting(world: &World, body: Value, seconds: u64) -> u64 {
    let draft = world.plan(body).await.unwrap();
    let mut txn = draft.txn();
    let author = Author {
        action: "apply".into(),
        now: world.now,
        ..Author::default()
    };
    let old = |path: &str| draft.steps.iter().find(|s| s.path == path)?.old.clone();
    let entry = history::record_known(&*world.store, world.limits, &mut txn, &author, old)
        .await
        .unwrap();
    let pending = Pending {
        deadline: history::now() + seconds * 1000,
        entry: entry.unwrap().path,
        routes: None,
        error_rise: None,
        before: Default::default(),
    };
    txn.ops.push(pending.op().unwrap());
    match world.store.commit(txn).await.unwrap() {
        Commit::Done(revision) => revision,
        Commit::Refused => panic!("refused"),
    }
}

async fn settled(world: &World) {
    let confirmations = world.confirmations();
    let done = async {
        while pending::read(&*world.store).await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = confirmations.run() => panic!("it never ends"),
        () = done => {}
        () = tokio::time::sleep(Duration::from_secs(10)) => panic!("it waits still"),
    }
}

#[tokio::test]
async fn what_is_not_confirmed_goes_back() {
    let world = world();
    world.apply(json!({"changes": [put("upstreams", "u", upstream()), put("routes", "r", route("/a"))]})).await;
    let before = world.texts().await;
    let changes = json!({"changes": [
        put("upstreams", "v", upstream()), put("routes", "r", json!({"uri": "/b", "upstream_id": "v"}))]});
    let revision = waiting(&world, changes.clone(), 0).await;
    settled(&world).await;
    assert_eq!(world.texts().await, before);
    let known = world.history().await;
    assert_eq!(known[0].entry.action, "went back");
    assert_eq!(
        known[0].entry.comment,
        Some(format!(
            "the change of revision {revision} went back: it was not confirmed in time"
        ))
    );
    // What was changed since stays, and what that needs.
    let revision = waiting(&world, changes, 0).await;
    world
        .single(Txn::put(
            "routes/r",
            r#"{"id":"r","uri":"/c","upstream_id":"v"}"#,
        ))
        .await;
    settled(&world).await;
    assert_eq!(
        world.paths().await,
        ["routes/r", "upstreams/u", "upstreams/v"]
    );
    let comment = world.history().await[0].entry.comment.clone().unwrap();
    assert_eq!(
        comment,
        format!(
            "the change of revision {revision} went back: it was not confirmed in time; it stays, because \
                 it was changed since or is in use: routes/r, upstreams/v"
        )
    );
}

#[tokio::test]
async fn what_waits_keeps_its_entry() {
    let mut world = world();
    world.limits = Limits {
        generations: 2,
        bytes: 1 << 20,
    };
    waiting(
        &world,
        json!({"changes": [put("upstreams", "u", upstream())]}),
        1000,
    )
    .await;
    for at in 0..5 {
        world.single(Txn::put(format!("routes/{at}"), "{}")).await;
    }
    let waiting = pending::read(&*world.store).await.unwrap().unwrap();
    assert!(
        history::at(&*world.store, &waiting.pending.unwrap().entry)
            .await
            .unwrap()
            .is_some()
    );
}

#[test]
fn touched_routes_are_found_through_what_they_use() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let world = world();
    runtime.block_on(world.apply(json!({"changes": [
        put("upstreams", "u", upstream()), put("upstreams", "v", upstream()),
        put("services", "s", json!({"upstream_id": "u"})), put("plugin_configs", "p", json!({"plugins": {}})),
        put("routes", "direct", route("/d")), put("routes", "by-service", json!({"uri": "/s", "service_id": "s"})),
        put("routes", "other", json!({"uri": "/o", "upstream_id": "v", "plugin_config_id": "p"})),
    ]})));
    let check = |changes: Value, expected: Option<&[&str]>| {
        let draft = runtime
            .block_on(world.plan(json!({ "changes": changes })))
            .unwrap();
        let listing = runtime.block_on(world.store.list("")).unwrap();
        let catalogue = catalogue();
        let rules = Rules {
            keyring: &world.keyring,
            catalogue: &catalogue,
            check: &|_: &Key, _: &Value| Problems::default(),
            now: 0,
        };
        let got = affected(&draft.steps, &listing, &rules);
        let expected =
            expected.map(|list| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>());
        assert_eq!(got, expected, "{changes}");
    };
    let nodes = json!({"nodes": {"127.0.0.1:2": 1}});
    check(
        json!([put("upstreams", "u", nodes)]),
        Some(&["by-service", "direct"]),
    );
    check(
        json!([put("plugin_configs", "p", json!({"plugins": {"cors": {}}}))]),
        Some(&["other"]),
    );
    check(
        json!([put("services", "s", json!({"upstream_id": "v"}))]),
        Some(&["by-service"]),
    );
    check(
        json!([
            put("routes", "other", route("/x")),
            put("routes", "new", route("/n"))
        ]),
        Some(&["other", "new"]),
    );
    check(
        json!([put("global_rules", "g", json!({"plugins": {"cors": {}}}))]),
        None,
    );
    check(json!([]), Some(&[]));
}
