//! One timer for each connection, touched only when it fires.
//!
//! Registering and cancelling a timer for every wait costs more than the waits
//! themselves. So the timer stays where it is and is looked at when it fires:
//! if the wait in progress has time left, it is set to that wait's end. It is
//! moved at once only when a wait ends before the timer would fire.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// The longest wait, where a setting would go beyond what timers can hold.
pub const LONGEST: Duration = Duration::from_secs(86_400 * 365);

/// The timer of a connection.
pub struct Deadline {
    timer: Pin<Box<Sleep>>,
    /// When the wait in progress ends.
    at: Instant,
    /// When the timer fires; not after `at`.
    armed: Instant,
}

impl Deadline {
    /// A timer; nothing is awaited yet.
    pub fn new(first: Duration) -> Deadline {
        let at = Instant::now() + first.min(LONGEST);
        Deadline {
            timer: Box::pin(sleep_until(at)),
            at,
            armed: at,
        }
    }

    /// The wait that begins now may take this long.
    pub fn set(&mut self, limit: Duration) {
        self.set_from(None, limit);
    }

    /// The wait that begins now may take this long; `now` was read from the clock just before, if it
    /// was.
    pub fn set_from(&mut self, now: Option<std::time::Instant>, limit: Duration) {
        let now = now.map_or_else(Instant::now, Instant::from_std);
        self.set_at(now + limit.min(LONGEST));
    }

    /// The wait in progress ends at this moment.
    pub fn set_at(&mut self, at: Instant) {
        self.at = at;
        if at < self.armed {
            self.timer.as_mut().reset(at);
            self.armed = at;
        }
    }

    /// Ready when the time is over.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            if Instant::now() >= self.at {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(self.at);
            self.armed = self.at;
        }
    }

    /// Runs an operation; `None` when it comes to a stop for longer than `limit`: it says that it
    /// moved by setting what it is given. The clock is read only when it has to wait.
    pub async fn within<T>(
        &mut self,
        limit: Duration,
        mut operation: impl FnMut(&mut Context<'_>, &mut bool) -> Poll<T>,
    ) -> Option<T> {
        self.within_patient(limit, Duration::ZERO, |cx, moved, _| operation(cx, moved))
            .await
    }

    /// As [`within`](Self::within). The operation is told when it has waited for `patience`, and may
    /// from then on do what is not worth doing in short waits.
    pub async fn within_patient<T>(
        &mut self,
        limit: Duration,
        patience: Duration,
        mut operation: impl FnMut(&mut Context<'_>, &mut bool, bool) -> Poll<T>,
    ) -> Option<T> {
        let mut moved = true;
        let mut long = patience.is_zero();
        poll_fn(|cx| {
            loop {
                if let Poll::Ready(done) = operation(cx, &mut moved, long) {
                    return Poll::Ready(Some(done));
                }
                if std::mem::take(&mut moved) {
                    self.set(if long { limit } else { limit.min(patience) });
                }
                ready!(self.poll(cx));
                if long || limit <= patience {
                    return Poll::Ready(None);
                }
                long = true;
                self.set(limit - patience);
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn took(deadline: &mut Deadline, limit: u64) -> u64 {
        let start = Instant::now();
        let never = |_: &mut Context<'_>, _: &mut bool| Poll::<()>::Pending;
        assert_eq!(
            deadline.within(Duration::from_secs(limit), never).await,
            None
        );
        start.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn each_wait_has_its_own_end() {
        let mut deadline = Deadline::new(Duration::from_secs(60));
        for limit in [10, 75, 1, 60, 60, 3] {
            assert_eq!(took(&mut deadline, limit).await, limit);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_moves_has_more_time() {
        let mut deadline = Deadline::new(Duration::from_secs(60));
        let start = Instant::now();
        let mut steps = tokio::time::interval(Duration::from_secs(4));
        let mut left = 3;
        let moving = |cx: &mut Context<'_>, moved: &mut bool| {
            while left > 0 && steps.poll_tick(cx).is_ready() {
                left -= 1;
                *moved = true;
            }
            Poll::<()>::Pending
        };
        assert_eq!(deadline.within(Duration::from_secs(5), moving).await, None);
        // Ticks at 0, 4 and 8 seconds, then nothing more.
        assert_eq!(start.elapsed().as_secs(), 13);
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_wait_is_told_so() {
        for (limit, told) in [(60, Some(4)), (4, None), (3, None)] {
            let mut deadline = Deadline::new(Duration::from_secs(60));
            let start = Instant::now();
            let mut since = None;
            let waiting = |_: &mut Context<'_>, _: &mut bool, long: bool| {
                if long {
                    since.get_or_insert_with(|| start.elapsed().as_secs());
                }
                Poll::<()>::Pending
            };
            let limit = Duration::from_secs(limit);
            let patience = Duration::from_secs(4);
            let end = deadline.within_patient(limit, patience, waiting).await;
            assert_eq!((end, since, start.elapsed()), (None, told, limit));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_ready_operation_is_not_timed_out_by_an_old_timer() {
        let mut deadline = Deadline::new(Duration::from_secs(1));
        tokio::time::sleep(Duration::from_secs(5)).await;
        let ready = |_: &mut Context<'_>, _: &mut bool| Poll::Ready(7);
        assert_eq!(
            deadline.within(Duration::from_secs(1), ready).await,
            Some(7)
        );
        assert_eq!(took(&mut deadline, 2).await, 2);
    }
}
