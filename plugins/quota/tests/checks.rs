use std::sync::Arc;
use std::time::Duration;

use super::rig::*;
use crate::{Access, Central, Law, Server, Settled};

#[tokio::test]
async fn a_fixed_window_admits_its_limit_and_says_what_is_left() {
    let redis = Redis::start();
    let central = redis.central();
    for left in [2, 1, 0] {
        let verdict = take(&central, "a", fixed(3)).await;
        let outcome = verdict.outcomes[0];
        assert!(verdict.allowed);
        assert_eq!(outcome.remaining, left);
        assert!(outcome.reset > Duration::from_secs(50) && outcome.reset <= MINUTE);
    }
    let refused = take(&central, "a", fixed(3)).await;
    assert!(!refused.allowed);
    assert_eq!(refused.outcomes[0].retry, Some(refused.outcomes[0].reset));
    // Another key has its own count, and another gateway the same.
    assert!(take(&central, "b", fixed(3)).await.allowed);
    assert!(!take(&redis.central(), "a", fixed(3)).await.allowed);
}

#[tokio::test]
async fn a_fixed_window_is_kept_as_apisix_keeps_it() {
    let redis = Redis::start();
    let central = redis.central();
    let key = crate::key_text("t", "rule", "a");
    // As an APISIX node counted two requests.
    redis.cli(&["SET", &key, "2", "EX", "60"]);
    let outcome = take(&central, "a", fixed(5)).await.outcomes[0];
    assert_eq!(outcome.remaining, 2);
    assert_eq!(redis.cli(&["GET", &key]), "3");
    let ttl: u64 = redis.cli(&["TTL", &key]).parse().unwrap();
    assert!((50..=60).contains(&ttl), "{ttl}");
}

#[tokio::test]
async fn an_edited_limit_applies_to_the_running_window() {
    let redis = Redis::start();
    let central = redis.central();
    assert_eq!(passed(&central, "a", fixed(2), 3).await, 2);
    assert_eq!(passed(&central, "a", fixed(5), 5).await, 3);
    assert!(!take(&central, "a", fixed(1)).await.allowed);
}

#[tokio::test]
async fn every_law_admits_its_limit_at_once_and_more_when_its_time_has_come() {
    let redis = Redis::start();
    let central = redis.central();
    let window = Duration::from_millis(300);
    let laws = [
        ("fixed", Law::Fixed { limit: 5, window }),
        ("sliding", Law::Sliding { limit: 5, window }),
        ("log", Law::Log { limit: 5, window }),
        (
            "bucket",
            Law::Bucket {
                interval_us: 60_000.0,
                holds: 5.0,
            },
        ),
    ];
    for (name, law) in laws {
        // Longer than five round trips, or the first window would be over.
        let minute = match law {
            Law::Fixed { limit, .. } => Law::Fixed {
                limit,
                window: MINUTE,
            },
            Law::Log { limit, .. } => Law::Log {
                limit,
                window: MINUTE,
            },
            Law::Sliding { limit, .. } => Law::Sliding {
                limit,
                window: Duration::from_secs(86_400),
            },
            Law::Bucket { holds, .. } => Law::Bucket {
                interval_us: 60e6,
                holds,
            },
        };
        assert_eq!(passed(&central, name, minute, 9).await, 5, "{name}");
        // What it says to wait is enough.
        let short = format!("{name}-short");
        let mut refused = None;
        for _ in 0..200 {
            let verdict = take(&central, &short, law).await;
            refused = verdict.outcomes[0].retry.filter(|_| !verdict.allowed);
            if refused.is_some() {
                break;
            }
        }
        let retry = refused.unwrap_or_else(|| panic!("{name} never refused"));
        assert!(retry <= window * 2, "{name}: {retry:?}");
        tokio::time::sleep(retry + Duration::from_millis(2)).await;
        assert!(
            take(&central, &short, law).await.allowed,
            "{name} after {retry:?}"
        );
    }
}

#[tokio::test]
async fn a_request_is_charged_on_all_its_limits_or_on_none() {
    let redis = Redis::start();
    let central = redis.central();
    let both = |cost| {
        [
            charge("wide", fixed(10), cost),
            charge("narrow", fixed(2), cost),
        ]
    };
    assert!(central.check(&both(2), 0).await.unwrap().allowed);
    for _ in 0..20 {
        let verdict = central.check(&both(1), 0).await.unwrap();
        let passed = verdict.outcomes.iter().map(|outcome| outcome.allowed);
        assert_eq!(passed.collect::<Vec<_>>(), [true, false]);
    }
    assert_eq!(passed(&central, "wide", fixed(10), 20).await, 8);
}

#[tokio::test]
async fn many_at_once_get_exactly_the_limit() {
    let redis = Redis::start();
    let gateways: Vec<_> = (0..3).map(|_| Arc::new(redis.central())).collect();
    let asked = (0..600).map(|n| {
        let central = Arc::clone(&gateways[n % 3]);
        tokio::spawn(async move { take(&central, "hot", fixed(100)).await.allowed })
    });
    let asked: Vec<_> = asked.collect();
    let mut admitted = 0;
    for answer in asked {
        admitted += u32::from(answer.await.unwrap());
    }
    assert_eq!(admitted, 100);
}

