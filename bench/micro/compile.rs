//! One route changed among many: from the resource as it arrives to the next snapshot in use.

use std::sync::Arc;

use divan::{Bencher, black_box};
use lockgate::config::catalogue::Catalogue;
use lockgate::config::compile::instance::Workshop;
use lockgate::config::graph::{Change, Graph};
use lockgate::config::kind::{Key, Kind};
use lockgate::config::snapshot::Live;
use lockgate::router::Mode;
use serde_json::{Value, json};

const SIZES: [usize; 2] = [1_000, 100_000];

fn route(at: usize, version: usize) -> Change {
    let value = json!({
        "uri": format!("/api/v{version}/resource-{at}/*"),
        "host": format!("shop-{}.example.com", at % 1_000),
        "upstream_id": "u",
    });
    put(Kind::Route, &format!("r{at}"), value)
}

fn put(kind: Kind, id: &str, value: Value) -> Change {
    let id = Arc::from(id);
    Change::Put(Key { kind, id }, Arc::new(value), None)
}

fn graph(routes: usize) -> Graph {
    let names = lockgate_plugins::ALL.iter().map(|def| def.name.to_owned());
    let workshop = Workshop {
        catalogue: Catalogue::new(lockgate_plugins::ALL, names.collect()),
        shared: Default::default(),
        states: Default::default(),
        attr: Value::Null,
        metadata: Default::default(),
    };
    let mut graph = Graph::new(workshop, Mode::default(), None);
    let nodes = json!({ "nodes": { "127.0.0.1:1980": 1 } });
    let mut changes = vec![put(Kind::Upstream, "u", nodes)];
    changes.extend((0..routes).map(|at| route(at, 1)));
    let applied = graph.apply(changes);
    assert_eq!(applied.problems.len(), 0);
    graph
}

#[divan::bench(args = SIZES, sample_count = 200, sample_size = 1)]
fn one_route_changed(bencher: Bencher, routes: usize) {
    let mut graph = graph(routes);
    let live = Live::new(graph.snapshot());
    let mut turn = 0;
    bencher
        .with_inputs(|| {
            turn += 1;
            route(turn * 997 % routes, 2 + turn)
        })
        .bench_local_values(|change| {
            let applied = graph.apply(vec![change]);
            // The old one is dropped by the writer when no request holds it any more.
            applied.snapshot.map(|next| black_box(live.swap(next)))
        });
}
