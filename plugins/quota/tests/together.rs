//! Leases on a real store.

use std::sync::Arc;
use std::time::Duration;

use super::rig::*;
use crate::{Central, Claim, Law, Leases, Spend, Terms};

/// One gateway.
fn gateway(redis: &Redis) -> Arc<Leases> {
    Leases::new(Arc::new(redis.central()), 64)
}

async fn take(leases: &Arc<Leases>, text: &str, terms: &Terms, now: u64) -> bool {
    let claim = claim(text, terms);
    match leases.take(&claim, now) {
        Spend::Known(outcome) => outcome.allowed,
        Spend::Wait | Spend::Full => leases.wait(&claim, now, LIMIT).await.unwrap().allowed,
        Spend::Away => panic!("it is there"),
    }
}

#[tokio::test]
async fn three_gateways_admit_the_limit_with_few_calls() {
    let redis = Redis::start();
    let gateways: Vec<_> = (0..3).map(|_| gateway(&redis)).collect();
    let hour = Duration::from_secs(3_600);
    let law = Law::Fixed {
        limit: 3_000,
        window: hour,
    };
    let terms = Terms::new(law, 3, 0.0).unwrap();
    let begun = std::time::Instant::now();
    let mut admitted = 0;
    // Seven, two and one of ten.
    for n in 0..6_000 {
        let gateway = &gateways[[0, 0, 0, 0, 0, 0, 0, 1, 1, 2][n % 10]];
        let now = 1 + begun.elapsed().as_nanos() as u64;
        admitted += u32::from(take(gateway, "a", &terms, now).await);
    }
    let calls: u64 = gateways
        .iter()
        .map(|one| one.figures().calls.answered)
        .sum();
    let stuck: u64 = gateways.iter().map(|one| one.figures().held.held).sum();
    assert_eq!(u64::from(admitted) + stuck, 3_000);
    assert!(stuck <= 30, "{stuck}");
    assert!(calls <= 120, "{calls}");
    for one in &gateways {
        let held = one.figures().held;
        let sum = held.spent + held.held + held.returned + held.stranded;
        assert_eq!(held.granted, sum, "{held:?}");
    }
}

#[tokio::test]
async fn a_key_without_a_place_is_asked_for_exactly() {
    let redis = Redis::start();
    let leases = Leases::new(Arc::new(redis.central()), 1);
    let terms = Terms::new(fixed(5), 2, 0.0).unwrap();
    for key in 0..40 {
        let key = format!("key-{key}");
        let mut admitted = 0;
        for n in 0..9 {
            admitted += u32::from(take(&leases, &key, &terms, 1 + n).await);
        }
        assert_eq!(admitted, 5, "{key}");
    }
    let held = leases.figures().held;
    assert_eq!(held.keys, 8);
    assert!(held.full >= 9 * 32, "{held:?}");
}

#[tokio::test]
async fn what_cannot_be_asked_is_away_after_the_deadline_and_at_once_later() {
    let redis = Redis::start();
    let central = Central::new(redis.server(), Duration::from_millis(200));
    let leases = Leases::new(Arc::new(central), 64);
    let terms = Terms::new(fixed(1_000), 1, 0.0).unwrap();
    let spent = claim("a", &terms);
    // Within the deadline at some time, however busy the machine is.
    until_allowed(&leases, &spent).await;
    redis.signal(Signal::SIGSTOP);
    // What is held is spent, whatever the store does.
    let held = leases.part(&spent, 2).unwrap().permits;
    for _ in 0..held {
        assert!(matches!(leases.take(&spent, 2), Spend::Known(outcome) if outcome.allowed));
    }
    let away = leases.wait(&spent, 2, LIMIT).await;
    assert!(away.is_err());
    assert_eq!(leases.take(&spent, 3), Spend::Away);
    redis.signal(Signal::SIGCONT);
    until_allowed(&leases, &spent).await;
}

async fn until_allowed(leases: &Arc<Leases>, claim: &Claim<'_>) {
    for _ in 0..2_000 {
        if let Spend::Known(outcome) = leases.take(claim, 4) {
            assert!(outcome.allowed);
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no answer");
}

#[tokio::test]
async fn what_was_not_needed_is_put_back_and_what_was_more_is_charged() {
    let redis = Redis::start();
    let leases = gateway(&redis);
    let terms = Terms::new(fixed(100), 1, 0.0).unwrap();
    let spent = claim("a", &terms);
    assert_eq!(leases.take(&spent, 1), Spend::Wait);
    let outcome = leases.wait(&spent, 1, LIMIT).await.unwrap();
    assert_eq!(outcome.remaining, 99);
    leases.settle(&spent, -1, outcome.mark, 2).await.unwrap();
    assert_eq!(
        leases.part(&spent, 2).map(|part| part.left + part.permits),
        Some(100)
    );
    leases.settle(&spent, 3, outcome.mark, 2).await.unwrap();
    assert_eq!(
        leases.part(&spent, 2).map(|part| part.left + part.permits),
        Some(97)
    );
    // More than is held here is owed to the store.
    leases.settle(&spent, 60, outcome.mark, 2).await.unwrap();
    let store = Arc::clone(leases.store());
    let key = spent.name.key();
    for _ in 0..2_000 {
        let standing = store.inspect(&key, fixed(100), 2).await.unwrap();
        if standing.remaining <= 40 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the store was never told");
}
