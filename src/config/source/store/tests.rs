//! What a source makes of a store, and of one that fails.

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
    assert_eq!(shown(&next), ["routes/c {} None", "routes/b gone"]);
    drop(updates);
    put("routes/d", "{}").await;
    running.await.unwrap();
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
