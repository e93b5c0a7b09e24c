use super::*;

fn fixed(limit: u64, seconds: u64) -> Law {
    let window = Duration::from_secs(seconds);
    Law::Fixed { limit, window }
}

fn sliding(limit: u64, seconds: u64) -> Law {
    let window = Duration::from_secs(seconds);
    Law::Sliding { limit, window }
}

fn bucket(rate: f64, holds: f64) -> Law {
    Law::Bucket {
        interval_us: 1e6 / rate,
        holds,
    }
}

fn situation(law: Law, nodes: u64, keeper: Keeper) -> Situation {
    Situation {
        law,
        nodes: Some(nodes),
        keeper: Some(keeper),
        slack: None,
        expected: None,
        capacity: None,
    }
}

const REDIS: Keeper = Keeper::Redis;
const OWNER: Keeper = Keeper::Owner;

#[test]
fn each_rule_of_the_formula() {
    let check = |law, nodes, keeper, mode, why: &str| {
        let choice = situation(law, nodes, keeper).choose();
        assert_eq!(choice.mode, mode, "{law:?} {nodes} {keeper:?}: {choice:?}");
        assert!(choice.reason.contains(why), "{:?}: {}", law, choice.reason);
        assert_eq!(choice.warn, mode == Mode::Share);
    };
    check(fixed(10_000, 60), 1, REDIS, Mode::Local, "only one");
    // As many permits for each gateway as make a lease worth it, and one fewer.
    check(fixed(1_024, 10), 8, REDIS, Mode::Lease, "128 permits");
    check(fixed(1_023, 10), 8, REDIS, Mode::Exact, "127 permits");
    check(fixed(1_024, 10), 8, OWNER, Mode::Lease, "128 permits");
    check(fixed(1_023, 10), 8, OWNER, Mode::Exact, "owns a key");
    check(fixed(10_000, 9), 8, REDIS, Mode::Exact, "9 s is short");
    check(sliding(80_000, 60), 8, REDIS, Mode::Lease, "80000");
    check(
        sliding(79_999, 60),
        8,
        REDIS,
        Mode::Exact,
        "fewer than 80000",
    );
    check(sliding(80_000, 1), 8, OWNER, Mode::Exact, "1 s is short");
    check(
        bucket(1_000.0, 2_000.0),
        8,
        REDIS,
        Mode::Lease,
        "250 permits",
    );
    check(
        bucket(1_000.0, 1_999.0),
        8,
        REDIS,
        Mode::Exact,
        "1.999 s is small",
    );
    check(bucket(100.0, 1_000.0), 8, OWNER, Mode::Exact, "125 permits");
    let minute = Duration::from_secs(60);
    let log = Law::Log {
        limit: 1_000,
        window: minute,
    };
    check(log, 8, REDIS, Mode::Exact, "each request");
    // More than Redis can be asked, and too short to take permits ahead.
    check(fixed(25_000, 1), 8, REDIS, Mode::Exact, "at most a quarter");
    check(
        fixed(25_001, 1),
        8,
        REDIS,
        Mode::Share,
        "more than a quarter",
    );
    check(fixed(25_001, 1), 8, OWNER, Mode::Exact, "owns a key");
}

#[test]
fn what_is_not_known_and_what_is_told() {
    let mut one = situation(fixed(1_000, 1), 8, REDIS);
    one.keeper = None;
    assert_eq!(one.choose().mode, Mode::Local);
    assert_eq!(one.choose().keeper, None);
    one.keeper = Some(REDIS);
    one.expected = Some(30_000.0);
    assert_eq!(one.choose().mode, Mode::Share);
    one.capacity = Some(200_000.0);
    assert_eq!(one.choose().mode, Mode::Exact);
    assert_eq!(one.choose().keeper, Some(REDIS));
    let mut many = situation(fixed(1_024, 60), 8, REDIS);
    many.nodes = None;
    assert_eq!(many.choose().mode, Mode::Lease, "eight are assumed");
    let mut loose = situation(sliding(8_000, 60), 8, REDIS);
    loose.slack = Some(0.1);
    assert_eq!(loose.choose().mode, Mode::Lease);
    loose.slack = Some(f64::NAN);
    assert_eq!(loose.choose().mode, Mode::Exact, "what is usual");
    assert_eq!(loose.pinned(Mode::Lease).reason, "configured");
}

#[test]
fn bounds_are_said() {
    let check = |law, mode, bound: &str| {
        assert_eq!(situation(law, 4, REDIS).bound(mode), bound);
    };
    check(fixed(100, 60), Mode::Exact, "100 in a window of 60 s");
    check(fixed(100, 60), Mode::Lease, "100 in a window of 60 s");
    check(
        fixed(100, 60),
        Mode::Local,
        "100 in a window of 60 s for each gateway",
    );
    check(sliding(10_000, 60), Mode::Lease, "10100 in any 60 s");
    check(
        bucket(1_000.0, 6_000.0),
        Mode::Lease,
        "6600 at once and 1000 more each second",
    );
    check(
        fixed(100, 60),
        Mode::Share,
        "100 in a window of 60 s for all 4 gateways together; less if load is uneven",
    );
    let short = Law::Fixed {
        limit: 5,
        window: Duration::from_millis(300),
    };
    check(short, Mode::Exact, "5 in a window of 300 ms");
}
