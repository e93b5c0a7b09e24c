//! Frames: what is written is read, and whatever comes ends well.

use std::time::Duration;

use lockgate_quota::{Account, Ask, Count, Grant, Holding, Law, Outcome, Standing, Verdict};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::frame::{Charged, Frame, Hello, MOST, Put, Question, Reply};
use crate::kept::{Kept, Part};
use crate::ledger::Ledger;
use crate::place::{KeyId, PARTITIONS};

fn duration() -> impl Strategy<Value = Duration> {
    (0..=MOST).prop_map(Duration::from_micros)
}

fn law() -> impl Strategy<Value = Law> {
    let window = || (1_000u64..1 << 40).prop_map(Duration::from_micros);
    prop_oneof![
        (1..=MOST, window()).prop_map(|(limit, window)| Law::Fixed { limit, window }),
        (1..=MOST, window()).prop_map(|(limit, window)| Law::Sliding { limit, window }),
        (1u64..=1_000, window()).prop_map(|(limit, window)| Law::Log { limit, window }),
        (1.0..1e9, 1.0..1e3).prop_map(|(interval_us, holds)| Law::Bucket { interval_us, holds }),
    ]
}

fn key() -> impl Strategy<Value = KeyId> {
    any::<u128>().prop_map(KeyId)
}

fn charged() -> impl Strategy<Value = Charged> {
    (key(), law(), 0..=MOST).prop_map(|(key, law, cost)| Charged { key, law, cost })
}

fn ask() -> impl Strategy<Value = Ask> {
    let most = proptest::option::of(0..MOST);
    let counts = (0..=MOST, 0..=MOST, 0..=MOST, 0..=MOST, most);
    (law(), any::<u64>(), any::<u64>(), counts, duration()).prop_map(
        |(law, number, mark, (want, back, over, held, most), keeps)| Ask {
            key: String::new(),
            law,
            number,
            want,
            back,
            over,
            mark,
            held,
            most,
            keeps,
        },
    )
}

fn kept() -> impl Strategy<Value = Kept> {
    let n = || 0..=MOST;
    let count = prop_oneof![
        Just(Count::Nothing),
        (n(), n()).prop_map(|(end, used)| Count::Fixed { end, used }),
        (n(), n(), n()).prop_map(|(number, before, count)| Count::Sliding {
            number,
            before,
            count
        }),
        vec(n(), 0..20).prop_map(|times| Count::Log(times.into())),
        (0.0..MOST as f64).prop_map(|due| Count::Bucket { due }),
    ];
    let holding = (any::<u64>(), any::<u64>(), n(), n(), n());
    let holding = holding.prop_map(|(node, number, permits, held, ends)| Holding {
        node,
        number,
        permits,
        held,
        ends,
    });
    let ahead = -(MOST as i64)..=MOST as i64;
    let rest = (n(), n(), ahead);
    (law(), count, vec(holding, 0..5), rest).prop_map(
        |(law, count, holders, (before, end, ahead))| {
            let account = Account {
                count,
                holders,
                before,
                end,
            };
            Kept {
                law,
                account,
                ahead,
            }
        },
    )
}

fn part() -> impl Strategy<Value = Part> {
    let keys = vec((any::<u128>(), kept()), 0..4);
    let lost = proptest::option::of(0..MOST);
    let rest = (any::<u64>(), any::<bool>(), lost);
    (0..PARTITIONS as u16, rest, keys).prop_map(|(partition, (number, more, lost), keys)| {
        let place = u128::from(partition) << 116;
        let keys = keys
            .into_iter()
            .map(|(key, kept)| (KeyId((key >> 12) | place), kept));
        Part {
            partition,
            number,
            more,
            lost,
            keys: keys.collect(),
        }
    })
}

