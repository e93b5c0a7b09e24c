use std::time::Duration;

use super::rig::*;
use crate::{Ask, Away, Central, QuotaStore, Settled};

const MS: u64 = 1_000_000;

async fn ask(central: &Central, now: u64) -> Result<bool, Away> {
    let verdict = central
        .check(&[charge("a", fixed(1_000_000), 1)], now)
        .await?;
    Ok(verdict.allowed)
}

/// Asks until there is an answer, by a clock that goes on.
async fn until_answered(central: &Central, from: u64) -> u64 {
    for n in 0..2_000 {
        let now = from + n * 100 * MS;
        if ask(central, now).await.is_ok() {
            return now;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("no answer");
}

#[tokio::test]
async fn a_frozen_server_costs_five_deadlines_and_then_nothing() {
    let redis = Redis::start();
    let central = Central::new(redis.server(), Duration::from_millis(250));
    let now = until_answered(&central, MS).await;
    redis.signal(Signal::SIGSTOP);
    let mut late = 0;
    for n in 0..100 {
        // No pause is over by this clock.
        match ask(&central, now + n).await {
            Err(Away::Known) => {}
            Err(Away::Late(_) | Away::Failed(_)) => late += 1,
            Ok(_) => panic!("it is frozen"),
        }
    }
    assert_eq!(late, 5);
    assert!(central.is_away());
    redis.signal(Signal::SIGCONT);
    until_answered(&central, now + 10_000 * MS).await;
    assert!(!central.is_away());
}

#[tokio::test]
async fn a_server_that_was_killed_and_comes_back_is_found_again() {
    let redis = Redis::start();
    let port = redis.port();
    let central = Central::new(redis.server(), Duration::from_secs(2));
    let now = until_answered(&central, MS).await;
    drop(redis);
    let mut asked = 0;
    while !central.is_away() {
        assert!(ask(&central, now).await.is_err());
        asked += 1;
        assert!(asked <= 5);
    }
    assert!(matches!(ask(&central, now).await, Err(Away::Known)));
    // It has forgotten the scripts, too.
    let _redis = Redis::on(port, &[]);
    until_answered(&central, now + 10_000 * MS).await;
}

#[tokio::test]
async fn forgotten_scripts_are_told_again() {
    let redis = Redis::start();
    let central = redis.central();
    assert!(ask(&central, 0).await.unwrap());
    redis.cli(&["SCRIPT", "FLUSH"]);
    assert!(ask(&central, 0).await.unwrap());
}

#[tokio::test]
async fn a_key_of_another_kind_is_an_error_with_its_reason() {
    let redis = Redis::start();
    let key = charge("a", fixed(1), 1).key;
    redis.cli(&["LPUSH", &key, "x"]);
    let away = ask(&redis.central(), 0).await.unwrap_err();
    let Away::Failed(error) = away else {
        panic!("{away}");
    };
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
}

#[tokio::test]
async fn what_a_server_says_about_one_key_closes_nothing_for_the_others() {
    let redis = Redis::start();
    let central = redis.central();
    redis.cli(&["LPUSH", &charge("a", fixed(1), 1).key, "x"]);
    for _ in 0..20 {
        let away = ask(&central, 1).await.unwrap_err();
        assert!(matches!(away, Away::Failed(_)), "{away}");
    }
    assert!(!central.is_away());
    assert!(take(&central, "b", fixed(9)).await.allowed);
}

#[tokio::test]
async fn a_connection_that_was_ended_meanwhile_costs_no_request() {
    let mut redis = Redis::start();
    let central = redis.central();
    assert_eq!(take(&central, "a", fixed(9)).await.outcomes[0].remaining, 8);
    // As a server does with connections that were idle.
    redis.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    assert_eq!(take(&central, "a", fixed(9)).await.outcomes[0].remaining, 7);
    redis.again();
    assert_eq!(take(&central, "a", fixed(9)).await.outcomes[0].remaining, 8);
}

#[tokio::test]
async fn an_answer_that_was_lost_is_asked_for_once_more() {
    let redis = Redis::start();
    let lossy = Lossy::to(&redis).await;
    let central = lossy.central();
    assert_eq!(take(&central, "a", fixed(9)).await.outcomes[0].remaining, 8);
    lossy.lose(1);
    // What the lost answer charged is not known: it counts.
    assert_eq!(take(&central, "a", fixed(9)).await.outcomes[0].remaining, 6);
    let key = charge("b", fixed(100), 0).key;
    let ask = Ask {
        key: key.clone(),
        law: fixed(100),
        number: 1,
        want: 10,
        back: 0,
        over: 0,
        mark: 0,
        held: 0,
        most: None,
        keeps: Duration::ZERO,
    };
    let other = charge("c", fixed(100), 0).key;
    let warm = Ask {
        key: other,
        ..ask.clone()
    };
    // So that it is no question for the script that gets lost.
    central.lease(&[warm], 0).await.remove(0).unwrap();
    lossy.lose(1);
    let granted = central.lease(std::slice::from_ref(&ask), 0).await;
    assert_eq!(granted[0].as_ref().unwrap().permits, 10);
    let standing = central.inspect(&key, fixed(100), 0).await.unwrap();
    assert_eq!((standing.remaining, standing.held), (90, 10));
    // Twice in a row is a failure.
    lossy.lose(2);
    assert!(matches!(self::ask(&central, 1).await, Err(Away::Failed(_))));
}

#[tokio::test]
async fn what_is_given_back_is_never_given_back_twice() {
    let redis = Redis::start();
    let lossy = Lossy::to(&redis).await;
    let central = lossy.central();
    let charged = central.check(&[charge("a", fixed(9), 5)], 0).await.unwrap();
    let settled = |more| Settled {
        charge: charge("a", fixed(9), 0),
        more,
        mark: charged.outcomes[0].mark,
    };
    // So that it is no question for the script that gets lost.
    central.settle(&[settled(0)], 0).await.unwrap();
    lossy.lose(1);
    let away = central.settle(&[settled(-2)], 0).await;
    assert!(matches!(away, Err(Away::Failed(_))));
    let remaining = async || {
        let verdict = central.check(&[charge("a", fixed(9), 0)], 0).await.unwrap();
        verdict.outcomes[0].remaining
    };
    assert_eq!(remaining().await, 6);
    // A charge may: better twice than never.
    lossy.lose(1);
    central.settle(&[settled(1)], 0).await.unwrap();
    assert_eq!(remaining().await, 4);
}
