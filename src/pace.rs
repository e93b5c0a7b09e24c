//! Long work that lets others have the core.
//!
//! Reading and compiling a configuration takes milliseconds, on machines where a worker may want
//! the same core. The scheduler lets a thread that runs go on for some milliseconds before one that
//! has just woken up takes its place, whatever their priorities; so the work offers its place itself.

use std::time::{Duration, Instant};

/// How long others wait at most. What is left of an offer nobody takes is a system call.
const TURN: Duration = Duration::from_micros(150);

/// The clock is looked at once in so many steps: a step may be as small as one value.
const STEPS: u32 = 16;

/// Kept by one piece of work. Its steps should be shorter than [`TURN`].
pub(crate) struct Pace {
    since: Instant,
    steps: u32,
}

impl Pace {
    /// From now on.
    pub(crate) fn start() -> Pace {
        Pace {
            since: Instant::now(),
            steps: 0,
        }
    }

    /// One step is done.
    pub(crate) fn step(&mut self) {
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS) && self.since.elapsed() >= TURN {
            std::thread::yield_now();
            self.since = Instant::now();
        }
    }
}
