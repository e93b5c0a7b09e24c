//! Resources from a store: everything once, then each change as it is written.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;

use super::{Changes, Update};
use crate::config::graph::Change;
use crate::config::keyring::Keyring;
use crate::config::kind::{Key, Kind};
use crate::store::{Event, Item, Listing, Store, StoreError, WatchError};

/// Pause after a store could not be read, doubled each time: short enough that a restart of the
/// store is over unnoticed.
const AGAIN_FIRST: Duration = Duration::from_millis(50);
/// The longest pause: a store that is away must not be hammered.
const AGAIN_LAST: Duration = Duration::from_secs(5);

/// A store as a source.
pub struct StoreSource {
    store: Arc<dyn Store>,
    keyring: Keyring,
    /// What was sent last.
    revision: u64,
}

impl StoreSource {
    /// Reads everything in a store, and goes on from there.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn open(
        store: Arc<dyn Store>,
        keyring: Keyring,
    ) -> Result<(StoreSource, Changes), StoreError> {
        let mut source = StoreSource {
            store,
            keyring,
            revision: 0,
        };
        let all = source.read().await?;
        Ok((source, all))
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Sends changes until the receiver is gone.
    pub async fn run(mut self, out: mpsc::Sender<Update>) {
        let mut pause = AGAIN_FIRST;
        // What is in use is kept though the store is empty.
        let mut kept = false;
        loop {
            let ended = match self.store.watch(self.revision).await {
                Ok(mut watch) => loop {
                    match watch.next().await {
                        Ok((_, revision)) if kept => break WatchError::Forgotten(revision),
                        Ok((events, revision)) => {
                            pause = AGAIN_FIRST;
                            self.revision = revision;
                            let update = Update::Changes(changes(&self.keyring, events, revision));
                            if out.send(update).await.is_err() {
                                return;
                            }
                        }
                        Err(error) => break error,
                    }
                },
                Err(error) => WatchError::Broken(error.chain()),
            };
            if !matches!(ended, WatchError::Forgotten(_)) {
                tracing::error!(error = %ended, "the store is out of reach, what is in use stays");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(AGAIN_LAST);
            }
            // What was missed is not known: everything is compared.
            let before = self.revision;
            let all = loop {
                match self.read().await {
                    Ok(all) => break all,
                    Err(error) if out.is_closed() => {
                        tracing::debug!(error = %error.chain(), "no longer needed");
                        return;
                    }
                    Err(error) => {
                        tracing::error!(error = %error.chain(), "the store cannot be read");
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(AGAIN_LAST);
                    }
                }
            };
            if all.revision < before {
                tracing::error!(
                    before,
                    now = all.revision,
                    "the store's revision went back: it was restored or made anew"
                );
            }
            kept = all.changes.is_empty() && (kept || all.revision < before);
            if kept {
                tracing::error!(
                    "the store is empty: what is in use stays until something is written"
                );
            } else if out.send(Update::Whole(all)).await.is_err() {
                return;
            }
        }
    }

    async fn read(&mut self) -> Result<Changes, StoreError> {
        let listing = self.store.list("").await?;
        self.revision = listing.revision;
        Ok(whole(&self.keyring, listing))
    }
}

/// Everything, in the order in which it was made: where routes are equal the older one wins, before
/// and after a restart.
fn whole(keyring: &Keyring, mut listing: Listing) -> Changes {
    listing.items.sort_by_key(|item| item.created);
    let keyed = listing
        .items
        .iter()
        .filter_map(|item| resource(keyring, item))
        .enumerate();
    Changes {
        changes: keyed
            .map(|(at, (key, value))| Change::Put(key, value, Some(at)))
            .collect(),
        revision: listing.revision,
    }
}

/// What happened, each resource once: with what became of it last.
fn changes(keyring: &Keyring, events: Vec<Event>, revision: u64) -> Changes {
    let mut changes: Vec<Change> = Vec::with_capacity(events.len());
    let mut seen = rustc_hash::FxHashSet::default();
    for event in events.into_iter().rev() {
        let change = match event {
            Event::Put(item) => {
                resource(keyring, &item).map(|(key, value)| Change::Put(key, value, None))
            }
            Event::Gone(path, _) => Key::from_path(&path).map(Change::Delete),
        };
        if let Some(change) = change
            && seen.insert(change.key().clone())
        {
            changes.push(change);
        }
    }
    changes.reverse();
    Changes { changes, revision }
}

/// What an item is to the gateway. A text that is no JSON becomes null, which no resource is, so
/// that it is reported and its previous version stays.
fn resource(keyring: &Keyring, item: &Item) -> Option<(Key, Arc<Value>)> {
    let key = Key::from_path(&item.path)?;
    let mut value = serde_json::from_str(&item.text).unwrap_or(Value::Null);
    keyring.open(&key, &mut value);
    if key.kind == Kind::Credential
        && let Some(id) = value.get_mut("id")
    {
        // Stored under its short id; the gateway knows credentials by the whole one.
        *id = Value::from(&*key.id);
    }
    Some((key, Arc::new(value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Memory, Op, Txn};

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
        ];
        assert_eq!(
            shown(&changes(&Keyring::default(), events, 9)),
            ["routes/a gone", "routes/b 2 None"]
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
        let (source, all) = StoreSource::open(store.clone(), Keyring::default())
            .await
            .unwrap();
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
        let running = tokio::spawn(source.run(out));
        let mut txn = Txn::put("routes/c", "{}");
        txn.ops.push(Op::Delete("routes/b".into()));
        store.commit(txn).await.unwrap();
        let Some(Update::Changes(next)) = updates.recv().await else {
            panic!("no changes")
        };
        assert_eq!(shown(&next), ["routes/c {} None", "routes/b gone"]);
        drop(updates);
        put("routes/d", "{}").await;
        running.await.unwrap();
    }
}
