//! The scripts decide as the same rules do in Rust: random schedules, on a real Redis.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::rig::*;
use crate::{Account, Ask, Central, Grant, Law, key_text};

#[derive(Clone, Debug)]
enum Op {
    Ask(Asked),
    /// The last ask of a node once more, or an older one.
    Again {
        node: usize,
        older: bool,
    },
    /// One that asks for itself.
    Check(u64),
    Pass(u64),
    /// The clock goes back.
    Back(u64),
    /// The window ends.
    Roll,
}

#[derive(Clone, Debug)]
struct Asked {
    node: usize,
    want: u64,
    /// Of what it holds, in hundredths.
    spent: u64,
    back: u64,
    over: u64,
}

const NODES: usize = 4;

fn ops() -> impl Strategy<Value = Vec<Op>> {
    // Requests that pass without a permit cost a little, or what nobody can count.
    let over = prop_oneof![
        30 => Just(0),
        15 => Just(2),
        1 => Just(i64::MAX as u64),
        1 => Just(u64::MAX),
    ];
    let ask = (0..NODES, 0..400u64, 0..=100u64, 0..=100u64, over).prop_map(
        |(node, want, spent, back, over)| {
            Op::Ask(Asked {
                node,
                want,
                spent,
                back,
                over: over / 2,
            })
        },
    );
    let again = (0..NODES, any::<bool>()).prop_map(|(node, older)| Op::Again { node, older });
    let op = prop_oneof![
        8 => ask,
        2 => again,
        2 => (0..30u64).prop_map(Op::Check),
        3 => (0..40_000_000_000u64).prop_map(Op::Pass),
        1 => (0..10_000_000_000u64).prop_map(Op::Back),
        1 => Just(Op::Roll),
    ];
    prop::collection::vec(op, 1..50)
}

fn laws() -> impl Strategy<Value = Law> {
    // Long enough that nothing ends by the server's own clock meanwhile.
    let hours = (2..50u64).prop_map(|hours| Duration::from_secs(3_600 * hours));
    (1..2_000u64, hours, 0..4u8, 1..200u64).prop_map(|(limit, window, kind, interval)| match kind {
        0 => Law::Fixed { limit, window },
        1 => Law::Sliding { limit, window },
        2 => Law::Log {
            limit: limit.min(200),
            window,
        },
        _ => Law::Bucket {
            interval_us: interval as f64 * 1e6 + 0.5,
            holds: limit as f64,
        },
    })
}

/// What a gateway knows: of the script and of the model, as their marks differ where the server's clock
/// is the only one.
#[derive(Clone, Default)]
struct Node {
    holds: u64,
    number: u64,
    marks: (u64, u64),
    asks: Vec<(Ask, u64)>,
}

struct Trial<'a> {
    central: &'a Central,
    law: Law,
    key: String,
    model: Account,
    nodes: Vec<Node>,
    now: u64,
    redis: &'a Redis,
}

