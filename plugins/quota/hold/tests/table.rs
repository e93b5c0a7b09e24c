//! What leases cost and save, beside the table of the design (`docs/adr/0025`): loads and patterns in
//! virtual time, without faults.

use std::time::Duration;

use super::sim::{Faults, MS, Random, SECOND, START, Sim};
use crate::{Law, Nanos, Terms};

#[derive(Clone, Copy, Debug)]
enum Pattern {
    Steady,
    /// 70 % come to one gateway.
    Skew70,
    /// All come to one, another each seventh of a window.
    Rotate,
    /// All come in the first twentieth of a window.
    SyncBurst,
    /// Twenty bursts, half of them at one gateway.
    MicroBurst,
}

struct Row {
    limit: u64,
    seconds: u64,
    nodes: u64,
    load: f64,
    pattern: Pattern,
}

/// What came of it: requests for each ask, and parts of the limit or of the requests, in hundredths.
#[derive(Debug)]
struct Measured {
    saved: f64,
    over: f64,
    refused: f64,
    waited: f64,
}

const WINDOWS: u64 = 3;

fn requests(row: &Row, random: &mut Random, windows: u64) -> Vec<(Nanos, usize)> {
    let window = row.seconds * SECOND;
    let many = (row.limit as f64 * row.load) as u64;
    let mut all = Vec::new();
    for nth in 0..windows {
        let begin = START + nth * window;
        for n in 0..many {
            let (at, node) = match row.pattern {
                Pattern::Steady => (random.below(window), random.below(row.nodes)),
                Pattern::Skew70 => {
                    let first = random.chance(0.7);
                    let other = random.below(row.nodes);
                    (random.below(window), if first { 0 } else { other })
                }
                Pattern::Rotate => {
                    let at = random.below(window);
                    (at, (begin - START + at) / (window / 7) % row.nodes)
                }
                Pattern::SyncBurst => (random.below(window / 20), random.below(row.nodes)),
                Pattern::MicroBurst => {
                    let burst = n % 20;
                    let at = burst * (window / 20) + random.below(window / 100);
                    let all = random.below(row.nodes);
                    (at, if burst % 2 == 0 { 0 } else { all })
                }
            };
            all.push((begin + at, node as usize));
        }
    }
    all.sort_unstable();
    all
}

fn measure(row: &Row, slack: f64) -> Measured {
    let law = Law::Fixed {
        limit: row.limit,
        window: Duration::from_secs(row.seconds),
    };
    let terms = Terms::new(law, row.nodes, slack).unwrap();
    let mut random = Random(row.limit ^ row.nodes);
    let asked = requests(row, &mut random, WINDOWS);
    let mut sim = Sim::new(terms, row.nodes as usize, MS, 7, Faults::default());
    sim.run(&asked, START + WINDOWS * row.seconds * SECOND);
    sim.balanced();
    let out = &sim.out;
    assert_eq!(out.away, 0, "no answer is lost here");
    let limit = row.limit as f64;
    let (mut over, mut refused, mut windows) = (0.0f64, 0.0, 0.0);
    for (end, begin) in &out.windows {
        let inside = |all: &[Nanos]| {
            let inside = all.iter().filter(|at| (*begin..*end).contains(at));
            inside.count() as f64
        };
        let admitted = inside(&out.admitted);
        over = over.max((admitted - limit) / limit);
        refused += inside(&out.refused).min((limit - admitted).max(0.0)) / limit;
        windows += 1.0;
    }
    Measured {
        saved: out.requests as f64 / out.asks as f64,
        over: over.max(0.0) * 100.0,
        refused: refused / windows * 100.0,
        waited: out.waited as f64 / out.requests as f64 * 100.0,
    }
}

fn row(limit: u64, nodes: u64, load: f64, pattern: Pattern) -> Row {
    Row {
        limit,
        seconds: 60,
        nodes,
        load,
        pattern,
    }
}

/// The design's figures, from a simulator of its own, and ours: requests for each ask, and what was refused
/// though there was room, in hundredths of the limit.
struct Figures {
    design: (f64, f64),
    ours: (f64, f64),
}

fn check(row: &Row, figures: &Figures) {
    let measured = measure(row, 0.0);
    let (saved, refused) = figures.ours;
    let pattern = row.pattern;
    let all = format!("{pattern:?}, {}: {measured:?}", row.load);
    assert!(measured.over <= 0.0, "{all}");
    assert!((measured.saved / saved - 1.0).abs() <= 0.2, "{all}");
    assert!(measured.refused <= refused * 1.2 + 0.05, "{all}");
    assert!(measured.waited <= 3.0, "{all}");
    // Where fewer asks are saved than in the design, less is refused for it.
    let worse = measured.saved < figures.design.0 * 0.8;
    assert!(
        !worse || measured.refused < figures.design.1 / 10.0,
        "{all}"
    );
}

