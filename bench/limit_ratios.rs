//! What a limit in this gateway's memory costs, beside the ways a Rust program usually keeps one: as ratios
//! of what ran in turns on the same machine, for `make limit-bench`.
//!
//! Prints one JSON object; with `quick` as its word it does little, to see that it works. Times are wall time of a decision, the least of the rounds: what disturbs a round only
//! adds to it. Keys come in a scattered order. Our table and the map are told the time, as a request knows it;
//! governor reads its own clock, as it is used.
#![allow(clippy::print_stdout)] // A program for the command line.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dashmap::DashMap;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use lockgate_limit::{Algorithm, Ask, Engine, Rule};
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How much is done.
#[derive(Clone, Copy)]
struct Extent {
    /// Decisions of one round, and rounds of each, in turns.
    decisions: usize,
    rounds: usize,
    /// Keys that do not fit the caches.
    many: usize,
    /// Virtual time of the overload.
    seconds: u64,
}

const WHOLE: Extent = Extent {
    decisions: 400_000,
    rounds: 15,
    many: 1_000_000,
    seconds: 10,
};
const QUICK: Extent = Extent {
    decisions: 1_000,
    rounds: 1,
    many: 20_000,
    seconds: 1,
};
/// Far above what a run uses, so that every decision is the dear one: it writes.
const LIMIT: u32 = 1 << 24;
const NOW: u64 = 1 << 57;
/// Between two requests.
const STEP: u64 = 100;
/// Prime: stepping by it visits every key, far from the last one.
const STRIDE: usize = 7_368_787;

/// A way to keep a limit for each key.
trait Keeper: Sync {
    fn take(&self, key: u64, now: u64) -> bool;
}

/// The table of `lockgate-limit`; a key is hashed as a plugin does it.
struct Table {
    engine: Engine,
    rule: Rule,
    scope: u64,
}

impl Keeper for Table {
    fn take(&self, key: u64, now: u64) -> bool {
        let key = self.engine.key(self.scope).bytes(&key.to_le_bytes()).done();
        let (rule, cost) = (&self.rule, 1);
        self.engine.take(&Ask { rule, key, cost }, now).0.allowed
    }
}

/// A concurrent map with the same algorithm in an atomic word.
struct Map(DashMap<u64, AtomicU64>);

impl Keeper for Map {
    fn take(&self, key: u64, now: u64) -> bool {
        const SECOND: u64 = 1_000_000_000;
        let interval = SECOND / u64::from(LIMIT);
        let word = match self.0.get(&key) {
            Some(word) => word,
            None => self.0.entry(key).or_default().downgrade(),
        };
        let mut due = word.load(Ordering::Acquire);
        loop {
            let next = due.max(now) + interval;
            if next > now + SECOND {
                return false;
            }
            match word.compare_exchange_weak(due, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(other) => due = other,
            }
        }
    }
}

struct Governor(DefaultKeyedRateLimiter<u64>);

impl Keeper for Governor {
    fn take(&self, key: u64, _: u64) -> bool {
        self.0.check_key(&key).is_ok()
    }
}

fn main() {
    let quick = std::env::args().nth(1).is_some_and(|word| word == "quick");
    let extent = if quick { QUICK } else { WHOLE };
    let [ours, map, governor] = beside(10_000, extent);
    let [ours_many, map_many, governor_many] = beside(extent.many, extent);
    let [one, two] = threads(extent);
    let [single, triple] = dimensions(extent);
    let out = json!({
        "B1": { "table": ours, "map": map, "governor": governor },
        "B2": { "table": ours_many, "map": map_many, "governor": governor_many },
        "B3": { "one": one, "two": two },
        "B4": { "one": single, "three": triple },
        "B5": [bytes(50), bytes(95)],
        "B11": overload(extent.seconds),
    });
    println!("{out}");
}

fn rule(algorithm: Algorithm, limit: u64) -> Rule {
    Rule::new(algorithm, limit, Duration::from_secs(1))
        .ok()
        .unwrap_or_else(|| unreachable!("a limit above 0"))
}

fn table() -> Table {
    let engine = Engine::with_bytes(4 * Engine::DEFAULT_BYTES);
    let (limit, scope) = (u64::from(LIMIT), engine.scope(&["bench"]));
    Table {
        engine,
        rule: rule(Algorithm::Gcra { burst: limit }, limit),
        scope,
    }
}

/// Nanoseconds of a decision by our table, the map and governor, with so many keys that are known.
fn beside(keys: usize, extent: Extent) -> [f64; 3] {
    let rate = NonZeroU32::new(LIMIT).unwrap_or(NonZeroU32::MIN);
    let quota = Quota::per_second(rate).allow_burst(rate);
    let (table, map) = (table(), Map(DashMap::new()));
    let governor = Governor(RateLimiter::keyed(quota));
    let keepers: [&dyn Keeper; 3] = [&table, &map, &governor];
    let mut clock = NOW;
    for keeper in keepers {
        for key in 0..keys as u64 {
            keeper.take(key, clock);
        }
    }
    let mut least = [f64::MAX; 3];
    for _ in 0..extent.rounds {
        for (keeper, least) in keepers.iter().zip(&mut least) {
            *least = least.min(round(*keeper, keys, extent.decisions, &mut clock));
        }
    }
    least
}

