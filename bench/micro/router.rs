//! The router with many routes: lookups, one change, and memory.
//!
//! The table: a hundred routes per host, one pattern each, half exact and half prefix. Requests
//! come in a scattered order, so that large tables pay for their cache misses.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use divan::{Bencher, black_box};
use lockgate::router::{Entry, MatchInput, Mode, Router};
use lockgate_plugin::{Var, VarSource, VarValue};

const SIZES: [usize; 3] = [1_000, 10_000, 100_000];

const ROUTES_PER_HOST: usize = 100;

/// Prime and larger than any table: stepping by it visits every request, far from the last one.
const STRIDE: usize = 7_368_787;

type Value = u32;

struct NoVars;

impl VarSource for NoVars {
    fn var<'b>(&'b self, _: &'b Var) -> Option<VarValue<'b>> {
        None
    }
}

fn host(at: usize) -> String {
    format!("shop-{}.example.com", at / ROUTES_PER_HOST)
}

fn path(at: usize) -> String {
    format!("/api/v{}/resource-{at}", at % 3)
}

fn entry(at: usize, host: &Arc<str>) -> Arc<Entry<Value>> {
    let uri = if at.is_multiple_of(2) {
        path(at)
    } else {
        path(at) + "/*"
    };
    Arc::new(Entry {
        order: at as u64,
        uris: Box::new([uri.into()]),
        hosts: Box::new([Arc::clone(host)]),
        ..Entry::new(&at.to_string(), 0)
    })
}

fn entries(count: usize) -> Vec<Arc<Entry<Value>>> {
    let mut hosts: Vec<Arc<str>> = Vec::new();
    (0..count)
        .map(|at| {
            if at.is_multiple_of(ROUTES_PER_HOST) {
                hosts.push(host(at).into());
            }
            entry(at, &hosts[at / ROUTES_PER_HOST])
        })
        .collect()
}

fn build(mode: Mode, entries: &[Arc<Entry<Value>>]) -> Router<Value> {
    let mut router = Router::new(mode);
    for entry in entries {
        router.insert(Arc::clone(entry));
    }
    router
}

/// Looks up `hot` of the requests that the table answers, each as far as possible from the last.
fn find(bencher: Bencher<'_, '_>, mode: Mode, count: usize, hot: usize) {
    let router = build(mode, &entries(count));
    let next = Cell::new(0);
    let spread = count / hot;
    // Made before the clock starts: a real request is in the cache, for it has just been parsed.
    let request = || {
        next.set((next.get() + STRIDE) % hot);
        let at = next.get() * spread;
        let path = if at.is_multiple_of(2) {
            path(at)
        } else {
            path(at) + "/7/details"
        };
        (host(at), path)
    };
    bencher
        .with_inputs(request)
        .bench_local_refs(|(host, path)| {
            let input = MatchInput {
                path,
                host,
                http_host: host.as_bytes(),
                method: "GET",
                remote: IpAddr::V4(Ipv4Addr::LOCALHOST),
                vars: &NoVars,
            };
            // Read too: whoever looks a route up wants what is in it.
            router
                .find(black_box(&input))
                .map(|found| found.entry.value)
        });
}

/// Every route is asked for as often as every other: all of a large table comes from memory.
#[divan::bench(args = SIZES, sample_count = 1000, sample_size = 100)]
fn find_by_host_evenly(bencher: Bencher<'_, '_>, count: usize) {
    find(bencher, Mode::HostUri, count, count);
}

/// A thousand routes get the traffic, however many there are.
#[divan::bench(args = SIZES, sample_count = 1000, sample_size = 100)]
fn find_by_host_hot(bencher: Bencher<'_, '_>, count: usize) {
    find(bencher, Mode::HostUri, count, 1_000);
}

#[divan::bench(args = SIZES, sample_count = 1000, sample_size = 100)]
fn find_by_path_hot(bencher: Bencher<'_, '_>, count: usize) {
    find(bencher, Mode::Uri, count, 1_000);
}

/// What one changed route costs while the old snapshot is in use.
#[divan::bench(args = SIZES, sample_count = 1000, sample_size = 10)]
fn snapshot_and_insert_one(bencher: Bencher<'_, '_>, count: usize) {
    let router = build(Mode::HostUri, &entries(count));
    let next = Cell::new(0);
    bencher
        .with_inputs(|| {
            next.set((next.get() + STRIDE) % count);
            let host = host(next.get()).into();
            let uri = Box::new([format!("/api/v1/new-{}", next.get()).into()]);
            let new = Entry {
                uris: uri,
                hosts: Box::new([host]),
                ..Entry::new("new", 0)
            };
            (router.clone(), Arc::new(new))
        })
        .bench_local_values(|(mut snapshot, new)| {
            snapshot.insert(new);
            snapshot
        });
}

/// A table from nothing. `max alloc` divided by the number of routes is what the router takes per
/// route; the entries themselves are made before.
#[divan::bench(args = SIZES, sample_count = 10, sample_size = 1)]
fn build_table(bencher: Bencher<'_, '_>, count: usize) {
    let entries = entries(count);
    bencher.bench_local(|| build(Mode::HostUri, &entries));
}

/// The entries of a table alone, for the same division.
#[divan::bench(args = SIZES, sample_count = 10, sample_size = 1)]
fn build_entries(bencher: Bencher<'_, '_>, count: usize) {
    bencher.bench_local(|| entries(count));
}
