//! One suite over every store, and what only the embedded one has to keep.

#[cfg(feature = "etcd")]
mod etcd;

use super::*;
use std::path::PathBuf;

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("lockgate-store-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Folder(path)
    }
    fn file(&self) -> PathBuf {
        self.0.join("data/a.redb")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn embedded(folder: &Folder) -> Embedded {
    Embedded::open(&folder.file(), Duration::ZERO).unwrap_or_else(|e| panic!("{}", e.chain()))
}

#[tokio::test]
async fn memory() {
    let store = Memory::default();
    suite(&store).await;
    keeps_apart(&store).await;
    all_or_nothing(&store).await;
    hands_over(&store).await;
    forgets().await;
}

#[tokio::test]
async fn embedded_as_memory() {
    let folder = Folder::new("suite");
    let store = embedded(&folder);
    suite(&store).await;
    keeps_apart(&store).await;
    all_or_nothing(&store).await;
    hands_over(&store).await;
}

fn paths(listing: &Listing) -> Vec<&str> {
    listing.items.iter().map(|item| &*item.path).collect()
}

async fn commit(store: &dyn Store, txn: Txn) -> Commit {
    store.commit(txn).await.unwrap()
}

async fn done(store: &dyn Store, txn: Txn) -> u64 {
    match commit(store, txn).await {
        Commit::Done(revision) => revision,
        Commit::Refused => panic!("refused"),
    }
}

/// Everything a store has to do, on an empty one.
async fn suite(store: &dyn Store) {
    let empty = store.list("").await.unwrap();
    assert!(empty.items.is_empty());
    let start = empty.revision;
    let mut watch = store.watch(start).await.unwrap();

    // Texts come back as they were, byte for byte.
    let text = r#"{"z":1,"a":{},"b":[],"n":1.0,"u":"\u00e9\n","nodes":{"h:1":1}}"#;
    let first = done(store, Txn::put("routes/1", text)).await;
    assert!(first > start);
    let item = store.get("routes/1").await.unwrap().unwrap();
    assert_eq!(&*item.text, text);
    assert_eq!((item.created, item.modified), (first, first));
    assert_eq!(store.get("routes/2").await.unwrap(), None);

    // A second version keeps when it was made; the counter grows over the whole store.
    let other = done(store, Txn::put("upstreams/1", "{}")).await;
    let second = done(store, Txn::put("routes/1", r#"{"v":2}"#)).await;
    assert!(first < other && other < second);
    let item = store.get("routes/1").await.unwrap().unwrap();
    assert_eq!((item.created, item.modified), (first, second));

    // Lists are by prefix and in order, and show the last answered write.
    done(store, Txn::put("routes/10", "{}")).await;
    let last = done(store, Txn::put("routes2/1", "{}")).await;
    let routes = store.list("routes/").await.unwrap();
    assert_eq!(paths(&routes), ["routes/1", "routes/10"]);
    assert_eq!(routes.revision, last);
    assert_eq!(store.revision().await.unwrap(), last);
    assert_eq!(store.list("").await.unwrap().items.len(), 4);

    // Guards: all hold, or nothing is written.
    let refused = [
        Guard::Absent("routes/1".into()),
        Guard::Present("routes/2".into()),
        Guard::Modified("routes/1".into(), first),
        Guard::Modified("routes/2".into(), 0),
        Guard::Unchanged("routes", first),
    ];
    for guard in refused {
        let txn = Txn::put("routes/3", "{}").when(guard.clone());
        assert_eq!(commit(store, txn).await, Commit::Refused, "{guard:?}");
    }
    assert_eq!(store.list("").await.unwrap().revision, last);
    let mut txn = Txn::put("routes/3", "{}")
        .when(Guard::Present("routes/1".into()))
        .when(Guard::Absent("routes/2".into()))
        .when(Guard::Modified("routes/1".into(), second))
        .when(Guard::Unchanged("routes", last))
        .when(Guard::Unchanged("nothing", 0));
    txn.ops.push(Op::Delete("routes/10".into()));
    txn.ops.push(Op::Delete("not/there".into()));
    let both = done(store, txn).await;
    let routes = store.list("routes/").await.unwrap();
    assert_eq!(paths(&routes), ["routes/1", "routes/3"]);

    // A folder goes at once, however much is in it, and nothing beside it.
    let mut watched = store.watch(both).await.unwrap();
    let mut put = 0;
    for part in 0..2 {
        let mut txn = Txn::default();
        txn.ops.extend((0..100).map(|n| Op::Put {
            path: format!("many/{part}{n:02}/x"),
            text: "{}".into(),
            ttl: None,
        }));
        put = done(store, txn).await;
    }
    done(store, Txn::put("many2/x", "{}")).await;
    let all = done(store, Txn::of(Op::DeleteAll("many/".into()))).await;
    assert_eq!(paths(&store.list("many").await.unwrap()), ["many2/x"]);
    assert_eq!(
        done(store, Txn::of(Op::DeleteAll("many/".into()))).await,
        all
    );
    let (mut gone, mut at) = (0, both);
    while at < all {
        let (events, revision) = watched.next().await.unwrap();
        at = revision;
        gone += events
            .iter()
            .filter(|e| matches!(e, Event::Gone(..)))
            .count();
    }
    assert!(gone == 200 && put < all);
    let before = done(store, Txn::delete("many2/x")).await;

    // Deleting what is not there is no change; what comes back is new.
    assert_eq!(done(store, Txn::delete("routes/10")).await, before);
    let gone = done(store, Txn::delete("routes/1")).await;
    let again = done(store, Txn::put("routes/1", "{}")).await;
    let item = store.get("routes/1").await.unwrap().unwrap();
    assert!(gone > both && item.created == again);

    // The watch tells all of it, in order, once.
    let mut told = Vec::new();
    let mut at = start;
    while at < again {
        let (events, revision) = watch.next().await.unwrap();
        assert!(revision > at);
        at = revision;
        told.extend(events.into_iter().map(|event| match event {
            Event::Put(item) => format!("{}={}", item.path, item.modified),
            Event::Gone(path, revision) => format!("{path}-{revision}"),
        }));
    }
    let expected = [
        format!("routes/1={first}"),
        format!("upstreams/1={other}"),
        format!("routes/1={second}"),
        format!("routes/10={}", last - 1),
        format!("routes2/1={last}"),
        format!("routes/3={both}"),
        format!("routes/10-{both}"),
        format!("routes/1-{gone}"),
        format!("routes/1={again}"),
    ];
    told.retain(|line| !line.starts_with("many"));
    assert_eq!(told, expected);

    // From the middle, too.
    let mut watch = store.watch(gone).await.unwrap();
    assert_eq!(watch.next().await.unwrap().1, again);

    // What has had its time goes by itself; a write without one keeps it.
    for path in ["routes/ends", "routes/stays"] {
        let op = Op::Put {
            path: path.into(),
            text: "{}".into(),
            ttl: Some(Duration::from_secs(1)),
        };
        done(store, Txn::of(op)).await;
    }
    let kept = done(store, Txn::put("routes/stays", "{}")).await;
    let mut watch = store.watch(kept).await.unwrap();
    let (events, _) = tokio::select! {
        next = watch.next() => next.unwrap(),
        () = store.tend() => panic!("tend never ends"),
        () = tokio::time::sleep(Duration::from_secs(10)) => panic!("it stays"),
    };
    assert!(matches!(&events[..], [Event::Gone(path, _)] if &**path == "routes/ends"));
    assert!(store.get("routes/stays").await.unwrap().is_some());
}

/// What is lockgate's own is written together with resources, and kept apart from them.
async fn keeps_apart(store: &dyn Store) {
    let start = store.revision().await.unwrap();
    let before = store.list("").await.unwrap().items.len();
    let mut watch = store.watch(start).await.unwrap();
    assert!(store.keeps_own().await.unwrap());
    let mut txn = Txn::put("lockgate/history/a", "{}").when(Guard::Unchanged(HISTORY, start));
    txn.ops.push(Op::Put {
        path: "routes/own".into(),
        text: "{}".into(),
        ttl: None,
    });
    let both = done(store, txn).await;
    done(store, Txn::put("lockgate/other", "{}")).await;
    let last = done(store, Txn::put("routes/after", "{}")).await;
    assert_eq!(store.list("").await.unwrap().items.len(), before + 2);
    let own = store.list("lockgate/").await.unwrap();
    assert_eq!(paths(&own), ["lockgate/history/a", "lockgate/other"]);
    let names = store.names("lockgate/history/").await.unwrap();
    assert_eq!(paths(&names), ["lockgate/history/a"]);
    assert_eq!(
        (names.items[0].created, names.items[0].modified),
        (both, both)
    );
    let item = store.get("lockgate/history/a").await.unwrap().unwrap();
    assert_eq!((&*item.text, item.modified), ("{}", both));
    // Only the folder's own writes count.
    for (since, expected) in [(both, true), (both - 1, false)] {
        let txn = Txn::put("routes/own", "{}").when(Guard::Unchanged(HISTORY, since));
        let got = matches!(commit(store, txn).await, Commit::Done(_));
        assert_eq!(got, expected, "{since}");
    }
    let mut told = Vec::new();
    let mut at = start;
    while at <= last {
        let (events, revision) = watch.next().await.unwrap();
        at = revision;
        told.extend(events.iter().map(|event| event.path().to_owned()));
    }
    assert_eq!(told, ["routes/own", "routes/after", "routes/own"]);
}

const HISTORY: &str = "lockgate/history";

/// As many as etcd takes, in its levels.
const MANY: usize = 3844;

/// Several thousand writes are one, or none.
async fn all_or_nothing(store: &dyn Store) {
    let many = |text: &str| {
        let mut txn = Txn::default();
        for at in 0..MANY {
            txn.ops.push(Op::Put {
                path: format!("together/{at}"),
                text: text.to_owned(),
                ttl: None,
            });
        }
        txn
    };
    let first = done(store, many("1")).await;
    let listing = store.list("together/").await.unwrap();
    assert_eq!(listing.items.len(), MANY);
    assert!(listing.items.iter().all(|item| item.modified == first));
    assert_eq!(
        listing.find("together/77"),
        listing.items.iter().find(|i| &*i.path == "together/77")
    );
    assert_eq!(listing.find("together/x"), None);
    done(store, Txn::delete("together/499")).await;
    let stale = many("2").when(Guard::Modified("together/499".into(), first));
    assert_eq!(commit(store, stale).await, Commit::Refused);
    let listing = store.list("together/").await.unwrap();
    assert!(listing.items.len() == MANY - 1 && listing.items.iter().all(|item| &*item.text == "1"));
}

/// Handed over, it can be read, not written.
async fn hands_over(store: &dyn Store) {
    store.release();
    assert!(store.commit(Txn::delete("routes/3")).await.is_err());
    assert!(store.get("routes/3").await.unwrap().is_some());
}

/// A watch that stays too far behind is told so.
async fn forgets() {
    let store = Memory::default();
    done(&store, Txn::put("a/1", "{}")).await;
    let mut late = store.watch(0).await.unwrap();
    let mut txn = Txn::default();
    for at in 0..5000 {
        txn.ops.push(Op::Put {
            path: format!("a/{at}"),
            text: "{}".into(),
            ttl: None,
        });
    }
    let last = done(&store, txn).await;
    assert!(matches!(late.next().await, Err(WatchError::Forgotten(0))));
    let mut watch = store.watch(last).await.unwrap();
    let next = done(&store, Txn::delete("a/1")).await;
    assert_eq!(watch.next().await.unwrap().1, next);
}

#[tokio::test]
async fn the_file_keeps_everything() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("keeps");
    let store = embedded(&folder);
    done(&store, Txn::put("routes/1", "{}")).await;
    let op = Op::Put {
        path: "routes/2".into(),
        text: "[]".into(),
        ttl: Some(Duration::from_secs(3600)),
    };
    done(&store, Txn::of(op)).await;
    done(&store, Txn::put("routes/3", "{}")).await;
    done(&store, Txn::put("lockgate/history/a", "{}")).await;
    let last = done(&store, Txn::delete("routes/3")).await;
    let before = store.list("").await.unwrap();
    let own = store.list(OWN).await.unwrap();
    let mode = std::fs::metadata(folder.file())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(store);
    std::fs::set_permissions(folder.file(), std::fs::Permissions::from_mode(0o644)).unwrap();
    let store = embedded(&folder);
    let mode = std::fs::metadata(folder.file())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(store.list("").await.unwrap(), before);
    assert_eq!(store.list(OWN).await.unwrap(), own);
    assert_eq!(paths(&own), ["lockgate/history/a"]);
    assert_eq!(done(&store, Txn::put("routes/4", "{}")).await, last + 1);
    assert!(store.memory.shared.next_end().is_some());
}

#[tokio::test]
async fn one_process_at_a_time() {
    let folder = Folder::new("lock");
    assert!(!Embedded::is_open(&folder.file()));
    let store = embedded(&folder);
    assert!(Embedded::is_open(&folder.file()));
    let error = Embedded::open(&folder.file(), Duration::ZERO)
        .err()
        .unwrap();
    assert!(
        error.chain().contains("another process"),
        "{}",
        error.chain()
    );
    let file = folder.file();
    let waiting = std::thread::spawn(move || Embedded::open(&file, Duration::from_secs(10)));
    store.release();
    assert!(waiting.join().unwrap().is_ok());
}

#[tokio::test]
async fn what_is_no_store_is_refused() {
    let folder = Folder::new("foreign");
    std::fs::create_dir_all(folder.0.join("data")).unwrap();
    std::fs::write(
        folder.file(),
        "not a database, but long enough to be read as one",
    )
    .unwrap();
    assert!(Embedded::open(&folder.file(), Duration::ZERO).is_err());
}
