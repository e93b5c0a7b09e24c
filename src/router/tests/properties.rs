use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;

const MODES: [Mode; 3] = [Mode::Uri, Mode::HostUri, Mode::UriWithParameter];

/// Few different pieces, so that patterns collide, nest and share prefixes.
fn pattern() -> impl Strategy<Value = Arc<str>> {
    let segment = select(vec!["a", "b", "ab", "abc", "", "*", "*x", ":y", ":z"]);
    let end = select(vec!["", "", "*", "/*", "a*"]);
    (prop::collection::vec(segment, 0..4), end)
        .prop_map(|(segments, end)| format!("/{}{end}", segments.join("/")).into())
}

fn host() -> impl Strategy<Value = Arc<str>> {
    select(vec![
        "x", "a.x", "b.a.x", "*.x", "*x", "*.a.x", "*", "a.x:1", "*.x:1", "ax",
    ])
    .prop_map(Arc::from)
}

fn entry() -> impl Strategy<Value = Entry<()>> {
    let uris = prop::collection::vec(pattern(), 1..3);
    let hosts = prop::collection::vec(host(), 0..3);
    let methods = subsequence(vec!["GET", "POST"], 0..=2);
    let nets = subsequence(vec!["10.0.0.0/8", "::1/128"], 0..=1);
    (
        select(vec!["r", "s", "t", "u"]),
        0..3_u64,
        0..2_i64,
        uris,
        hosts,
        methods,
        nets,
    )
        .prop_map(|(id, order, priority, uris, hosts, methods, nets)| Entry {
            order,
            priority,
            uris: uris.into_boxed_slice(),
            hosts: hosts.into_boxed_slice(),
            methods: methods
                .iter()
                .try_fold(MethodSet::default(), |set, m| set.with(m))
                .unwrap(),
            remote_addrs: nets.iter().map(|net| net.parse().unwrap()).collect(),
            ..Entry::new(id, ())
        })
}

/// Ids are made unique, as they are in a configuration.
fn entries(most: usize) -> impl Strategy<Value = Vec<Arc<Entry<()>>>> {
    prop::collection::vec(entry(), 0..most).prop_map(|entries| {
        let named = entries.into_iter().enumerate().map(|(at, entry)| {
            let id = format!("{}{at}", entry.id);
            Arc::new(Entry {
                id: id.into(),
                ..entry
            })
        });
        named.collect()
    })
}

fn request() -> impl Strategy<Value = Request> {
    let segments = prop::collection::vec(select(vec!["a", "b", "ab", "abc", "", "q"]), 0..5);
    let host = select(vec![
        "x", "a.x", "b.a.x", "c.b.a.x", "ax", "q", "A.x:1", "b.x:1", "x:2",
    ]);
    let method = select(vec!["GET", "POST", "BREW"]);
    let remote = select(vec!["10.1.1.1", "192.0.2.1", "::1"]);
    (segments, host, method, remote).prop_map(|(segments, host, method, remote)| {
        Request::new(&format!("{method} {host}/{}", segments.join("/"))).from(remote)
    })
}

fn build(mode: Mode, entries: &[Arc<Entry<()>>]) -> Router<()> {
    let mut router = Router::new(mode);
    for entry in entries {
        router.insert(Arc::clone(entry));
    }
    router
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn finds_what_the_model_finds(
        mode in select(MODES.to_vec()),
        entries in entries(12),
        requests in prop::collection::vec(request(), 1..12),
    ) {
        let router = build(mode, &entries);
        for request in requests {
            let seen = router.find(&request.input()).map(|found| {
                let params = found.params.iter().map(|(n, v)| (n.to_string(), v.to_string()));
                let host = found.host.map(|host| host.to_string());
                (found.entry.id.to_string(), found.uri.to_string(), host, params.collect())
            });
            prop_assert_eq!(seen, model::find(mode, &entries, &request), "{:?}", request);
        }
    }

    #[test]
    fn changes_give_what_a_build_gives(
        mode in select(MODES.to_vec()),
        entries in entries(16),
        steps in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..60),
    ) {
        let mut router = Router::new(mode);
        let mut present: Vec<usize> = Vec::new();
        let mut kept = Vec::new();
        for (at, keep) in steps {
            if entries.is_empty() { break; }
            let at = at.index(entries.len());
            if keep {
                kept.push((router.clone(), router.dump()));
            }
            if let Some(place) = present.iter().position(|p| *p == at) {
                prop_assert!(router.remove(&entries[at]));
                present.swap_remove(place);
            } else {
                prop_assert!(!router.remove(&entries[at]));
                router.insert(Arc::clone(&entries[at]));
                present.push(at);
            }
            let fresh: Vec<_> = present.iter().map(|at| Arc::clone(&entries[*at])).collect();
            prop_assert_eq!(router.dump(), build(mode, &fresh).dump());
        }
        prop_assert_eq!(router.is_empty(), present.is_empty());
        for (clone, dump) in kept {
            prop_assert_eq!(clone.dump(), dump);
        }
    }
}
