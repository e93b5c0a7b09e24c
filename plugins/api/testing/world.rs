//! What surrounds a plugin in a test: a clock that only moves when told, consumers, state.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustc_hash::FxHashMap;
use serde_json::Value;

use crate::build_cx::{Shared, StateStore};
use crate::ctx::Env;
use crate::request::{Consumer, ConsumerCredential, Consumers};

/// What the wall clock shows at the start of a test, since the Unix epoch: 2026-01-02 03:04:05 UTC.
const START: Duration = Duration::from_secs(1_767_323_045);

/// How long a test waits for a future that is not a sleep before it fails.
const PATIENCE: Duration = Duration::from_secs(10);

/// The surroundings, shared by all instances and requests of a test.
#[derive(Default)]
pub(super) struct World {
    pub(super) attr: Value,
    pub(super) metadata: Value,
    pub(super) shared: Shared,
    pub(super) states: StateStore,
    pub(super) consumers: Table,
    pub(super) clock: Arc<Clock>,
}

/// Time by hand.
pub(super) struct Clock {
    start: Instant,
    passed: Mutex<Passed>,
}

#[derive(Clone, Copy, Default)]
struct Passed {
    total: Duration,
    slept: Duration,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock {
            start: Instant::now(),
            passed: Mutex::default(),
        }
    }
}

impl Clock {
    fn passed(&self) -> Passed {
        *self.passed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn advance(&self, by: Duration) {
        self.passed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .total += by;
    }

    /// All time slept so far.
    pub(super) fn slept(&self) -> Duration {
        self.passed().slept
    }

    pub(super) fn now(&self) -> Instant {
        self.start + self.passed().total
    }

    pub(super) fn wall(&self) -> SystemTime {
        UNIX_EPOCH + START + self.passed().total
    }
}

impl Env for World {
    fn consumers(&self) -> &dyn Consumers {
        &self.consumers
    }

    /// Ends at once; the clock has moved by `duration` then.
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let clock = Arc::clone(&self.clock);
        Box::pin(async move {
            let mut passed = clock.passed.lock().unwrap_or_else(PoisonError::into_inner);
            passed.total += duration;
            passed.slept += duration;
        })
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn wall(&self) -> SystemTime {
        self.clock.wall()
    }
}

/// Consumers by name and by key.
#[derive(Default)]
pub(super) struct Table {
    names: FxHashMap<String, Arc<ConsumerCredential>>,
    keys: FxHashMap<(String, String), Arc<ConsumerCredential>>,
}

impl Table {
    /// Adds a consumer without credentials, if there is none of that name.
    pub(super) fn name(&mut self, username: &str) -> Arc<Consumer> {
        if let Some(known) = self.names.get(username) {
            return Arc::clone(&known.consumer);
        }
        let consumer = Consumer {
            username: username.into(),
            ..Consumer::default()
        };
        self.insert(consumer)
    }

    /// Adds or replaces a consumer by name.
    pub(super) fn insert(&mut self, consumer: Consumer) -> Arc<Consumer> {
        let consumer = Arc::new(consumer);
        let version = self.names.len() as u64;
        let found = ConsumerCredential {
            consumer: Arc::clone(&consumer),
            credential_id: None,
            conf: Arc::new(()),
            version,
        };
        self.names
            .insert(consumer.username.to_string(), Arc::new(found));
        consumer
    }

    /// Adds a credential under its lookup key.
    pub(super) fn learn(&mut self, plugin: &str, key: String, found: ConsumerCredential) {
        self.keys.insert((plugin.to_owned(), key), Arc::new(found));
    }
}

impl Consumers for Table {
    fn by_key(&self, plugin: &str, key: &str) -> Option<&Arc<ConsumerCredential>> {
        self.keys.get(&(plugin.to_owned(), key.to_owned()))
    }
    fn by_name(&self, name: &str) -> Option<&Arc<ConsumerCredential>> {
        self.names.get(name)
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end on this thread.
pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    let begun = Instant::now();
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park_timeout(PATIENCE),
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "the plugin waits for something that does not come"
        );
    }
}