#[tokio::test]
async fn a_cost_above_the_limit_never_passes_and_zero_only_looks() {
    let redis = Redis::start();
    let central = redis.central();
    let hour = Duration::from_secs(3600);
    for (name, law) in [
        ("f", fixed(5)),
        (
            "s",
            Law::Sliding {
                limit: 5,
                window: hour,
            },
        ),
        (
            "l",
            Law::Log {
                limit: 5,
                window: hour,
            },
        ),
        (
            "b",
            Law::Bucket {
                interval_us: 1e9,
                holds: 5.0,
            },
        ),
    ] {
        let all = |cost| [charge(name, law, cost)];
        for cost in [6, u64::MAX] {
            let verdict = central.check(&all(cost), 0).await.unwrap();
            assert_eq!(
                (verdict.allowed, verdict.outcomes[0].retry),
                (false, None),
                "{name}"
            );
        }
        assert_eq!(
            central.check(&all(0), 0).await.unwrap().outcomes[0].remaining,
            5,
            "{name}"
        );
        let verdict = central.check(&all(5), 0).await.unwrap();
        assert!(verdict.allowed, "{name}");
        let mark = verdict.outcomes[0].mark;
        let settle = async |more| {
            let charge = charge(name, law, 0);
            let settled = [Settled { charge, more, mark }];
            central.settle(&settled, 0).await.unwrap();
        };
        // Given back, there is room again; more than was had makes no more.
        settle(-2).await;
        assert_eq!(passed(&central, name, law, 5).await, 2, "{name}");
        settle(-100).await;
        // A log knows whose requests it forgets.
        let free = if name == "l" { 3 } else { 5 };
        assert_eq!(passed(&central, name, law, 9).await, free, "{name}");
        let gone = central.reset(&[charge(name, law, 0).key], 0).await.unwrap();
        assert_eq!(gone, 1, "{name}");
        settle(4).await;
        assert_eq!(passed(&central, name, law, 9).await, 1, "{name}");
        // However much that is, it is bounded.
        for more in [i64::MAX / 2, i64::MAX, i64::MAX] {
            settle(more).await;
            assert!(!take(&central, name, law).await.allowed, "{name}");
        }
        settle(i64::MIN).await;
    }
}

#[tokio::test]
async fn a_shorter_limit_applies_to_what_runs() {
    let redis = Redis::start();
    let central = redis.central();
    let day = Duration::from_secs(86_400);
    let long = Law::Fixed {
        limit: 5,
        window: day,
    };
    assert!(take(&central, "f", long).await.allowed);
    let reset = take(&central, "f", fixed(5)).await.outcomes[0].reset;
    assert!(reset <= MINUTE, "{reset:?}");
    let ttl: u64 = redis
        .cli(&["TTL", &charge("f", fixed(5), 0).key])
        .parse()
        .unwrap();
    assert!(ttl <= 60, "{ttl}");
    // One in a day, ten at once; then ten a second.
    let slow = Law::Bucket {
        interval_us: 86_400e6,
        holds: 10.0,
    };
    assert_eq!(passed(&central, "b", slow, 11).await, 10);
    let fast = Law::Bucket {
        interval_us: 100_000.0,
        holds: 10.0,
    };
    let retry = take(&central, "b", fast).await.outcomes[0].retry.unwrap();
    assert!(retry <= Duration::from_secs(10), "{retry:?}");
}

#[tokio::test]
async fn a_leaky_bucket_says_how_long_to_hold_back() {
    let redis = Redis::start();
    let central = redis.central();
    let law = Law::leaky(0.01, 2.0).unwrap();
    let mut delays = Vec::new();
    for _ in 0..3 {
        delays.push(
            take(&central, "a", law).await.outcomes[0]
                .delay
                .as_secs_f64(),
        );
    }
    assert!(!take(&central, "a", law).await.allowed);
    // One in 100 s; a test takes a moment, too.
    for (delay, due) in delays.into_iter().zip([0.0, 100.0, 200.0]) {
        assert!((due - 15.0..=due).contains(&delay), "{delay} for {due}");
    }
}

#[tokio::test]
async fn users_passwords_databases_and_tls() {
    let acl = [
        "--requirepass",
        "default-secret",
        "--user",
        "gate",
        "on",
        ">secret",
        "~gw:*",
        "+@all",
    ];
    let redis = Redis::with(&acl);
    let access = |username: Option<&str>, password: &str| Access {
        username: username.map(str::to_owned),
        password: Some(password.to_owned()),
        database: 3,
        tls: None,
    };
    let central = |access| {
        let place = redis.place();
        Central::new(Server::Single { place, access }, LIMIT)
    };
    for good in [
        access(Some("gate"), "secret"),
        access(None, "default-secret"),
    ] {
        assert!(take(&central(good), "a", fixed(9)).await.allowed);
    }
    let refused = central(access(Some("gate"), "wrong"));
    assert!(refused.check(&[charge("a", fixed(9), 1)], 0).await.is_err());

    let (cert, key, folder) = certificate();
    let port = free_port().to_string();
    let tls = [
        "--tls-port",
        &port,
        "--tls-cert-file",
        text(&cert),
        "--tls-key-file",
        text(&key),
    ];
    let more = [
        "--tls-ca-cert-file",
        text(&cert),
        "--tls-auth-clients",
        "no",
    ];
    let _redis = Redis::with(&[&tls[..], &more[..]].concat());
    let secure = |checked| {
        let place = place(port.parse().unwrap());
        let access = Access {
            tls: Some(checked),
            ..Access::default()
        };
        Central::new(Server::Single { place, access }, LIMIT)
    };
    assert!(take(&secure(false), "a", fixed(9)).await.allowed);
    // Nobody vouches for it.
    let refused = secure(true).check(&[charge("a", fixed(9), 1)], 0).await;
    assert!(refused.is_err());
    std::fs::remove_dir_all(folder).unwrap();
}