impl Trial<'_> {
    fn is_fixed(&self) -> bool {
        matches!(self.law, Law::Fixed { .. })
    }

    async fn run(&mut self, ops: &[Op]) {
        for op in ops {
            match op {
                Op::Ask(asked) => self.ask(asked).await,
                Op::Again { node, older } => self.again(*node, *older).await,
                Op::Check(cost) => self.check(*cost).await,
                // Of fixed windows the clock is the server's.
                Op::Pass(us) => self.now += if self.is_fixed() { 0 } else { *us },
                // A log is kept in order, here by when requests came and there by their times.
                Op::Back(us) if matches!(self.law, Law::Sliding { .. } | Law::Bucket { .. }) => {
                    self.now -= us;
                }
                Op::Back(_) => {}
                Op::Roll if self.is_fixed() => self.roll(),
                Op::Roll => {}
            }
        }
    }

    async fn ask(&mut self, asked: &Asked) {
        let node = &mut self.nodes[asked.node];
        let left = node.holds - node.holds * asked.spent / 100;
        let back = left * asked.back / 100;
        node.number += 1;
        let ask = Ask {
            key: self.key.clone(),
            law: self.law,
            number: node.number,
            want: asked.want,
            back,
            over: asked.over,
            mark: node.marks.0,
            held: left - back,
            most: (!matches!(self.law, Law::Fixed { .. })).then_some(150),
            keeps: Duration::from_secs(40_000),
        };
        let (model_mark, held) = (node.marks.1, ask.held);
        node.asks.push((ask.clone(), model_mark));
        let (script, model) = self.both(asked.node, ask, model_mark).await;
        let node = &mut self.nodes[asked.node];
        node.holds = held + script.permits;
        node.marks = (script.mark, model.mark);
    }

    async fn again(&mut self, node: usize, older: bool) {
        let asks = &self.nodes[node].asks;
        let nth = if older { 2 } else { 1 };
        let Some(at) = asks.len().checked_sub(nth) else {
            return;
        };
        let (ask, mark) = asks[at].clone();
        self.both(node, ask, mark).await;
    }

    async fn both(&mut self, node: usize, ask: Ask, model_mark: u64) -> (Grant, Grant) {
        let clock = (!self.is_fixed()).then_some(self.now);
        let script = self.central.lease_as(node as u64, &ask, clock).await;
        let of_model = Ask {
            mark: model_mark,
            ..ask.clone()
        };
        let model = self.model.grant(node as u64, &of_model, self.now);
        let numbers = |grant: &Grant| (grant.permits, grant.left, grant.nodes, grant.others);
        assert_eq!(numbers(&script), numbers(&model), "{ask:?}");
        if !self.is_fixed() {
            assert_eq!(script, model, "{ask:?}");
        }
        (script, model)
    }

    async fn check(&mut self, cost: u64) {
        // The script of checks knows the server's clock only.
        if !self.is_fixed() {
            return;
        }
        let charge = crate::Charge {
            key: self.key.clone(),
            law: self.law,
            cost,
        };
        let script = self.central.check(&[charge], 0).await.unwrap().outcomes[0];
        let model = self.model.check(self.law, cost, self.now);
        assert_eq!(script.allowed, model.allowed);
        assert_eq!(script.remaining, model.remaining);
    }

    /// As the server's clock would do it: the count is gone, and another ends at another time.
    fn roll(&mut self) {
        const AGO: u64 = 10_000_000;
        self.redis.cli(&["DEL", &self.key]);
        let book = crate::key::book_of(&self.key);
        if let Ok(end) = self.redis.cli(&["HGET", &book, "end"]).parse::<u64>() {
            let end = (end - AGO).to_string();
            self.redis.cli(&["HSET", &book, "end", &end]);
        }
        self.model.count = crate::Count::Nothing;
        self.model.end = self.model.end.saturating_sub(AGO);
        for node in &mut self.nodes {
            node.holds = 0;
            let long_ago = |mark: u64| mark.saturating_sub(AGO);
            node.marks = (long_ago(node.marks.0), long_ago(node.marks.1));
            for (ask, mark) in &mut node.asks {
                ask.mark = long_ago(ask.mark);
                *mark = long_ago(*mark);
            }
        }
    }
}

#[test]
fn the_script_grants_as_the_rule_does() {
    let redis = Redis::start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let central = redis.central();
    let case = std::cell::Cell::new(0);
    let config = Config {
        cases: 100,
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    let tried = runner.run(&(laws(), ops()), |(law, ops)| {
        case.set(case.get() + 1);
        let mut trial = Trial {
            central: &central,
            law,
            key: key_text("t", "model", &case.get().to_string()),
            model: Account::default(),
            nodes: vec![Node::default(); NODES],
            now: 1_700_000_000_000_000,
            redis: &redis,
        };
        runtime.block_on(trial.run(&ops));
        Ok(())
    });
    tried.unwrap();
}
