//! Three gateways count together: no more than the limit passes, and no less.

use std::time::Duration;

use futures::future::join_all;
use lockgate_quota::{Ask, Charge, Law, QuotaStore, Settled};

use super::certs::Authority;
use super::rig::{Rig, law, secret};

async fn exact(rig: &Rig) {
    let keys: Vec<String> = (0..12).map(|n| format!("exact {n}")).collect();
    let passed = keys.iter().map(|key| rig.burst(&[0, 1, 2], key, 50, 40));
    assert_eq!(join_all(passed).await, [50; 12]);
    // All of them own something, and asked others.
    for member in &rig.members {
        let figures = member.figures();
        assert!(figures.owned > 1_000, "{figures:?}");
        assert!(figures.asked > 0 && figures.answered > 0, "{figures:?}");
        assert_eq!((figures.nodes, figures.bad_frames), (3, 0));
    }
}

#[tokio::test]
async fn exactly_the_limit_passes_with_a_secret() {
    let rig = Rig::of(3, |_| secret()).await;
    exact(&rig).await;
}

#[tokio::test]
async fn exactly_the_limit_passes_with_certificates() {
    let authority = Authority::new("counting");
    let rig = Rig::of(3, |at| {
        authority.identity(&format!("node{at}"), &["127.0.0.1"])
    })
    .await;
    exact(&rig).await;
}

#[tokio::test]
async fn all_limits_of_a_request_or_none() {
    let rig = Rig::of(3, |_| secret()).await;
    let charge = |key: &str, limit| Charge {
        key: key.to_owned(),
        law: law(limit),
        cost: 1,
    };
    // Counted by different gateways.
    let [a, b, c] = [0, 1, 2].map(|at| rig.keys_of(at, 1).remove(0));
    let charges = [charge(&a, 1_000), charge(&b, 20), charge(&c, 500)];
    let asked = (0..90).map(|n| rig.members[n % 3].peers.check(&charges, 0));
    let verdicts = join_all(asked).await;
    let passed = verdicts
        .iter()
        .filter(|verdict| verdict.as_ref().unwrap().allowed)
        .count();
    // While one is about to get back what it charged, another may be refused: never more than the limit.
    assert!(passed <= 20, "{passed}");
    for _ in passed..20 {
        assert!(
            rig.members[0]
                .peers
                .check(&charges, 0)
                .await
                .unwrap()
                .allowed
        );
    }
    let refused = rig.members[1].peers.check(&charges, 0).await.unwrap();
    let allowed: Vec<bool> = refused
        .outcomes
        .iter()
        .map(|outcome| outcome.allowed)
        .collect();
    assert_eq!((refused.allowed, allowed), (false, vec![true, false, true]));
    // What was charged for those that were refused has come back.
    for (key, limit) in [(&a, 1_000), (&b, 20), (&c, 500)] {
        let standing = rig.members[2]
            .peers
            .inspect(key, law(limit), 0)
            .await
            .unwrap();
        assert_eq!(standing.remaining, limit - 20, "{key}");
    }
}

#[tokio::test]
async fn permits_are_handed_out_once() {
    let rig = Rig::of(3, |_| secret()).await;
    let key = "leased";
    let ask = |number, back, mark| Ask {
        key: key.to_owned(),
        law: law(1_000),
        number,
        want: 400,
        back,
        over: 0,
        mark,
        held: 0,
        most: None,
        keeps: Duration::from_secs(60),
    };
    let mut had = 0;
    for number in 1..=30 {
        let asks = [ask(number, 0, 0)];
        let all = rig
            .members
            .iter()
            .map(|member| member.peers.acquire(&asks, 0));
        for granted in join_all(all).await {
            had += granted[0].as_ref().unwrap().permits;
        }
    }
    assert_eq!(had, 1_000);
    // The same ask again gets the same, which is nothing by now; requests share the count.
    assert!(!rig.check(0, key, 1_000).await.unwrap());
    let again = rig.members[0].peers.acquire(&[ask(31, 0, 0)], 0).await;
    let again = again[0].as_ref().unwrap();
    assert_eq!((again.permits, again.nodes), (0, 3));
    // What comes back can be had again.
    let back = rig.members[1]
        .peers
        .acquire(&[ask(31, 10, again.mark)], 0)
        .await;
    assert_eq!(back[0].as_ref().unwrap().permits, 1);
    let standing = rig.members[2]
        .peers
        .inspect(key, law(1_000), 0)
        .await
        .unwrap();
    assert_eq!((standing.remaining, standing.nodes), (9, 3));
}

#[tokio::test]
async fn what_is_settled_and_forgotten_is_so_for_all() {
    let rig = Rig::of(3, |_| secret()).await;
    for at in 0..3 {
        let key = rig.keys_of(at, 1).remove(0);
        let charge = Charge {
            key: key.clone(),
            law: law(10),
            cost: 8,
        };
        let charges = std::slice::from_ref(&charge);
        let verdict = rig.members[0].peers.check(charges, 0).await.unwrap();
        assert_eq!((verdict.allowed, verdict.outcomes[0].remaining), (true, 2));
        let settled = Settled {
            charge: charge.clone(),
            more: -5,
            mark: verdict.outcomes[0].mark,
        };
        rig.members[1].peers.settle(&[settled], 0).await.unwrap();
        assert_eq!(rig.burst(&[0, 1, 2], &key, 10, 5).await, 7);
        assert!(rig.members[2].peers.reset(&key, 0).await.unwrap());
        assert!(!rig.members[1].peers.reset(&key, 0).await.unwrap());
        assert_eq!(rig.burst(&[0, 1, 2], &key, 10, 5).await, 10);
    }
}

#[tokio::test]
async fn every_law_is_counted() {
    let rig = Rig::of(2, |_| secret()).await;
    let window = Duration::from_secs(86_400 * 7);
    let bucket = Law::Bucket {
        interval_us: 1e9,
        holds: 6.0,
    };
    for law in [
        Law::Sliding { limit: 6, window },
        Law::Log { limit: 6, window },
        bucket,
    ] {
        let charge = Charge {
            key: format!("{law:?}"),
            law,
            cost: 1,
        };
        let charges = std::slice::from_ref(&charge);
        let asked = (0..20).map(|n| rig.members[n % 2].peers.check(charges, 0));
        let passed = join_all(asked).await;
        let passed = passed
            .into_iter()
            .filter(|verdict| verdict.as_ref().unwrap().allowed);
        assert_eq!(passed.count(), 6, "{law:?}");
    }
}