#[test]
fn saves_what_the_design_says() {
    use Pattern::{MicroBurst, Rotate, Skew70, Steady, SyncBurst};
    let figures = |design, ours| Figures { design, ours };
    for (row, figures) in [
        (
            row(10_000, 8, 1.2, Steady),
            figures((83.0, 0.0), (75.0, 0.0)),
        ),
        (
            row(10_000, 8, 1.2, Skew70),
            figures((60.0, 0.02), (62.0, 0.2)),
        ),
        (
            row(10_000, 8, 1.2, Rotate),
            figures((115.0, 3.91), (78.0, 0.03)),
        ),
        (
            row(10_000, 8, 1.2, SyncBurst),
            figures((88.0, 0.0), (88.0, 0.0)),
        ),
        (
            row(10_000, 8, 1.2, MicroBurst),
            figures((82.0, 0.0), (72.0, 0.0)),
        ),
        (
            row(10_000, 8, 5.0, Steady),
            figures((351.0, 0.0), (321.0, 0.0)),
        ),
        (
            row(10_000, 8, 5.0, Rotate),
            figures((517.0, 0.78), (610.0, 0.0)),
        ),
        (
            row(10_000, 64, 1.2, Skew70),
            figures((9.0, 0.37), (10.0, 0.47)),
        ),
    ] {
        check(&row, &figures);
    }
}

#[test]
fn what_may_be_let_pass_ahead_is_what_a_window_is_exceeded_by() {
    for pattern in [Pattern::Steady, Pattern::SyncBurst] {
        let measured = measure(&row(10_000, 8, 5.0, pattern), 0.01);
        assert!(measured.over <= 1.0, "{pattern:?}: {measured:?}");
        assert!(measured.saved >= 280.0, "{pattern:?}: {measured:?}");
    }
}

#[test]
fn a_limit_that_is_not_reached_is_hardly_asked_for() {
    for pattern in [Pattern::Steady, Pattern::Rotate, Pattern::MicroBurst] {
        let measured = measure(&row(10_000, 8, 0.5, pattern), 0.0);
        assert!(measured.saved >= 110.0, "{pattern:?}: {measured:?}");
        assert!(measured.refused <= 0.0, "{pattern:?}: {measured:?}");
    }
}

/// Requests for each ask, and what was refused of them, in hundredths, in the time of one window.
fn without_windows(law: Law, slack: f64, row: &Row) -> (f64, f64) {
    let terms = Terms::new(law, row.nodes, slack).unwrap();
    let asked = requests(row, &mut Random(7), 1);
    let mut sim = Sim::new(terms, row.nodes as usize, MS, 7, Faults::default());
    sim.run(&asked, START + row.seconds * SECOND);
    sim.balanced();
    let out = &sim.out;
    assert_eq!(out.away, 0, "no answer is lost here");
    let requests = out.requests as f64;
    let refused = out.refused.len() as f64 / requests * 100.0;
    (requests / out.asks as f64, refused)
}

#[test]
fn sliding_windows_and_buckets_share_what_may_be_held() {
    use Pattern::{MicroBurst, Rotate, Steady};
    let sliding = Law::Sliding {
        limit: 8_000,
        window: Duration::from_secs(60),
    };
    let bucket = Law::Bucket {
        interval_us: 1_000.0,
        holds: 6_000.0,
    };
    let check = |law, limit, load, pattern, least: f64| {
        let row = row(limit, 8, load, pattern);
        let (saved, refused) = without_windows(law, 0.1, &row);
        let all = format!("{law}, {load} {pattern:?}: {saved}, {refused} %");
        assert!(saved >= least * 0.8, "{all}");
        // Below the limit nobody is refused, above it not much more than what is above it.
        let above = (load - 1.0f64).max(0.0) / load * 100.0;
        assert!(refused <= above + 1.0, "{all}");
    };
    for pattern in [Steady, Rotate, MicroBurst] {
        check(sliding, 8_000, 0.5, pattern, 63.0);
        check(bucket, 60_000, 0.5, pattern, 45.0);
    }
    check(sliding, 8_000, 1.2, Steady, 48.0);
    check(bucket, 60_000, 1.2, Steady, 70.0);
}
