//! Sliding windows of two counters, in one word.
//!
//! The state says when it stops to count, at the end of the window after its own; from that its own
//! window follows, so no window number is kept.

use crate::packed::Taken;
use crate::slot::{Code, MILLI, SECOND, field};
use crate::weigh::Weigh;
use crate::{Decision, NEVER, Nanos, needed};

/// How a state is laid out.
#[derive(Clone, Copy, Debug)]
struct Layout {
    code: Code,
    /// Of the expiry. Not longer than the window, else two windows would look the same.
    unit: Nanos,
    expiry_bits: u32,
    count_bits: u32,
}

const LONG: Layout = Layout {
    code: Code::Sliding,
    unit: SECOND,
    expiry_bits: 30,
    count_bits: 25,
};
const SHORT: Layout = Layout {
    code: Code::SlidingShort,
    unit: MILLI,
    expiry_bits: 40,
    count_bits: 20,
};

/// Eight years: two such windows from now still fit the bits of an expiry.
const LONGEST: Nanos = (1 << 28) * SECOND;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sliding {
    weigh: Weigh,
    layout: Layout,
}

/// The counters as of a time.
struct Window {
    /// When they stop to count, in units of the layout.
    expiry: u64,
    /// The window before, and the running one.
    spans: [u64; 2],
    /// What is to come of the running one.
    left: Nanos,
    /// They were counted under another window length.
    foreign: bool,
}

impl Sliding {
    /// `None` if the limit does not fit the layout.
    pub(crate) fn new(limit: u64, window: Nanos, strict: bool) -> Option<Sliding> {
        let layout = if window < SECOND { SHORT } else { LONG };
        let window = window.clamp(MILLI, LONGEST);
        let weigh = Weigh {
            limit,
            width: window,
            strict,
        };
        (limit >> layout.count_bits == 0).then_some(Sliding { weigh, layout })
    }

    pub(crate) fn code(&self) -> Code {
        self.layout.code
    }

    fn expiry(&self, window: u64) -> u64 {
        ((window + 2) * self.weigh.width).div_ceil(self.layout.unit)
    }

    fn pack(&self, window: &Window) -> u128 {
        let Layout {
            expiry_bits,
            count_bits,
            ..
        } = self.layout;
        let most = |bits: u32, value: u64| u128::from(value.min((1 << bits) - 1));
        most(expiry_bits, window.expiry) << (2 * count_bits)
            | most(count_bits, window.spans[0]) << count_bits
            | most(count_bits, window.spans[1])
    }

    fn unpack(&self, state: u128) -> (u64, [u64; 2]) {
        let bits = self.layout.count_bits;
        let expiry = field(state, 2 * bits, self.layout.expiry_bits);
        (expiry, [field(state, bits, bits), field(state, 0, bits)])
    }

    fn window(&self, state: u128, now: Nanos) -> Window {
        let width = self.weigh.width;
        let at = now / width;
        let (held, [before, current]) = self.unpack(state);
        let running = Window {
            expiry: self.expiry(at),
            spans: [0, 0],
            left: width - now % width,
            foreign: false,
        };
        let spans = if held == running.expiry {
            [before, current]
        } else if held <= (at * width).div_ceil(self.layout.unit) {
            // Nothing that is held reaches into the window before.
            [0, 0]
        } else if held == self.expiry(at.saturating_sub(1)) {
            [current, 0]
        } else if held == self.expiry(at + 1) {
            // Somebody whose clock was read later has opened the next window already.
            return Window {
                expiry: held,
                spans: [before, current],
                left: width,
                foreign: false,
            };
        } else {
            // What was counted under another window length stays, as of now.
            return Window {
                spans: [before, current],
                foreign: true,
                ..running
            };
        };
        Window { spans, ..running }
    }

    pub(crate) fn take(&self, state: u128, cost: u64, now: Nanos) -> Taken {
        let mut window = self.window(state, now);
        let used = self.weigh.used(&window.spans, window.left);
        let limit = self.weigh.limit;
        let mut decision = Decision {
            allowed: used.saturating_add(needed(cost)) <= limit,
            limit,
            remaining: limit.saturating_sub(used),
            reset: window.left,
            retry: 0,
            delay: 0,
        };
        if !decision.allowed {
            decision.retry = self.weigh.retry(&window.spans, window.left, needed(cost));
            if decision.retry != NEVER {
                decision.reset = decision.retry;
            }
            return Taken::refused(decision, window.foreign.then(|| self.pack(&window)));
        }
        decision.remaining = limit - used - cost;
        window.spans[1] += cost;
        Taken {
            decision,
            next: (cost > 0).then(|| self.pack(&window)),
            mark: window.expiry,
        }
    }

    /// Takes back a charge, if the window it was made in is the running one.
    pub(crate) fn give(&self, state: u128, cost: u64, mark: u64, now: Nanos) -> Option<u128> {
        let mut window = self.window(state, now);
        let current = window.spans[1];
        window.spans[1] = current.saturating_sub(cost);
        (window.expiry == mark && window.spans[1] < current).then(|| self.pack(&window))
    }

    /// Charges what has been used already, whether it fits or not.
    pub(crate) fn charge(&self, state: u128, cost: u64, now: Nanos) -> Option<u128> {
        let mut window = self.window(state, now);
        window.spans[1] = window.spans[1].saturating_add(cost);
        (cost > 0).then(|| self.pack(&window))
    }
}
