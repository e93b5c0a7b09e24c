//! Others who write all the time do not keep a change from going back, and what they wrote is named.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;

use super::*;
use crate::changes::history::{Stranger, strangers};
use crate::store::{Item, Listing, StoreError, Watch};

/// A store into which somebody else writes before every write.
struct Busy {
    store: Arc<Memory>,
    folder: &'static str,
    writes: AtomicU64,
}

#[async_trait]
impl Store for Busy {
    fn describe(&self) -> String {
        "busy".to_owned()
    }
    fn is_shared(&self) -> bool {
        true
    }
    async fn list(&self, prefix: &str) -> Result<Listing, StoreError> {
        self.store.list(prefix).await
    }
    async fn get(&self, path: &str) -> Result<Option<Item>, StoreError> {
        self.store.get(path).await
    }
    async fn revision(&self) -> Result<u64, StoreError> {
        self.store.revision().await
    }
    async fn commit(&self, txn: Txn) -> Result<Commit, StoreError> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        let noise = Txn::put(format!("{}/noise", self.folder), "{}");
        self.store.commit(noise).await?;
        // As etcd has it: no more conditions than a transaction takes.
        assert!(txn.guards.len() <= 62, "{}", txn.guards.len());
        self.store.commit(txn).await
    }
    async fn watch(&self, after: u64) -> Result<Box<dyn Watch>, StoreError> {
        self.store.watch(after).await
    }
    async fn tend(&self) {}
    fn release(&self) {}
}

/// Lets what waits go back, while others write into a folder; gives how many writes it took.
async fn settled_among(world: &World, folder: &'static str) -> u64 {
    let busy = Arc::new(Busy {
        store: Arc::clone(&world.store),
        folder,
        writes: AtomicU64::new(0),
    });
    let mut confirmations = world.confirmations();
    confirmations.store = Arc::clone(&busy) as Arc<dyn Store>;
    let done = async {
        while pending::read(&*world.store).await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        () = confirmations.run() => panic!("it never ends"),
        () = done => {}
    }
    busy.writes.load(Ordering::Relaxed)
}

/// Everything but what the others write.
async fn own(world: &World) -> Vec<(String, String)> {
    let mut texts = world.texts().await;
    texts.retain(|(path, _)| !path.ends_with("/noise"));
    texts
}

#[tokio::test(start_paused = true)]
async fn what_waits_goes_back_while_others_write() {
    let world = world();
    world.apply(json!({"changes": [put("upstreams", "u", upstream()), put("routes", "r", route("/a"))]})).await;
    let before = own(&world).await;
    let change = json!({"changes": [
        put("upstreams", "v", upstream()), put("routes", "new", route("/n")),
        put("routes", "r", json!({"uri": "/b", "upstream_id": "v"}))]});
    // Where nothing refers to anything: what is deleted gets no users by that.
    waiting(&world, change.clone(), 0).await;
    assert_eq!(settled_among(&world, "plugin_metadata").await, 4);
    assert_eq!(own(&world).await, before);
    // Where users of it might be, it stays in the end, and is named.
    let revision = waiting(&world, change, 0).await;
    assert_eq!(settled_among(&world, "routes").await, 7);
    let mut paths: Vec<String> = own(&world)
        .await
        .into_iter()
        .map(|(path, _)| path)
        .collect();
    paths.sort();
    assert_eq!(paths, ["routes/r", "upstreams/u", "upstreams/v"]);
    let route = world.store.get("routes/r").await.unwrap().unwrap();
    assert!(route.text.contains("/a"), "{}", route.text);
    let comment = world.history().await[0].entry.comment.clone();
    assert_eq!(
        comment,
        Some(format!(
            "the change of revision {revision} went back: it was not confirmed in time; it stays, because it was \
             changed since or is in use: upstreams/v"
        ))
    );
}

