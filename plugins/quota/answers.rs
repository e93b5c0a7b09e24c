//! What scripts answer.

use std::time::Duration;

use redis::{RedisResult, Value};
use smallvec::SmallVec;

use crate::charge::Charge;
use crate::lease::Grant;
use crate::script::{numbers, unexpected, whole};
use crate::store::{Outcome, Standing, Verdict};

pub(crate) fn read_grant(value: &Value) -> RedisResult<Grant> {
    let [permits, left, reset, retry, good, mark, nodes, others] = numbers(value)?;
    let us = |n| Duration::from_micros(whole(n));
    Ok(Grant {
        permits: whole(permits),
        left: whole(left),
        reset: us(reset),
        retry: us(retry),
        good: us(good),
        mark: whole(mark),
        nodes: whole(nodes),
        others: whole(others),
    })
}

pub(crate) fn read_standing(value: &Value) -> RedisResult<Standing> {
    let [_, remaining, reset, retry, nodes, held] = numbers(value)?;
    let us = |n| Duration::from_micros(whole(n));
    Ok(Standing {
        remaining: whole(remaining),
        reset: us(reset),
        retry: us(retry),
        nodes: whole(nodes),
        held: whole(held),
    })
}

pub(crate) fn read_verdict(charges: &[Charge], value: &Value) -> RedisResult<Verdict> {
    let numbers: Vec<i64> = redis::from_redis_value_ref(value)?;
    if numbers.len() != charges.len() * WORDS {
        return Err(unexpected());
    }
    let outcomes: SmallVec<[Outcome; 2]> = charges
        .iter()
        .zip(numbers.as_chunks::<WORDS>().0)
        .map(|(charge, words)| read_outcome(charge, words))
        .collect();
    Ok(Verdict {
        allowed: outcomes.iter().all(|outcome| outcome.allowed),
        outcomes,
    })
}

/// Numbers that check.lua says of each limit.
const WORDS: usize = 5;

fn read_outcome(
    charge: &Charge,
    &[passed, remaining, reset, retry, mark]: &[i64; WORDS],
) -> Outcome {
    let us = |n: i64| Duration::from_micros(whole(n));
    let allowed = passed == 1;
    Outcome {
        allowed,
        remaining: whole(remaining),
        reset: us(reset),
        retry: (retry >= 0).then(|| us(retry)),
        delay: charge.law.delay(allowed, us(reset), charge.cost),
        mark: whole(mark),
    }
}
