//! Gateways join, leave, crash, and are cut off.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::join_all;
use lockgate_quota::Away;

use crate::figures::Figures;

use super::rig::{Gate, Rig, law, secret, until, until_asked};
use crate::kept::window;

const LIMIT: u64 = 100;

/// What a limit of [`LIMIT`] has left for a key whose counts are lost, at this time.
fn left_of_even() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_micros();
    let length = u128::from(window(law(LIMIT)));
    let used = (now % length * u128::from(LIMIT)).div_ceil(length);
    LIMIT - used as u64
}

#[tokio::test]
async fn who_joins_takes_over_counts_and_who_leaves_gives_them_back() {
    let mut rig = Rig::of(2, |_| secret()).await;
    let keys: Vec<String> = (0..60).map(|n| format!("joined {n}")).collect();
    let each = |at: &'static [usize], each| {
        let rig = &rig;
        join_all(keys.iter().map(move |key| rig.burst(at, key, LIMIT, each)))
    };
    assert_eq!(each(&[0, 1], 20).await, [40; 60]);
    let new = rig.add(secret()).await;
    rig.publish();
    rig.settled().await;
    let taken = rig.members[new].figures();
    assert!(taken.owned > 1_000 && taken.taken_over > 5, "{taken:?}");
    let each = |at: &'static [usize], each| {
        let rig = &rig;
        join_all(keys.iter().map(move |key| rig.burst(at, key, LIMIT, each)))
    };
    // 40 before, and not one more than the limit from now on.
    assert_eq!(each(&[0, 1, 2], 10).await, [30; 60]);
    rig.leave(0);
    rig.members[0].peers.has_left().await;
    assert_eq!(rig.members[0].figures().owned, 0);
    rig.settled().await;
    // It may ask as long as it is there.
    let each = |at: &'static [usize], each| {
        let rig = &rig;
        join_all(keys.iter().map(move |key| rig.burst(at, key, LIMIT, each)))
    };
    assert_eq!(each(&[0, 1, 2], 20).await, [30; 60]);
    rig.members[0].kill();
    rig.publish();
    rig.settled().await;
    assert_eq!(rig.burst(&[1, 2], &keys[0], LIMIT, 20).await, 0);
    assert_eq!(rig.members[2].figures().bad_frames, 0);
}

/// Requests go on while gateways come and leave. What gets no answer is not let pass here.
#[tokio::test]
async fn requests_under_way_while_gateways_move_are_counted_once() {
    let mut rig = Rig::of(2, |_| secret()).await;
    let keys: Vec<String> = (0..20).map(|n| format!("moved {n}")).collect();
    let mut passed = vec![0; keys.len()];
    // It is not known whether they count.
    let mut unanswered = vec![0; keys.len()];
    for step in 0..4 {
        match step {
            1 => {
                rig.add(secret()).await;
                rig.publish();
            }
            2 => rig.leave(0),
            3 => {
                rig.add(secret()).await;
                rig.publish();
            }
            _ => {}
        }
        // In waves, until all act by the last roll.
        loop {
            let wave = keys.iter().enumerate().map(|(at, key)| {
                let rig = &rig;
                async move {
                    let asked = (0..2).map(|n| rig.check(n, key, LIMIT));
                    let asked = join_all(asked).await;
                    (at, asked)
                }
            });
            for (at, asked) in join_all(wave).await {
                passed[at] += asked
                    .iter()
                    .filter(|asked| matches!(asked, Ok(true)))
                    .count();
                unanswered[at] += asked.iter().filter(|asked| asked.is_err()).count();
            }
            let all = rig.members.iter().all(|member| {
                let figures = member.figures();
                figures.epoch == rig.revision && figures.expected == 0
            });
            if all {
                break;
            }
        }
    }
    for ((key, passed), unanswered) in keys.iter().zip(&passed).zip(&unanswered) {
        let more = rig.burst(&[0, 1, 2, 3], key, LIMIT, 30).await;
        let all = *passed as u64 + more;
        assert!(all <= LIMIT, "{key}: {all}");
        // And no less: nothing is counted twice.
        assert!(
            all + *unanswered as u64 >= LIMIT,
            "{key}: {all} {unanswered}"
        );
    }
}

