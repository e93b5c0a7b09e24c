//! What a source makes of a store, and of one that fails.

use super::*;
use crate::store::{Commit, Memory, Op, Txn, Watch};
use async_trait::async_trait;

fn shown(changes: &Changes) -> Vec<String> {
    changes
        .changes
        .iter()
        .map(|change| match change {
            Change::Put(key, value, at) => format!("{key} {value} {at:?}"),
            Change::Stay(key, at) => format!("{key} stays {at}"),
            Change::Delete(key) => format!("{key} gone"),
        })
        .collect()
}

#[test]
fn of_several_changes_the_last_one_counts() {
    let put = |path: &str, text: &str| {
        Event::Put(Item {
            path: path.into(),
            text: text.into(),
            created: 1,
            modified: 1,
        })
    };
    let gone = |path: &str| Event::Gone(path.into(), 1);
    let events = vec![
        put("routes/a", "1"),
        put("routes/b", "1"),
        gone("routes/a"),
        gone("routes/b"),
        put("routes/b", "2"),
        put("services/s/more/1", "1"),
        put("routes/c", "1"),
        put("routes/c", "2"),
    ];
    assert_eq!(
        shown(&changes(&Keyring::default(), &events, 9)),
        [
            "routes/a gone",
            "routes/b gone",
            "routes/b 2 None",
            "routes/c 2 None"
        ]
    );
}

