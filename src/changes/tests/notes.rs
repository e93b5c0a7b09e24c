//! Entries of the history that have changed no resource.

use super::*;

#[tokio::test]
async fn what_changes_no_resource_pushes_out_nothing_that_could_be_taken_back() {
    let mut world = world();
    world.limits.generations = 3;
    let note = || Txn::put("lockgate/limits/overrides/a", "{}");
    world.single(note()).await;
    let mut revisions = Vec::new();
    for at in 0..4 {
        revisions.push(world.single(Txn::put(format!("routes/{at}"), "{}")).await);
    }
    let mut last = 0;
    for _ in 0..10 {
        last = world.single(note()).await;
    }
    let known = world.history().await;
    let notes = known.iter().filter(|g| g.entry.is_note()).count();
    assert_eq!((known.len(), notes), (6, 3));
    let listing = world.store.list("").await.unwrap();
    let wants = history::back_to(&known, 0, revisions[0], &listing).unwrap();
    assert_eq!(wants.len(), 3);
    let error = history::undo(&known, last, &listing).err().unwrap();
    let text = format!("undo: revision {last} changed no resource: there is nothing to take back");
    assert_eq!(problems(&error), [text]);
}

#[tokio::test]
async fn an_old_note_does_not_make_the_history_longer() {
    let mut world = world();
    world.limits.generations = 2;
    let note = world
        .single(Txn::put("lockgate/limits/overrides/a", "{}"))
        .await;
    for at in 0..4 {
        world.single(Txn::put(format!("routes/{at}"), "{}")).await;
    }
    let (known, listing) = (world.history().await, world.store.list("").await.unwrap());
    assert_eq!(known.last().unwrap().revision, note);
    // Two changes after it are no longer known.
    assert!(history::back_to(&known, 0, note, &listing).is_err());
    assert!(history::back_to(&known, 0, note + 2, &listing).is_ok());
}
