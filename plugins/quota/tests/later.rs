use std::sync::Arc;
use std::time::Duration;

use super::rig::*;
use crate::{Central, Later, QuotaStore, Settled};

async fn left(central: &Central) -> u64 {
    let look = [charge("a", fixed(5_000), 0)];
    central.check(&look, 0).await.unwrap().outcomes[0].remaining
}

#[tokio::test]
async fn what_requests_really_cost_is_said_once_and_soon() {
    let redis = Redis::start();
    let central = Arc::new(redis.central());
    let later = Arc::new(Later::new(Arc::clone(&central) as Arc<dyn QuotaStore>));
    let mut settled = Vec::new();
    for _ in 0..1_000 {
        let verdict = central
            .check(&[charge("a", fixed(5_000), 3)], 0)
            .await
            .unwrap();
        settled.push(Settled {
            charge: charge("a", fixed(5_000), 3),
            more: -2,
            mark: verdict.outcomes[0].mark,
        });
    }
    assert_eq!(left(&central).await, 2_000);
    later.settle(settled, 0);
    for _ in 0..1_000 {
        if left(&central).await == 4_000 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!((left(&central).await, later.lost()), (4_000, 0));
    // Nobody waits for a server that is not there, and what is lost is known.
    drop(redis);
    let lost = Settled {
        charge: charge("a", fixed(5_000), 3),
        more: 1,
        mark: 0,
    };
    later.settle([lost.clone(), Settled { more: 0, ..lost }], 0);
    for _ in 0..1_000 {
        if later.lost() == 1 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{} lost", later.lost());
}
