//! What requests really cost, said to the store when they are over: beside the traffic, many at once.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;

use crate::Nanos;
use crate::store::{QuotaStore, Settled};

/// What waits to be said, while the store is slow. More is lost, and counted.
const MOST_WAITING: usize = 65_536;
/// What is said together.
const PER_ROUND: usize = 256;

/// See the module.
#[derive(Debug)]
pub struct Later {
    store: Arc<dyn QuotaStore>,
    queue: Mutex<Queue>,
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(Settled, Nanos)>,
    /// Whether there is a task.
    runs: bool,
}

impl Later {
    /// For a store.
    pub fn new(store: Arc<dyn QuotaStore>) -> Later {
        Later {
            store,
            queue: Mutex::default(),
            lost: AtomicU64::new(0),
        }
    }

    /// Says it soon, once: one that gets no answer may have been counted, and is not said again. One that could
    /// not be said is lost.
    pub fn settle(self: &Arc<Later>, settled: impl IntoIterator<Item = Settled>, now: Nanos) {
        let mut queue = self.queue();
        for one in settled {
            if one.more == 0 {
                continue;
            }
            if queue.waiting.len() < MOST_WAITING {
                queue.waiting.push_back((one, now));
            } else {
                self.lose(1);
            }
        }
        if queue.waiting.is_empty() || queue.runs {
            return;
        }
        match Handle::try_current() {
            Ok(runtime) => {
                queue.runs = true;
                // A runtime that ends drops the task here and now.
                drop(queue);
                let running = Running {
                    later: Arc::clone(self),
                    done: false,
                    saying: 0,
                };
                runtime.spawn(running.run());
            }
            // The process ends.
            Err(_) => {
                let lost = queue.waiting.drain(..).count();
                self.lose(lost as u64);
            }
        }
    }

    /// How many were not said, or got no answer.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn lose(&self, many: u64) {
        self.lost.fetch_add(many, Ordering::Relaxed);
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Option<Vec<(Settled, Nanos)>> {
        let mut queue = self.queue();
        if queue.waiting.is_empty() {
            queue.runs = false;
            return None;
        }
        let some = queue.waiting.len().min(PER_ROUND);
        Some(queue.waiting.drain(..some).collect())
    }
}

/// The task: if it ends with its runtime, the next request starts another.
struct Running {
    later: Arc<Later>,
    /// It ended by itself.
    done: bool,
    /// What it says at the moment.
    saying: usize,
}

impl Running {
    async fn run(mut self) {
        while let Some(round) = self.later.next() {
            self.saying = round.len();
            // One by one, so that they need not be in one slot; a connection carries them together.
            let store = &self.later.store;
            let each = round.iter().map(|(settled, now)| async move {
                let said = store.settle(std::slice::from_ref(settled), *now);
                u64::from(said.await.is_err())
            });
            let lost: u64 = futures::future::join_all(each).await.into_iter().sum();
            self.later.lose(lost);
            self.saying = 0;
        }
        self.done = true;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It ended by itself with nothing to do, or another has begun since: then two would do no harm, as each
        // takes what it says.
        if !self.done {
            self.later.lose(self.saying as u64);
            self.later.queue().runs = false;
        }
    }
}
