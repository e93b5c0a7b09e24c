//! Limits: a decision in the table, and what the plugins add to it.
//!
//! Keys come in a scattered order, so that large tables pay for their cache misses.

use std::cell::Cell;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use divan::{Bencher, black_box};
use lockgate_limit::{Algorithm, Ask, Engine, Key, Rule};
use lockgate_plugin::{
    BuildCx, Conn, ConsumerCredential, Consumers, Ctx, Env, Handler, HeaderKey, ReqView, Shared,
    StateStore, Step, Target, Timing, Work,
};
use serde_json::{Value, json};

const KEYS: [usize; 3] = [1, 10_000, 1_000_000];

/// Prime: stepping by it visits every key, far from the last one.
const STRIDE: usize = 7_368_787;

const NOW: u64 = 1 << 57;

/// Far above what a bench uses.
const LIMIT: u64 = 1 << 24;

fn rule(algorithm: Algorithm) -> Rule {
    Rule::new(algorithm, LIMIT, Duration::from_secs(1))
        .ok()
        .unwrap_or_else(|| unreachable!("a limit above 0"))
}

fn decide(bencher: Bencher<'_, '_>, algorithm: Algorithm, count: usize) {
    let engine = Engine::default();
    let rule = rule(algorithm);
    let keys: Vec<Key> = (0..count).map(|at| engine.key(at as u64).done()).collect();
    let next = Cell::new(0);
    let now = Cell::new(NOW);
    bencher
        .with_inputs(|| {
            next.set((next.get() + STRIDE) % count);
            now.set(now.get() + 100);
            (keys[next.get()], now.get())
        })
        .bench_local_values(|(key, now)| {
            let ask = Ask {
                rule: &rule,
                key,
                cost: 1,
            };
            engine.take(black_box(&ask), now).0
        });
}

#[divan::bench(args = KEYS, sample_count = 1000, sample_size = 1000)]
fn gcra(bencher: Bencher<'_, '_>, keys: usize) {
    decide(bencher, Algorithm::Gcra { burst: LIMIT }, keys);
}

#[divan::bench(args = KEYS, sample_count = 1000, sample_size = 1000)]
fn fixed_window(bencher: Bencher<'_, '_>, keys: usize) {
    decide(bencher, Algorithm::Fixed { aligned: false }, keys);
}

#[divan::bench(args = KEYS, sample_count = 1000, sample_size = 1000)]
fn sliding_window(bencher: Bencher<'_, '_>, keys: usize) {
    decide(bencher, Algorithm::Sliding { strict: false }, keys);
}

#[divan::bench(args = [1, 3], sample_count = 1000, sample_size = 1000)]
fn all_or_nothing(bencher: Bencher<'_, '_>, limits: usize) {
    let engine = Engine::default();
    let rule = rule(Algorithm::Gcra { burst: LIMIT });
    let now = Cell::new(NOW);
    bencher
        .with_inputs(|| {
            now.set(now.get() + 100);
            now.get()
        })
        .bench_local_values(|now| {
            let asks: [Ask<'_>; 3] = std::array::from_fn(|at| Ask {
                rule: &rule,
                key: engine.key(at as u64).done(),
                cost: 1,
            });
            engine.take_all(black_box(&asks[..limits]), now).allowed
        });
}

/// A request without a head to speak of.
struct Head;

impl ReqView for Head {
    fn method(&self) -> &'static str {
        "GET"
    }
    fn target(&self) -> &[u8] {
        b"/"
    }
    fn version(&self) -> u8 {
        11
    }
    fn authority(&self) -> &[u8] {
        b"example.com"
    }
    fn header(&self, _: &HeaderKey) -> Option<&[u8]> {
        Some(b"ann")
    }
    fn each(&self, _: &HeaderKey, f: &mut dyn FnMut(&[u8])) {
        f(b"ann");
    }
    fn visit(&self, _: &mut dyn FnMut(&[u8], &[u8])) {}
}

struct Nobody;

impl Consumers for Nobody {
    fn by_key(&self, _: &str, _: &str) -> Option<&Arc<ConsumerCredential>> {
        None
    }
    fn by_name(&self, _: &str) -> Option<&Arc<ConsumerCredential>> {
        None
    }
}

impl Env for Nobody {
    fn consumers(&self) -> &dyn Consumers {
        self
    }
    fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::ready(()))
    }
}

fn build(name: &str, conf: &Value) -> Arc<dyn Handler> {
    let def = lockgate_plugins::ALL.iter().find(|def| def.name == name);
    let bx = BuildCx {
        owner: "routes/1",
        plugin: "bench",
        shared: &Shared::default(),
        states: &StateStore::default(),
        attr: &Value::Null,
        metadata: &Value::Null,
    };
    def.and_then(|def| (def.build)(conf, &bx).ok())
        .unwrap_or_else(|| unreachable!("a plugin with a valid configuration"))
}

/// The access phase for ten thousand clients in turn.
fn plugin(bencher: Bencher<'_, '_>, name: &str, conf: &Value) {
    const CLIENTS: u32 = 10_000;
    let handler = build(name, conf);
    let turn = Cell::new(0);
    let start = Instant::now();
    bencher
        .with_inputs(|| {
            turn.set(turn.get() + 1);
            let client = u32::from(Ipv4Addr::new(10, 0, 0, 0)) + turn.get() * 7_919 % CLIENTS;
            let client = IpAddr::V4(Ipv4Addr::from(client));
            let timing = Timing {
                start: start + Duration::from_nanos(u64::from(turn.get()) * 100),
                wall: SystemTime::now(),
            };
            let target = Target::parse(b"/").unwrap_or_default();
            let mut work = Work::new(Conn::default(), target, timing);
            work.client = SocketAddr::new(client, 40_000);
            work
        })
        .bench_local_refs(|work| {
            let mut cx = Ctx::new(&Head, None, work, &Nobody);
            let step = handler.access(black_box(&mut cx));
            matches!(step, Ok(Step::Next))
        });
}

#[divan::bench(sample_count = 1000, sample_size = 100)]
fn limit_count(bencher: Bencher<'_, '_>) {
    let conf = json!({"count": 1_000_000, "time_window": 60, "show_limit_quota_header": false});
    plugin(bencher, "limit-count", &conf);
}

#[divan::bench(sample_count = 1000, sample_size = 100)]
fn limit_count_with_headers(bencher: Bencher<'_, '_>) {
    let conf = json!({"count": 1_000_000, "time_window": 60});
    plugin(bencher, "limit-count", &conf);
}

#[divan::bench(sample_count = 1000, sample_size = 100)]
fn limit_count_by_header(bencher: Bencher<'_, '_>) {
    let conf = json!({"count": 1_000_000_000, "time_window": 60, "key": "http_x_user", "show_limit_quota_header": false});
    plugin(bencher, "limit-count", &conf);
}

#[divan::bench(sample_count = 1000, sample_size = 100)]
fn limit_req(bencher: Bencher<'_, '_>) {
    let conf =
        json!({"rate": 1_000_000, "burst": 1_000_000, "key": "remote_addr", "nodelay": true});
    plugin(bencher, "limit-req", &conf);
}

#[divan::bench(sample_count = 1000, sample_size = 100)]
fn limit_conn(bencher: Bencher<'_, '_>) {
    let conf = json!({"conn": 1_000, "burst": 0, "default_conn_delay": 1, "key": "remote_addr"});
    plugin(bencher, "limit-conn", &conf);
}
