use std::time::Duration;

use super::rig::*;
use crate::{Away, Central};

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