fn question() -> impl Strategy<Value = Question> {
    let more = -(MOST as i64)..=MOST as i64;
    prop_oneof![
        (key(), ask()).prop_map(|(key, ask)| Question::Take(key, ask)),
        vec(charged(), 1..4).prop_map(|charges| Question::Check(charges.into())),
        (charged(), more, any::<u64>())
            .prop_map(|(charge, more, mark)| Question::Settle(charge, more, mark)),
        (key(), law()).prop_map(|(key, law)| Question::Look(key, law)),
        key().prop_map(Question::Forget),
        (any::<u64>(), 0..=MOST, vec(part(), 0..4))
            .prop_map(|(epoch, sent, parts)| Question::Hand { epoch, sent, parts }),
        (any::<u64>(), any::<bool>()).prop_map(|(epoch, fresh)| Question::Done(epoch, fresh)),
    ]
}

fn reply() -> impl Strategy<Value = Reply> {
    let n = || 0..=MOST;
    let retry = proptest::option::of(duration());
    let outcome = (
        any::<bool>(),
        n(),
        duration(),
        retry,
        any::<u64>(),
        duration(),
    );
    let outcome = outcome.prop_map(|(allowed, remaining, reset, retry, mark, delay)| Outcome {
        allowed,
        remaining,
        reset,
        retry,
        delay,
        mark,
    });
    let times = (duration(), duration(), duration());
    let grant = ((n(), n(), n(), n()), any::<u64>(), times);
    prop_oneof![
        grant.prop_map(
            |((permits, left, nodes, others), mark, (reset, retry, good))| {
                Reply::Granted(Grant {
                    permits,
                    left,
                    reset,
                    retry,
                    good,
                    mark,
                    nodes,
                    others,
                })
            }
        ),
        (any::<bool>(), vec(outcome, 0..4)).prop_map(|(allowed, outcomes)| {
            let outcomes = outcomes.into();
            Reply::Verdict(Verdict { allowed, outcomes })
        }),
        any::<bool>().prop_map(Reply::Done),
        (n(), n(), n(), duration(), duration()).prop_map(
            |(remaining, nodes, held, reset, retry)| Reply::Standing(Standing {
                remaining,
                reset,
                retry,
                nodes,
                held,
            })
        ),
        Just(Reply::Moved),
        Just(Reply::Later),
        Just(Reply::Full),
    ]
}

fn put() -> impl Strategy<Value = Put> {
    (any::<u64>(), duration(), question()).prop_map(|(number, within, question)| Put {
        number,
        within,
        question,
    })
}