#[tokio::test(start_paused = true)]
async fn a_large_change_goes_back_in_parts_while_others_write() {
    let world = world();
    let many = |uri: &str| -> Vec<Value> {
        let routes =
            (0..150).map(|at| put("routes", &at.to_string(), route(&format!("/{uri}/{at}"))));
        std::iter::once(put("upstreams", "u", upstream()))
            .chain(routes)
            .collect()
    };
    world.apply(json!({ "changes": many("old") })).await;
    let before = own(&world).await;
    waiting(&world, json!({ "changes": many("new") }), 0).await;
    // Three tries as a whole, then parts of 47 routes: each of them refers to the upstream.
    assert_eq!(settled_among(&world, "routes").await, 3 + 4);
    assert_eq!(own(&world).await, before);
    let known = world.history().await;
    let parts: Vec<usize> = known[..4].iter().map(|g| g.entry.changes.len()).collect();
    assert_eq!(parts, [9, 47, 47, 47]);
    assert!(known[..4].iter().all(|g| g.entry.action == "went back"));
}

#[tokio::test]
async fn what_others_wrote_is_named() {
    let world = world();
    world
        .apply(
            json!({"changes": [put("routes", "r", json!({"uri": "/1", "upstream": upstream()}))]}),
        )
        .await;
    let to = world.store.revision().await.unwrap();
    world
        .apply(
            json!({"changes": [put("routes", "r", json!({"uri": "/2", "upstream": upstream()}))]}),
        )
        .await;
    // By something that keeps no history: over a change that has an entry, and elsewhere.
    world
        .store
        .commit(Txn::put("routes/r", r#"{"uri":"/3"}"#))
        .await
        .unwrap();
    world
        .store
        .commit(Txn::put("routes/x", r#"{"uri":"/x"}"#))
        .await
        .unwrap();
    let listing = world.store.list("").await.unwrap();
    let known = world.history().await;
    let wants = history::back_to(&known, 0, to, &listing).unwrap();
    let stranger = |path: &str, revision: u64, replaced: bool| Stranger {
        path: path.to_owned(),
        revision,
        replaced,
    };
    assert_eq!(
        strangers(&known, to, &listing, &wants),
        [
            stranger("routes/r", listing.revision - 1, true),
            stranger("routes/x", listing.revision, false)
        ]
    );
    assert_eq!(strangers(&known, listing.revision, &listing, &[]), []);
}

#[tokio::test]
async fn what_has_had_its_time_is_in_the_history() {
    let mut world = world();
    let with_ttl = |seconds: u64| {
        Txn::of(Op::Put {
            path: "routes/r".to_owned(),
            text: "{}".to_owned(),
            ttl: Some(Duration::from_secs(seconds)),
        })
    };
    let expired = async |world: &World, now: u64| {
        let listing = world.store.list("").await.unwrap();
        let told = history::summaries(&world.history().await, &listing, now);
        told.into_iter()
            .map(|entry| (entry["action"].clone(), entry["time"].clone()))
            .collect::<Vec<_>>()
    };
    let start = world.now;
    let put = (json!("PUT"), json!(history::time(start)));
    let first = world.single(with_ttl(10)).await;
    assert_eq!(
        expired(&world, start + 60_000).await,
        std::slice::from_ref(&put)
    );
    // Gone before its time somebody has deleted it; after that nobody did.
    world.store.commit(Txn::delete("routes/r")).await.unwrap();
    assert_eq!(
        expired(&world, start + 9_999).await,
        std::slice::from_ref(&put)
    );
    let end = (json!("expired"), json!(history::time(start + 10_000)));
    assert_eq!(
        expired(&world, start + 10_000).await,
        [end.clone(), put.clone()]
    );
    // Made anew it is there, and that it ended in between is still known.
    world.now += 20_000;
    world.single(Txn::put("routes/r", "{}")).await;
    let again = (json!("PUT"), json!(history::time(start + 20_000)));
    assert_eq!(expired(&world, start + 60_000).await, [again, end, put]);
    let listing = world.store.list("").await.unwrap();
    let told = history::summaries(&world.history().await, &listing, start + 60_000);
    assert_eq!(
        told[1],
        json!({"revision": null, "time": history::time(start + 10_000), "key": null, "client": null, "action": "expired",
               "comment": format!("its time to live, set at revision {first}, is over"), "kept": "nothing",
               "changes": [{"action": "delete", "resource": "routes/r"}]})
    );
}
