//! Gateways, a store and a network between them, in virtual time: every request, ask and answer is an
//! event. The holders and the rule of grants are the real ones.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::{
    Account, Claim, Due, Grant, Holder, Law, Name, Nanos, RoundTrip, Spend, Terms, count::micros,
};

pub(super) const MS: Nanos = 1_000_000;
pub(super) const SECOND: Nanos = 1_000 * MS;
/// Where time begins: before it there may have been a window.
pub(super) const START: Nanos = 1_000_000 * SECOND;
/// How long a call may take.
const DEADLINE: Nanos = 20 * MS;
/// How long a request waits for a permit.
const PATIENCE: Nanos = SECOND;
const PAUSE: Nanos = 5 * MS;

/// Numbers that look random: splitmix.
pub(super) struct Random(pub u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// From 0 to 1.
    pub(super) fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(super) fn chance(&mut self, part: f64) -> bool {
        self.part() < part
    }
}

/// What goes wrong.
#[derive(Clone, Copy, Default)]
pub(super) struct Faults {
    /// An ask, or its answer, is lost.
    pub loss: f64,
    /// An ask arrives twice, the second time up to a second later.
    pub twice: f64,
    /// Way there, and back, beyond half a round trip.
    pub jitter: Nanos,
    /// With each request, a gateway dies and another starts in its place.
    pub crash: f64,
    /// Every now and then nobody answers for some seconds.
    pub outage: bool,
}

enum Event {
    Timer,
    Arrives { due: Due, sent: Nanos, counts: bool },
    Answer { due: Due, grant: Grant, sent: Nanos },
    Fails { due: Due },
}

struct Node {
    holder: Holder,
    id: u64,
    pause: Nanos,
    timer: Nanos,
    waiting: Vec<Nanos>,
}

/// What came of it.
#[derive(Default)]
pub(super) struct Outcome {
    pub requests: u64,
    pub asks: u64,
    pub waited: u64,
    pub refused: Vec<Nanos>,
    pub admitted: Vec<Nanos>,
    /// Windows by their end, as the store had them: and their begin.
    pub windows: BTreeMap<Nanos, Nanos>,
    pub crashes: u64,
    /// Those for whom no answer came in time.
    pub away: u64,
}

pub(super) struct Sim {
    terms: Terms,
    nodes: Vec<Node>,
    store: Account,
    random: Random,
    faults: Faults,
    events: BinaryHeap<Reverse<(Nanos, u64, usize)>>,
    kept: BTreeMap<u64, (u64, Event)>,
    number: u64,
    ids: u64,
    half: Nanos,
    pub out: Outcome,
}

impl Sim {
    pub(super) fn new(terms: Terms, nodes: usize, rtt: Nanos, seed: u64, faults: Faults) -> Sim {
        let mut sim = Sim {
            terms,
            nodes: Vec::new(),
            store: Account::default(),
            random: Random(seed),
            faults,
            events: BinaryHeap::new(),
            kept: BTreeMap::new(),
            number: 0,
            ids: 0,
            half: rtt / 2,
            out: Outcome::default(),
        };
        for _ in 0..nodes {
            let node = sim.node();
            sim.nodes.push(node);
        }
        sim
    }

    fn node(&mut self) -> Node {
        self.ids += 1;
        Node {
            holder: Holder::new(8),
            id: self.ids,
            pause: 0,
            timer: Nanos::MAX,
            waiting: Vec::new(),
        }
    }

    /// Requests by time, each at a gateway; then until all is quiet.
    pub(super) fn run(&mut self, requests: &[(Nanos, usize)], end: Nanos) {
        for (at, node) in requests {
            self.until(*at);
            if self.faults.crash > 0.0 && self.random.chance(self.faults.crash) {
                self.out.crashes += 1;
                self.nodes[*node] = self.node();
            }
            self.out.requests += 1;
            self.request(*node, *at, *at);
        }
        self.until(end);
    }

    fn until(&mut self, at: Nanos) {
        while let Some(Reverse((time, number, node))) = self.events.peek().copied() {
            if time > at {
                return;
            }
            self.events.pop();
            if let Some((id, event)) = self.kept.remove(&number) {
                self.event(node, id, event, time);
            }
        }
    }

    fn push(&mut self, at: Nanos, node: usize, event: Event) {
        self.number += 1;
        self.events.push(Reverse((at, self.number, node)));
        self.kept.insert(self.number, (self.nodes[node].id, event));
    }