fn frame() -> impl Strategy<Value = Frame> {
    let hello = ("[a-z0-9.:]{1,40}", any::<u64>(), any::<u64>(), any::<u64>());
    prop_oneof![
        hello.prop_map(|(name, run, knew, epoch)| Frame::Hello(Hello {
            name,
            run,
            knew,
            epoch
        })),
        (any::<u64>(), vec(put(), 0..6)).prop_map(|(epoch, asks)| Frame::Asks { epoch, asks }),
        (any::<u64>(), vec((any::<u64>(), reply()), 0..6))
            .prop_map(|(epoch, answers)| Frame::Answers { epoch, answers }),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read(frame in frame()) {
        let bytes = frame.write();
        let (head, rest) = bytes.split_first_chunk().unwrap();
        prop_assert_eq!(u32::from_be_bytes(*head) as usize, rest.len());
        prop_assert_eq!(Frame::read(rest), Ok(frame));
    }

    #[test]
    fn whatever_comes_ends_well(bytes in vec(any::<u8>(), 0..400)) {
        let _ = Frame::read(&bytes);
    }

    /// Frames that are nearly right get further in.
    #[test]
    fn a_bent_frame_ends_well(
        frame in frame(),
        bent in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = frame.write();
        for (at, byte) in bent {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        let _ = Frame::read(bytes.get(4..).unwrap_or_default());
    }

    /// What a peer may say in good order but without sense does no harm to who counts.
    #[test]
    fn whatever_is_asked_is_answered(
        parts in vec(part(), 0..6),
        questions in vec((any::<u64>(), question()), 0..20),
        now in 1u64 << 50..1 << 51,
    ) {
        let ledger = Ledger::new(1 << 20);
        ledger.open_all();
        // With the keys that were handed over, too.
        let known: Vec<_> = parts.iter().flat_map(|part| &part.keys).cloned().collect();
        ledger.take_over(9, parts.clone(), (now, now));
        let looks = || -> Vec<_> {
            let look = |(key, kept): &(KeyId, Kept)| ledger.ask(1, &Question::Look(*key, kept.law), now);
            known.iter().map(look).collect()
        };
        // What comes twice counts once.
        let before = looks();
        ledger.take_over(9, parts, (now, now));
        prop_assert_eq!(before, looks());
        for (key, kept) in known {
            let charge = Charged { key, law: kept.law, cost: 1 };
            ledger.ask(1, &Question::Check([charge].into_iter().collect()), now);
            ledger.ask(1, &Question::Look(key, kept.law), now);
        }
        for (at, (node, question)) in questions.iter().enumerate() {
            ledger.ask(*node, question, now + at as u64);
        }
        ledger.sweep(now);
    }
}

/// Who counts is asked with numbers that come from elsewhere: none of them may make a frame that is none.
#[test]
fn whatever_is_written_can_be_read() {
    let law = Law::Fixed {
        limit: 10,
        window: Duration::from_secs(60),
    };
    let (key, most) = (KeyId::of("k"), Duration::MAX);
    let charge = Charged {
        key,
        law,
        cost: u64::MAX,
    };
    let ask = Ask {
        key: String::new(),
        law,
        number: u64::MAX,
        want: u64::MAX,
        back: u64::MAX,
        over: u64::MAX,
        mark: u64::MAX,
        held: u64::MAX,
        most: Some(u64::MAX),
        keeps: most,
    };
    let settle = |more| Question::Settle(charge, more, u64::MAX);
    let asks = [
        Question::Take(key, ask),
        Question::Check([charge].into_iter().collect()),
        settle(i64::MAX),
        settle(i64::MIN),
    ];
    let put = |question| Put {
        number: u64::MAX,
        within: Duration::MAX,
        question,
    };
    let asks = Frame::Asks {
        epoch: u64::MAX,
        asks: asks.into_iter().map(put).collect(),
    };
    let n = u64::MAX;
    let outcome = Outcome {
        allowed: true,
        remaining: n,
        reset: most,
        retry: Some(most),
        delay: most,
        mark: n,
    };
    let answers = [
        Reply::Granted(Grant {
            permits: n,
            left: n,
            reset: most,
            retry: most,
            good: most,
            mark: n,
            nodes: n,
            others: n,
        }),
        Reply::Verdict(Verdict {
            allowed: true,
            outcomes: [outcome].into_iter().collect(),
        }),
        Reply::Standing(Standing {
            remaining: n,
            reset: most,
            retry: most,
            nodes: n,
            held: n,
        }),
    ];
    let answers = Frame::Answers {
        epoch: n,
        answers: answers.into_iter().map(|answer| (n, answer)).collect(),
    };
    for frame in [asks, answers] {
        let read = Frame::read(&frame.write()[4..]);
        assert!(read.is_ok(), "{read:?}");
    }
}

#[test]
fn another_protocol_is_refused() {
    let hello = Frame::Hello(Hello {
        name: "a".to_owned(),
        run: 1,
        knew: 0,
        epoch: 1,
    });
    let mut bytes = hello.write();
    bytes[5] = 2;
    assert!(Frame::read(&bytes[4..]).is_err());
    assert!(Frame::read(b"GET / HTTP/1.1\r\n").is_err());
}

#[test]
fn a_question_is_short() {
    let charge = Charged {
        key: KeyId::of("k"),
        law: Law::Fixed {
            limit: 10_000,
            window: Duration::from_secs(60),
        },
        cost: 1,
    };
    let long = |count: usize| {
        let one = |number| Put {
            number,
            within: Duration::from_millis(50),
            question: Question::Check([charge].into_iter().collect()),
        };
        let asks = (0..count as u64).map(one).collect();
        Frame::Asks {
            epoch: 1 << 30,
            asks,
        }
        .write()
        .len()
    };
    assert!((long(64) - long(1)) / 63 <= 32, "{}", long(64));
}