#[tokio::test]
async fn everything_then_changes() {
    let store = Arc::new(Memory::default());
    let put = |path: &str, text: &str| {
        let store = Arc::clone(&store);
        let txn = Txn::put(path, text);
        async move { store.commit(txn).await.unwrap() }
    };
    put("routes/b", "{}").await;
    put("routes/a", "not json").await;
    put("consumers/ann", r#"{"username":"ann"}"#).await;
    put("consumers/ann/credentials/c", r#"{"id":"c"}"#).await;
    put("gen_id", "1").await;
    let again = Duration::from_millis(10);
    let mut source = StoreSource::new(store.clone(), Keyring::default(), again);
    let all = source.read().await.unwrap().unwrap();
    assert_eq!(
        shown(&all),
        [
            "routes/b {} Some(0)",
            "routes/a null Some(1)",
            r#"consumers/ann {"username":"ann"} Some(2)"#,
            r#"consumers/ann/credentials/c {"id":"ann/credentials/c"} Some(3)"#,
        ]
    );
    let (out, mut updates) = mpsc::channel(1);
    let running = tokio::spawn(source.run(out, SharedReport::default()));
    let mut txn = Txn::put("routes/c", "{}");
    txn.ops.push(Op::Delete("routes/b".into()));
    store.commit(txn).await.unwrap();
    let Some(Update::Changes(next)) = updates.recv().await else {
        panic!("no changes")
    };
    assert_eq!(shown(&next), ["routes/b gone", "routes/c {} None"]);
    drop(updates);
    put("routes/d", "{}").await;
    running.await.unwrap();
}

/// A store that holds what it is told, and whose watch tells nothing.
#[derive(Default)]
struct Silent(std::sync::Mutex<Listing>);

struct Never;

#[async_trait]
impl Watch for Never {
    async fn next(&mut self) -> Result<(Vec<Event>, u64), WatchError> {
        std::future::pending().await
    }
}

#[async_trait]
impl Store for Silent {
    fn describe(&self) -> String {
        "silent".to_owned()
    }
    async fn list(&self, _: &str) -> Result<Listing, StoreError> {
        Ok(self.0.lock().unwrap().clone())
    }
    async fn versions(&self, _: u64) -> Result<Option<Versions>, StoreError> {
        let held = self.0.lock().unwrap();
        let of = |item: &Item| (Arc::clone(&item.path), item.modified);
        Ok(Some(Versions {
            items: held.items.iter().map(of).collect(),
            revision: held.revision,
        }))
    }
    async fn get(&self, _: &str) -> Result<Option<Item>, StoreError> {
        Ok(None)
    }
    async fn revision(&self) -> Result<u64, StoreError> {
        Ok(self.0.lock().unwrap().revision)
    }
    async fn commit(&self, _: Txn) -> Result<Commit, StoreError> {
        Ok(Commit::Refused)
    }
    async fn watch(&self, _: u64) -> Result<Box<dyn Watch>, StoreError> {
        Ok(Box::new(Never))
    }
    async fn tend(&self) {}
    fn release(&self) {}
}

fn listing(paths: &[&str], revision: u64) -> Listing {
    let item = |path: &&str| Item {
        path: (*path).into(),
        text: "{}".into(),
        created: 1,
        modified: revision,
    };
    Listing {
        items: paths.iter().map(item).collect(),
        revision,
        identity: 1,
    }
}

#[tokio::test]
async fn what_the_watch_misses_is_found_by_comparing() {
    let store = Arc::new(Silent::default());
    let mirror = Arc::new(Mirror::default());
    let source = StoreSource::new(store.clone(), Keyring::default(), AGAIN_FIRST);
    let mut source = source.mirrored(Arc::clone(&mirror));
    source.check_every = Duration::from_millis(5);
    let take = |changes: Changes| {
        let Some(Raw::Whole(listing)) = changes.raw else {
            panic!("no listing")
        };
        mirror.replace(listing, |_| true);
    };
    *store.0.lock().unwrap() = listing(&["routes/a"], 3);
    take(source.read().await.unwrap().unwrap());
    let (out, mut updates) = mpsc::channel(1);
    let running = tokio::spawn(source.run(out, SharedReport::default()));
    // Of one revision both are known exactly; a later one may be on its way, and is waited for.
    for (paths, revision) in [(&["routes/b"][..], 3), (&["routes/b", "routes/c"], 4)] {
        *store.0.lock().unwrap() = listing(paths, revision);
        let Some(Update::Whole(all)) = updates.recv().await else {
            panic!("nothing is read")
        };
        assert_eq!(all.changes.len(), paths.len());
        take(all);
    }
    // What is the same is left alone.
    let nothing = tokio::time::timeout(Duration::from_millis(100), updates.recv()).await;
    assert!(nothing.is_err());
    drop(updates);
    running.await.unwrap();
}

#[tokio::test]
async fn an_older_empty_store_is_not_taken() {
    let source = |listing: Listing| {
        let store = Arc::new(Silent(std::sync::Mutex::new(listing)));
        StoreSource::new(store, Keyring::default(), AGAIN_FIRST)
    };
    let check = async |before: (u64, u64), now: Listing, taken: bool| {
        let mut source = source(now.clone()).behind(before.0, before.1);
        let all = source.read().await.unwrap();
        assert_eq!(all.is_some(), taken, "{before:?} {now:?}");
        // Asked again, it is still so.
        assert_eq!(source.read().await.unwrap().is_some(), taken);
    };
    check((0, 0), listing(&[], 1), true).await;
    check((9, 1), listing(&[], 9), true).await;
    check((9, 1), listing(&[], 8), false).await;
    check((9, 2), listing(&[], 10), false).await;
    check((9, 2), listing(&["gen_id"], 10), false).await;
    check((9, 1), listing(&["routes/a"], 8), true).await;
}

#[test]
fn differences() {
    let versions = |items: &[(&str, u64)]| Versions {
        items: items
            .iter()
            .map(|(path, at)| ((*path).into(), *at))
            .collect(),
        revision: 3,
    };
    let own = versions(&[("a/1", 3), ("a/2", 3)]);
    let check = |items: &[(&str, u64)], expected: Option<&str>| {
        let found = difference(&own, &versions(items));
        assert_eq!(found.as_deref(), expected, "{items:?}");
    };
    check(&[("a/1", 3), ("a/2", 3)], None);
    check(&[("a/1", 3), ("a/2", 4)], Some("a/2"));
    check(&[("a/1", 3)], Some("a/2"));
    check(&[("a/2", 3)], Some("a/1"));
    check(&[("a/1", 3), ("a/11", 3), ("a/2", 3)], Some("a/11"));
    check(&[("a/1", 3), ("a/2", 3), ("b", 1)], Some("b"));
}
