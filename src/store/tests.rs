//! One suite over every store, and what only the embedded one has to keep.

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
    hands_over(&store).await;
    forgets().await;
}

#[tokio::test]
async fn embedded_as_memory() {
    let folder = Folder::new("suite");
    let store = embedded(&folder);
    suite(&store).await;
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
    let last = done(&store, Txn::delete("routes/3")).await;
    let before = store.list("").await.unwrap();
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

#[cfg(feature = "etcd")]
mod etcd {
    use std::net::TcpListener;
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::settings::{EtcdSettings, EtcdTls};

    /// A server of its own, ended with the test.
    struct Server {
        child: Child,
        url: String,
        _folder: Folder,
    }

    impl Server {
        fn start(name: &str) -> Server {
            let folder = Folder::new(name);
            std::fs::create_dir_all(&folder.0).unwrap();
            let free = || {
                TcpListener::bind("127.0.0.1:0")
                    .unwrap()
                    .local_addr()
                    .unwrap()
            };
            let (client, peer) = (free(), free());
            let (url, peer) = (format!("http://{client}"), format!("http://{peer}"));
            let child = Command::new("etcd")
                .args(["--name", "t", "--data-dir"])
                .arg(folder.0.join("data"))
                .args([
                    "--listen-client-urls",
                    &url,
                    "--advertise-client-urls",
                    &url,
                ])
                .args([
                    "--listen-peer-urls",
                    &peer,
                    "--initial-advertise-peer-urls",
                    &peer,
                ])
                .args(["--initial-cluster", &format!("t={peer}")])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("etcd is started: Debian has it in etcd-server");
            Server {
                child,
                url,
                _folder: folder,
            }
        }

        fn open(&self) -> Etcd {
            let settings = EtcdSettings {
                hosts: vec![self.url.clone()],
                prefix: "/apisix/".into(),
                ..settings(Duration::from_secs(10))
            };
            Etcd::open(&settings).unwrap_or_else(|e| panic!("{}", e.chain()))
        }
    }

    /// Of nowhere.
    fn settings(timeout: Duration) -> EtcdSettings {
        EtcdSettings {
            hosts: Vec::new(),
            prefix: "/apisix".into(),
            timeout,
            resync: Duration::from_secs(1),
            watch: Duration::from_secs(1),
            rest: Duration::from_secs(1),
            retries: 0,
            user: None,
            tls: EtcdTls::default(),
        }
    }

    impl Drop for Server {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    #[test]
    fn as_memory() {
        let server = Server::start("etcd-suite");
        let store = server.open();
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        runtime.block_on(until_it_answers(&store));
        runtime.block_on(suite(&store));
        runtime.block_on(silent_and_ahead(&store));
        runtime.block_on(large_and_compacted(&store, &server.url));
    }

    /// It was only just started.
    async fn until_it_answers(store: &Etcd) {
        let start = std::time::Instant::now();
        while let Err(error) = store.revision().await {
            assert!(
                start.elapsed() < Duration::from_secs(30),
                "{}",
                error.chain()
            );
        }
    }

    /// A watch that is told nothing goes on, one from the future ends, and what is there can be
    /// compared without its texts.
    async fn silent_and_ahead(store: &Etcd) {
        let now = store.revision().await.unwrap();
        let mut ahead = store.watch(now + 5).await.unwrap();
        let ended = ahead.next().await;
        assert!(
            matches!(ended, Err(WatchError::WentBack { after, now: at }) if after == now + 5 && at == now),
            "{ended:?}"
        );
        // Longer than the silence after which a watch counts as dead.
        let mut silent = store.watch(now).await.unwrap();
        let waited = tokio::time::timeout(Duration::from_millis(2500), silent.next()).await;
        assert!(waited.is_err(), "{waited:?}");
        let next = done(store, Txn::put("routes/silent", "{}")).await;
        assert_eq!(silent.next().await.unwrap().1, next);

        let listing = store.list("").await.unwrap();
        let versions = |listing: &Listing| -> Vec<(Arc<str>, u64)> {
            let of = |item: &Item| (Arc::clone(&item.path), item.modified);
            listing.items.iter().map(of).collect()
        };
        let now = store.versions(next).await.unwrap().unwrap();
        assert_eq!((now.items, now.revision), (versions(&listing), next));
        let then = store.versions(next - 1).await.unwrap().unwrap();
        assert_eq!(then.revision, next - 1);
        assert_eq!(then.items.len() + 1, listing.items.len());
        assert_ne!(listing.identity, 0);
        // More than etcd takes is said before it is sent.
        let ops = (0..129).map(|n| Op::Delete(format!("a/{n}")));
        let txn = Txn {
            ops: ops.collect(),
            ..Txn::default()
        };
        assert!(
            store
                .commit(txn)
                .await
                .unwrap_err()
                .chain()
                .contains("at most 128")
        );
    }

    async fn large_and_compacted(store: &Etcd, url: &str) {
        // More than one answer holds, all of one revision.
        for part in 0..12 {
            let mut txn = Txn::default();
            for at in 0..100 {
                txn.ops.push(Op::Put {
                    path: format!("many/{part}-{at}"),
                    text: "{}".into(),
                    ttl: None,
                });
            }
            done(store, txn).await;
        }
        let listing = store.list("many/").await.unwrap();
        assert_eq!(listing.items.len(), 1200);
        assert!(listing.items.is_sorted_by(|a, b| a.path < b.path));
        // What marks a folder is no item, nor is what is beside the prefix.
        let mut other = etcd_client::Client::connect([url], None).await.unwrap();
        other.put("/apisix/many/", "init_dir", None).await.unwrap();
        other.put("/apisixx/many/1", "{}", None).await.unwrap();
        assert_eq!(store.list("many/").await.unwrap().items.len(), 1200);
        // What was forgotten is said to be.
        let now = store.revision().await.unwrap();
        let at = i64::try_from(now).unwrap();
        other.compact(at, None).await.unwrap();
        let mut watch = store.watch(1).await.unwrap();
        assert!(matches!(watch.next().await, Err(WatchError::Forgotten(1))));
        // A folder's mark is no change; what others write is.
        let mut watch = store.watch(now).await.unwrap();
        other
            .put("/apisix/routes/", "init_dir", None)
            .await
            .unwrap();
        other.put("/apisix/routes/x", "{}", None).await.unwrap();
        let mut told = Vec::new();
        while told.is_empty() {
            told = watch.next().await.unwrap().0;
        }
        assert!(matches!(&told[..], [Event::Put(item)] if &*item.path == "routes/x"));
        // Of a revision that is forgotten what is there now is told.
        let versions = store.versions(now - 1).await.unwrap().unwrap();
        assert_eq!(versions.revision, store.revision().await.unwrap());
    }

    #[tokio::test]
    async fn nobody_there() {
        let settings = EtcdSettings {
            hosts: vec!["http://127.0.0.1:1".into(), "http://127.0.0.1:2".into()],
            ..settings(Duration::from_millis(300))
        };
        let store = Etcd::open(&settings).unwrap();
        let error = store.list("").await.unwrap_err().chain();
        let start = "cannot read etcd at http://127.0.0.1:1, http://127.0.0.1:2: ";
        assert!(error.starts_with(start), "{error}");
        assert!(store.commit(Txn::delete("routes/1")).await.is_err());
        assert!(store.watch(1).await.is_err());
    }
}