    fn request(&mut self, node: usize, came: Nanos, now: Nanos) {
        let claim = Claim {
            name: Name {
                scope: "s",
                rule: "r",
                text: "hot",
            },
            terms: &self.terms,
            cost: 1,
        };
        let (spend, due) = self.nodes[node].holder.spend(&claim, now);
        match spend {
            Spend::Known(outcome) if outcome.allowed => self.out.admitted.push(now),
            Spend::Known(_) => self.out.refused.push(now),
            Spend::Wait if now < came + PATIENCE => {
                if came == now {
                    self.out.waited += 1;
                }
                self.nodes[node].waiting.push(came);
            }
            Spend::Wait | Spend::Away => self.out.away += 1,
            Spend::Full => panic!("one key has a place"),
        }
        if due {
            self.look(node, now);
        }
    }

    /// Sends what is due, and says when to come again.
    fn look(&mut self, node: usize, now: Nanos) {
        if now >= self.nodes[node].pause {
            let due = self.nodes[node].holder.due(now, 512);
            if !due.is_empty() {
                self.nodes[node].pause = now + PAUSE;
            }
            for due in due {
                self.out.asks += 1;
                self.send(node, due, now);
            }
        }
        let this = &mut self.nodes[node];
        let Some(next) = this.holder.next() else {
            return;
        };
        let next = next.max(now + 1);
        let next = if next <= now + PAUSE {
            next.max(this.pause)
        } else {
            next
        };
        if next < this.timer || this.timer <= now {
            this.timer = next;
            self.push(next, node, Event::Timer);
        }
    }

    fn send(&mut self, node: usize, due: Due, now: Nanos) {
        let faults = self.faults;
        if self.random.chance(faults.twice) {
            let late = now + self.half + self.random.below(SECOND);
            let due = due.clone();
            let counts = false;
            self.push(
                late,
                node,
                Event::Arrives {
                    due,
                    sent: now,
                    counts,
                },
            );
        }
        let lost = self.random.chance(faults.loss) || faults.outage && now / SECOND % 20 < 5;
        if lost {
            self.push(now + DEADLINE, node, Event::Fails { due });
            return;
        }
        let at = now + self.half + self.random.below(faults.jitter);
        let counts = true;
        self.push(
            at,
            node,
            Event::Arrives {
                due,
                sent: now,
                counts,
            },
        );
    }

    fn event(&mut self, node: usize, id: u64, event: Event, now: Nanos) {
        let alive = self.nodes[node].id == id;
        match event {
            Event::Arrives { due, sent, counts } => {
                let grant = self.grant(id, &due, now);
                let lost = self.random.chance(self.faults.loss);
                let back = now + self.half + self.random.below(self.faults.jitter);
                if !counts {
                    return;
                }
                if lost || back > sent + DEADLINE {
                    self.push_for(id, (sent + DEADLINE).max(now), node, Event::Fails { due });
                } else {
                    self.push_for(id, back, node, Event::Answer { due, grant, sent });
                }
            }
            Event::Timer if alive => self.look(node, now),
            Event::Answer { due, grant, sent } if alive => {
                let trip = RoundTrip { sent, now };
                let more = self.nodes[node].holder.granted(&due, &grant, trip);
                self.answered(node, now, more);
            }
            Event::Fails { due } if alive => {
                self.nodes[node].holder.failed(&due, now);
                self.answered(node, now, false);
            }
            _ => {}
        }
    }

    fn push_for(&mut self, id: u64, at: Nanos, node: usize, event: Event) {
        self.number += 1;
        self.events.push(Reverse((at, self.number, node)));
        self.kept.insert(self.number, (id, event));
    }

    fn answered(&mut self, node: usize, now: Nanos, more: bool) {
        for came in std::mem::take(&mut self.nodes[node].waiting) {
            self.request(node, came, now);
        }
        let _ = more;
        self.look(node, now);
    }

    fn grant(&mut self, id: u64, due: &Due, now: Nanos) -> Grant {
        let grant = self.store.grant(id, &due.ask, now / 1_000);
        if let Law::Fixed { window, .. } = self.terms.law()
            && self.store.end > 0
        {
            let end = self.store.end * 1_000;
            let begin = end - micros(window) * 1_000;
            self.out.windows.insert(end, begin);
        }
        grant
    }

    /// What became of permits, of all gateways that are alive.
    pub(super) fn balanced(&self) {
        for node in &self.nodes {
            let held = node.holder.held();
            let sum = held.spent + held.held + held.returned + held.stranded;
            assert_eq!(held.granted, sum, "{held:?}");
        }
    }
}
