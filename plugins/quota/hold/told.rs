//! What a request, or whoever looks, is told.

use std::time::Duration;

use super::slot::Beside;
use crate::Nanos;
use crate::store::Outcome;

/// What this gateway holds of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Permits that can be spent.
    pub permits: u64,
    /// Until they lapse.
    pub good: Duration,
    /// For how long requests without a permit are refused from memory.
    pub blocked: Duration,
    /// What the store had left when it was asked last.
    pub left: u64,
    /// Until the limit is as good as new, or its window ends; zero if it has since.
    pub reset: Duration,
}

/// There was a permit.
pub(super) fn passed(permits: u64, beside: &Beside, now: Nanos) -> Outcome {
    Outcome {
        allowed: true,
        remaining: beside.left.saturating_add(permits),
        reset: Duration::from_nanos(beside.reset.saturating_sub(now)),
        retry: None,
        delay: Duration::ZERO,
        mark: beside.mark,
    }
}

/// There was none, and there is none for a while.
pub(super) fn refused(permits: u64, beside: &Beside, now: Nanos) -> Outcome {
    let retry = Duration::from_nanos(beside.blocked.saturating_sub(now));
    Outcome {
        allowed: false,
        remaining: beside.left.saturating_add(permits),
        reset: Duration::from_nanos(beside.reset.saturating_sub(now)).max(retry),
        retry: Some(retry),
        delay: Duration::ZERO,
        mark: 0,
    }
}

/// It costs more than the limit.
pub(super) fn never() -> Outcome {
    Outcome {
        allowed: false,
        remaining: 0,
        reset: Duration::ZERO,
        retry: None,
        delay: Duration::ZERO,
        mark: 0,
    }
}