/// Nanoseconds of a decision in one round.
fn round(keeper: &dyn Keeper, keys: usize, decisions: usize, clock: &mut u64) -> f64 {
    let (mut at, start) = (usize::try_from(*clock).unwrap_or(0) % keys, Instant::now());
    for _ in 0..decisions {
        at = (at + STRIDE) % keys;
        *clock += STEP;
        black_box(keeper.take(black_box(at as u64), *clock));
    }
    per_decision(start.elapsed(), decisions)
}

fn per_decision(took: Duration, count: usize) -> f64 {
    took.as_nanos() as f64 / count as f64
}

/// Millions of decisions a second by one thread, and by two with keys of their own.
fn threads(extent: Extent) -> [f64; 2] {
    let table = table();
    let mut best = [0.0_f64; 2];
    for _ in 0..extent.rounds {
        for (count, best) in [1_usize, 2].into_iter().zip(&mut best) {
            let (barrier, start) = (Barrier::new(count), Instant::now());
            std::thread::scope(|scope| {
                for thread in 0..count {
                    let (table, barrier) = (&table, &barrier);
                    scope.spawn(move || {
                        let first = thread as u64 * 10_000;
                        barrier.wait();
                        let mut at = 0;
                        for step in 0..2 * extent.decisions {
                            at = (at + STRIDE) % 10_000;
                            let now = NOW + step as u64 * STEP;
                            black_box(table.take(first + at as u64, now));
                        }
                    });
                }
            });
            let made = (2 * extent.decisions * count) as f64;
            *best = best.max(made / start.elapsed().as_secs_f64() / 1e6);
        }
    }
    best
}

/// Nanoseconds for a request with one limit, and for one with three.
fn dimensions(extent: Extent) -> [f64; 2] {
    let table = table();
    let mut least = [f64::MAX; 2];
    let mut now = NOW;
    for _ in 0..extent.rounds {
        for (limits, least) in [1_usize, 3].into_iter().zip(&mut least) {
            let start = Instant::now();
            for _ in 0..extent.decisions {
                now += STEP;
                let asks: [Ask<'_>; 3] = std::array::from_fn(|at| Ask {
                    rule: &table.rule,
                    key: table.engine.key(at as u64).done(),
                    cost: 1,
                });
                black_box(
                    table
                        .engine
                        .take_all(black_box(&asks[..limits]), now)
                        .allowed,
                );
            }
            *least = least.min(per_decision(start.elapsed(), extent.decisions));
        }
    }
    least
}

/// Bytes for each key that counts, when so many of a hundred words are asked for.
fn bytes(percent: usize) -> Value {
    let size = Engine::DEFAULT_BYTES;
    let engine = Engine::with_bytes(size);
    let rule = rule(Algorithm::Fixed { aligned: false }, u64::from(LIMIT));
    let room = engine.stats(NOW).room;
    for key in 0..(room * percent / 100) as u64 {
        let key = engine.key(key).done();
        let (rule, cost) = (&rule, 1);
        black_box(engine.take(&Ask { rule, key, cost }, NOW).0.allowed);
    }
    let live = engine.stats(NOW).live.max(1);
    json!({ "percent": percent, "room": room, "live": live, "bytes": size as f64 / live as f64 })
}

/// Twice as many keys count as there is room for: how many requests of those that keep to their limit are
/// refused, and how much those get that do not.
fn overload(seconds: u64) -> Value {
    const ALLOWED: u64 = 100;
    const MS: u64 = 1_000_000;
    let engine = Engine::with_bytes(64 << 10);
    let rule = rule(Algorithm::Fixed { aligned: false }, ALLOWED);
    let room = engine.stats(NOW).room as u64;
    let heavy = room / 32;
    let (mut asked, mut refused, mut heavy_passed) = (0_u64, 0_u64, 0_u64);
    for ms in 0..seconds * 1_000 {
        let now = NOW + ms * MS;
        for number in 0..2 * room + heavy {
            // From half of what is allowed to all but a twentieth; the heavy ones five times as much.
            let is_heavy = number >= 2 * room;
            let rate = if is_heavy {
                5 * ALLOWED
            } else {
                ALLOWED / 2 + number % (ALLOWED * 9 / 20)
            };
            // Evenly, each with a beginning of its own.
            let shift = number.wrapping_mul(0x9E37_79B9) % 1_000;
            let due = |ms: u64| (ms + shift) * rate / 1_000;
            if due(ms + 1) == due(ms) {
                continue;
            }
            let key = engine.key(number).done();
            let (rule, cost) = (&rule, 1);
            let passed = engine.take(&Ask { rule, key, cost }, now).0.allowed;
            if is_heavy {
                heavy_passed += u64::from(passed);
            } else {
                asked += 1;
                refused += u64::from(!passed);
            }
        }
    }
    json!({
        "keys": 2 * room + heavy, "room": room, "asked": asked, "refused": refused,
        // Of what the heavy ones may have; windows of their own begin with their requests.
        "heavy": heavy_passed as f64 / (heavy * ALLOWED * seconds) as f64,
    })
}
