//! P10: however asks and answers are lost, late, repeated, however gateways die and windows end, no more
//! pass than the bound says.

use std::time::Duration;

use super::sim::{Faults, MS, Outcome, Random, SECOND, START, Sim};
use crate::{Law, Nanos, Terms};

/// Schedules tried; `LOCKGATE_SCHEDULES=20000` for a night.
fn schedules() -> u64 {
    let set = std::env::var("LOCKGATE_SCHEDULES");
    set.ok().and_then(|n| n.parse().ok()).unwrap_or(40)
}

fn faults(random: &mut Random) -> Faults {
    let mut some = |most: f64| match random.below(3) {
        0 => 0.0,
        _ => random.part() * most,
    };
    Faults {
        loss: some(0.3),
        twice: some(0.3),
        jitter: some(40.0 * MS as f64) as Nanos,
        crash: some(0.002),
        outage: some(1.0) > 0.5,
    }
}

/// Bursts and silences, some gateways more than others.
fn requests(random: &mut Random, nodes: u64, length: Nanos, most: u64) -> Vec<(Nanos, usize)> {
    let mut all = Vec::new();
    let mut now = START;
    while now < START + length && all.len() < 6_000 {
        let burst = 1 + random.below(most);
        // Now and then all at one moment.
        let gap = match random.below(2) {
            0 => 1,
            _ => 1 + random.below(length / 2_000),
        };
        let nobody = random.below(nodes + 2);
        for _ in 0..burst {
            now += random.below(gap);
            let node = if nobody < nodes {
                nobody
            } else {
                random.below(nodes)
            };
            all.push((now, node as usize));
        }
        now += random.below(length / 60);
    }
    all
}

fn fixed_window_holds(out: &Outcome, most: u64, why: &str) {
    for (end, begin) in &out.windows {
        let inside = |at: &&Nanos| *begin <= **at && **at < *end;
        let admitted = out.admitted.iter().filter(inside).count() as u64;
        assert!(admitted <= most, "{why}: {admitted} of {most}");
    }
}

#[test]
fn a_fixed_window_is_never_exceeded_but_by_what_is_allowed() {
    for seed in 0..schedules() {
        let mut random = Random(seed);
        let window = Duration::from_millis(500 + random.below(20_000));
        let limit = 1 + random.below(2_000);
        let law = Law::Fixed { limit, window };
        let nodes = 1 + random.below(8);
        let slack = [0.0, 0.0, 0.05][random.below(3) as usize];
        let terms = Terms::new(law, nodes, slack).unwrap();
        let over = (limit as f64 * slack).floor() as u64 / nodes;
        let length = window.as_nanos() as u64 * 4;
        let asked = requests(&mut random, nodes, length, 400);
        let faults = faults(&mut random);
        let mut sim = Sim::new(terms, nodes as usize, MS, seed, faults);
        sim.run(&asked, START + length + 10 * SECOND);
        sim.balanced();
        // One that died may have let some pass that nobody heard of.
        let gateways = nodes + sim.out.crashes;
        let why = format!("seed {seed}, {limit} and {over} for each of {gateways}");
        fixed_window_holds(&sim.out, limit + gateways * over, &why);
        assert!(!sim.out.admitted.is_empty() || faults.outage || faults.loss > 0.0);
    }
}

#[test]
fn a_bucket_is_exceeded_by_what_may_be_held() {
    for seed in 0..schedules() {
        let mut random = Random(seed ^ 0xB0);
        let holds = 20 + random.below(2_000);
        let interval_us = 500.0 + random.below(50_000) as f64;
        let law = Law::Bucket {
            interval_us,
            holds: holds as f64,
        };
        let nodes = 1 + random.below(8);
        let terms = Terms::new(law, nodes, 0.1).unwrap();
        let most = holds as f64 + (holds as f64 * 0.1).floor().max(1.0);
        let length = (interval_us * holds as f64 * 1_000.0 * 3.0) as Nanos;
        let asked = requests(&mut random, nodes, length, 2 * holds);
        let faults = faults(&mut random);
        let mut sim = Sim::new(terms, nodes as usize, MS, seed, faults);
        sim.run(&asked, START + length + 10 * SECOND);
        sim.balanced();
        // As a bucket that holds so much more sees it: each interval at once.
        let mut due = 0.0f64;
        for at in &sim.out.admitted {
            let now = *at as f64 / 1_000.0;
            due = due.max(now) + interval_us;
            // Microseconds are what the store counts in.
            assert!(
                due <= now + most * interval_us + 2.0,
                "seed {seed}: {} of {most}",
                (due - now) / interval_us
            );
        }
    }
}

#[test]
fn a_sliding_window_is_exceeded_by_what_may_be_held() {
    for seed in 0..schedules() {
        let mut random = Random(seed ^ 0x51);
        let window = Duration::from_millis(1_000 + random.below(20_000));
        let limit = 20 + random.below(2_000);
        let law = Law::Sliding { limit, window };
        let nodes = 1 + random.below(8);
        let terms = Terms::new(law, nodes, 0.05).unwrap();
        let most = limit + ((limit as f64 * 0.05).floor() as u64).max(1);
        let length = window.as_nanos() as u64 * 4;
        let asked = requests(&mut random, nodes, length, 2 * limit);
        let faults = faults(&mut random);
        let mut sim = Sim::new(terms, nodes as usize, MS, seed, faults);
        sim.run(&asked, START + length + 10 * SECOND);
        sim.balanced();
        let mut counts = std::collections::BTreeMap::new();
        for at in &sim.out.admitted {
            *counts
                .entry(at / 1_000 / window.as_micros() as u64)
                .or_insert(0u64) += 1;
        }
        for admitted in counts.values() {
            assert!(*admitted <= most, "seed {seed}: {admitted} of {most}");
        }
    }
}