#[tokio::test]
async fn after_a_crash_no_more_passes_than_an_even_use_has_left() {
    let mut rig = Rig::of(3, |_| secret()).await;
    let lost = rig.keys_of(1, 5);
    let kept = rig.keys_of(0, 5);
    for key in lost.iter().chain(&kept) {
        assert_eq!(rig.burst(&[0, 1, 2], key, LIMIT, 30).await, 90);
    }
    rig.members[1].kill();
    // Nobody knows yet who counts for it. Nobody waits, either: it is known to be away.
    until_asked(|| async { matches!(rig.check(0, &lost[0], LIMIT).await, Err(Away::Known)) }).await;
    let most = left_of_even();
    rig.publish();
    rig.settled().await;
    for key in &lost {
        let passed = rig.burst(&[0, 2], key, LIMIT, 80).await;
        let least = left_of_even();
        assert!(
            (least..=most).contains(&passed),
            "{passed} of {least} to {most}"
        );
    }
    for key in &kept {
        assert_eq!(rig.burst(&[0, 2], key, LIMIT, 30).await, 10);
    }
}

#[tokio::test]
async fn who_is_cut_off_knows_and_counts_go_on_without_it() {
    let rig = Rig::of(3, |_| secret()).await;
    let [mine, others] = [2, 0].map(|at| rig.keys_of(at, 1).remove(0));
    let probe = rig.keys_of(2, 2).remove(1);
    assert_eq!(rig.burst(&[0, 1, 2], &mine, LIMIT, 10).await, 30);
    // Others cannot reach it; it can reach them.
    rig.members[2].gate.send_replace(Gate::Shut);
    until(|| rig.members[0].figures().connected == 1).await;
    assert!(matches!(rig.check(0, &mine, LIMIT).await, Err(Away::Known)));
    assert!(matches!(rig.check(1, &mine, LIMIT).await, Err(Away::Known)));
    assert_eq!(rig.burst(&[2], &mine, LIMIT, 10).await, 10);
    assert_eq!(rig.burst(&[2, 0], &others, LIMIT, 10).await, 20);
    assert_eq!(rig.members[0].peers.live(), 3);
    // Back: with all that was counted.
    rig.members[2].gate.send_replace(Gate::Open);
    until(|| rig.members[0].figures().connected == 2).await;
    until_asked(|| async { rig.check(0, &probe, 10_000).await.is_ok() }).await;
    assert_eq!(rig.burst(&[0, 2], &mine, LIMIT, 60).await, 60);
}

#[tokio::test]
async fn who_lost_its_lease_neither_asks_nor_grants() {
    let rig = Rig::of(3, |_| secret()).await;
    let [mine, others] = [2, 0].map(|at| rig.keys_of(at, 1).remove(0));
    assert_eq!(rig.burst(&[0, 1, 2], &mine, LIMIT, 10).await, 30);
    rig.members[2].peers.fall();
    for (at, key) in [(2, &others), (2, &mine), (0, &mine), (1, &mine)] {
        assert!(
            matches!(rig.check(at, key, LIMIT).await, Err(Away::Known)),
            "{at} {key}"
        );
    }
    assert_eq!(rig.burst(&[0, 1], &others, LIMIT, 10).await, 20);
    rig.members[2].peers.stand_for(Duration::from_secs(60));
    assert_eq!(rig.burst(&[0, 1, 2], &mine, LIMIT, 30).await, 70);
}

/// A gateway joins and is never reached: what was to go to it is counted on where it came from.
#[tokio::test]
async fn counts_for_one_that_is_gone_again_come_back() {
    let mut rig = Rig::of(2, |_| secret()).await;
    let keys: Vec<String> = (0..60).map(|n| format!("back {n}")).collect();
    let counted = keys.iter().map(|key| rig.burst(&[0, 1], key, LIMIT, 20));
    assert_eq!(join_all(counted).await, [40; 60]);
    let new = rig.add(secret()).await;
    rig.members[new].gate.send_replace(Gate::Frozen);
    rig.publish();
    until(|| (0..2).all(|at| rig.members[at].figures().epoch == rig.revision)).await;
    let sum = |of: fn(Figures) -> u64| -> u64 {
        rig.members[..2]
            .iter()
            .map(|member| of(member.figures()))
            .sum()
    };
    let left = sum(|figures| figures.handed_over);
    assert!(left > 5, "{left}");
    rig.members[new].kill();
    rig.publish();
    until(|| {
        let sum = |of: fn(Figures) -> u64| -> u64 {
            rig.members[..2]
                .iter()
                .map(|member| of(member.figures()))
                .sum()
        };
        sum(|figures| figures.taken_over) == sum(|figures| figures.handed_over)
    })
    .await;
    rig.settled().await;
    let rest = keys.iter().map(|key| rig.burst(&[0, 1], key, LIMIT, 40));
    assert_eq!(join_all(rest).await, [60; 60]);
}
