//! Where the way back is not known, nothing pretends that it is.

use super::*;

/// The answer to a wish to go back.
async fn refusal(world: &World, to: u64) -> Option<String> {
    let listing = world.store.list("").await.unwrap();
    let unrecorded = history::unrecorded(&*world.store).await.unwrap();
    history::back_to(&world.history().await, unrecorded, to, &listing)
        .err()
        .map(|e| problems(&e).join("\n"))
}

fn gap(last: u64, to: u64) -> Option<String> {
    Some(format!(
        "to: not all changes up to revision {last} are in the history: what was there at {to} is not known"
    ))
}

/// A route that a change updates, and that waits with an entry of which the test disposes.
async fn stays(bytes: usize, dispose: Option<fn(&str) -> Txn>) {
    let mut world = world();
    world.apply(json!({"changes": [put("upstreams", "u", upstream()), put("routes", "r", route("/a"))]})).await;
    world.limits.bytes = bytes;
    let changes =
        json!({"changes": [put("routes", "r", route("/b")), put("routes", "new", route("/n"))]});
    let revision = waiting(&world, changes, 0).await;
    world.limits.bytes = LIMITS.bytes;
    let there = world.texts().await;
    if let Some(dispose) = dispose {
        let waiting = pending::read(&*world.store).await.unwrap().unwrap();
        let txn = dispose(&waiting.pending.unwrap().entry);
        world.store.commit(txn).await.unwrap();
    }
    settled(&world).await;
    assert_eq!(world.texts().await, there);
    let known = world.history().await;
    let entry = &known[0].entry;
    assert_eq!(entry.action, "could not go back");
    assert_eq!(
        entry.comment,
        Some(format!(
            "the change of revision {revision} had to go back (it was not confirmed in time) and stays: what was \
             there before is not in the history"
        ))
    );
    assert!(entry.changes.is_empty());
}

#[tokio::test]
async fn what_was_there_before_is_not_known_and_nothing_is_deleted() {
    // Too large for the history.
    stays(0, None).await;
    // Removed, or overwritten, by somebody else.
    stays(LIMITS.bytes, Some(|entry| Txn::delete(entry))).await;
    stays(LIMITS.bytes, Some(|entry| Txn::put(entry, "{"))).await;
}

#[tokio::test]
async fn nobody_goes_back_over_entries_that_are_lost_behind_one_that_waits() {
    let mut world = world();
    world.limits.generations = 3;
    let first = waiting(
        &world,
        json!({"changes": [put("upstreams", "u", upstream())]}),
        1000,
    )
    .await;
    let mut made = Vec::new();
    for at in 0..5 {
        made.push(world.single(Txn::put(format!("routes/{at}"), "{}")).await);
    }
    let known: Vec<u64> = world.history().await.iter().map(|g| g.revision).collect();
    assert_eq!(known, [made[4], made[3], first]);
    for lost in [first - 1, first, made[0], made[1]] {
        assert_eq!(refusal(&world, lost).await, gap(made[2], lost));
    }
    assert_eq!(refusal(&world, made[2]).await, None);
    // It no longer waits, and is there still.
    world
        .store
        .commit(Txn::delete(pending::PATH))
        .await
        .unwrap();
    assert_eq!(refusal(&world, first).await, gap(made[2], first));
}

#[tokio::test]
async fn nobody_goes_back_over_changes_that_were_not_kept() {
    let mut world = world();
    let put_one = Txn::put("routes/1", r#"{"uri":"/1"}"#);
    let kept = world.single(put_one.clone()).await;
    world.limits.generations = 0;
    world.single(Txn::put("routes/2", "{}")).await;
    let not_kept = world
        .apply(json!({"changes": [delete("routes", "1")]}))
        .await;
    world.limits.generations = 10;
    assert_eq!(refusal(&world, kept).await, gap(not_kept, kept));
    let again = world.single(put_one).await;
    assert_eq!(world.history().await.len(), 2);
    for lost in [kept, not_kept - 1] {
        assert_eq!(refusal(&world, lost).await, gap(not_kept, lost));
    }
    for known in [not_kept, again] {
        assert_eq!(refusal(&world, known).await, None);
    }
}

#[tokio::test]
async fn what_waits_and_is_not_readable_is_in_nobodys_way() {
    let mut world = world();
    world.limits.generations = 2;
    let broken = Txn::put(pending::PATH, "{");
    world.store.commit(broken).await.unwrap();
    for at in 0..4 {
        world.single(Txn::put(format!("routes/{at}"), "{}")).await;
    }
    assert_eq!(world.history().await.len(), 2);
    let waiting = pending::read(&*world.store).await.unwrap().unwrap();
    let shown = waiting.shown(0);
    assert_eq!(shown["revision"], waiting.revision);
    let error = shown["error"].as_str().unwrap_or_default();
    assert!(
        error.starts_with("it does not go back by itself: "),
        "{shown}"
    );
}

#[tokio::test]
async fn what_goes_back_stands_in_line_with_other_writes() {
    let world = world();
    waiting(
        &world,
        json!({"changes": [put("upstreams", "u", upstream())]}),
        0,
    )
    .await;
    let confirmations = world.confirmations();
    let writes = Arc::clone(&confirmations.writes);
    let waits = async || pending::read(&*world.store).await.unwrap().is_some();
    let another = writes.read().await;
    let mut run = std::pin::pin!(confirmations.run());
    // Once it stands there, nobody passes it.
    let stands = async {
        while writes.try_read().is_ok() {
            assert!(waits().await, "it did not wait for its turn");
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = &mut run => panic!("it never ends"),
        () = stands => {}
    }
    assert!(waits().await);
    drop(another);
    let done = async {
        while waits().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = &mut run => panic!("it never ends"),
        () = done => {}
    }
    assert_eq!(world.paths().await, Vec::<String>::new());
}
