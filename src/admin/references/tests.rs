//! What is known of consumers is enough, until it is not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use serde_json::json;

use super::*;
use crate::store::{Commit, Listing, Memory, Txn, Watch};

/// Counts how often everything is read.
#[derive(Default)]
struct Counting {
    memory: Memory,
    lists: AtomicUsize,
}

#[async_trait]
impl Store for Counting {
    fn describe(&self) -> String {
        "counting".to_owned()
    }
    async fn list(&self, prefix: &str) -> Result<Listing, StoreError> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        self.memory.list(prefix).await
    }
    async fn get(&self, path: &str) -> Result<Option<Item>, StoreError> {
        self.memory.get(path).await
    }
    async fn revision(&self) -> Result<u64, StoreError> {
        self.memory.revision().await
    }
    async fn commit(&self, txn: Txn) -> Result<Commit, StoreError> {
        self.memory.commit(txn).await
    }
    async fn watch(&self, after: u64) -> Result<Box<dyn Watch>, StoreError> {
        self.memory.watch(after).await
    }
    async fn tend(&self) {}
    fn release(&self) {}
}

fn consumer(key: &str) -> Value {
    json!({ "username": "x", "plugins": { "key-auth": { "key": key } } })
}

#[tokio::test]
async fn a_consumer_is_checked_without_reading_all() {
    let (store, mirror) = (Counting::default(), Arc::new(Mirror::default()));
    let (catalogue, keyring) = (
        Catalogue::everything(lockgate_plugins::ALL),
        Keyring::default(),
    );
    for (path, key) in [("consumers/a", "one"), ("consumers/b", "two")] {
        let txn = Txn::put(path, consumer(key).to_string());
        store.commit(txn).await.unwrap();
    }
    mirror.replace(store.memory.list("").await.unwrap(), |_| true);
    let consumers = Consumers {
        store: &store,
        known: Some(&*mirror),
        catalogue: &catalogue,
        keyring: &keyring,
    };
    let check = async |path: &str, key: &str, lists: usize| {
        let before = store.lists.load(Ordering::Relaxed);
        let done = consumers.key_once(path, &consumer(key)).await.unwrap();
        assert_eq!(
            store.lists.load(Ordering::Relaxed) - before,
            lists,
            "{path} {key}"
        );
        done.ok()
    };
    let unchanged = |revision| Some(vec![Guard::Unchanged("consumers", revision)]);
    assert_eq!(check("consumers/c", "three", 0).await, unchanged(2));
    assert_eq!(check("consumers/a", "one", 0).await, unchanged(2));
    // One that is refused is looked up: whoever has the key may be gone meanwhile.
    assert_eq!(check("consumers/c", "one", 1).await, None);
    store.commit(Txn::delete("consumers/a")).await.unwrap();
    assert_eq!(check("consumers/c", "one", 1).await, unchanged(3));
    // What is known of a store that went back tells nothing.
    mirror.change(Vec::new(), 9, |_| true);
    assert_eq!(check("consumers/c", "three", 1).await, unchanged(3));
}
