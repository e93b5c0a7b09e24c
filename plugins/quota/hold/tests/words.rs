//! What a request is told, step by step.

use std::time::Duration;

use super::sim::{MS, SECOND, START};
use crate::{Claim, Due, Grant, Holder, Law, Name, RoundTrip, Spend, Terms};

fn terms(limit: u64) -> Terms {
    let window = Duration::from_secs(60);
    Terms::new(Law::Fixed { limit, window }, 1, 0.0).unwrap()
}

fn claim(terms: &Terms, cost: u64) -> Claim<'_> {
    let name = Name {
        scope: "s",
        rule: "r",
        text: "a",
    };
    Claim { name, terms, cost }
}

fn grant(permits: u64, left: u64) -> Grant {
    Grant {
        permits,
        left,
        reset: Duration::from_secs(60),
        retry: Duration::from_secs(60),
        good: Duration::from_secs(60),
        mark: 7_000_000,
        nodes: 1,
        others: 0,
    }
}

/// The one ask that is due.
fn due(holder: &Holder, now: u64) -> Due {
    let mut due = holder.due(now, 8);
    assert_eq!(due.len(), 1, "{due:?}");
    due.remove(0)
}

fn answer(holder: &Holder, due: &Due, grant: Grant, sent: u64) {
    let now = sent + MS;
    holder.granted(due, &grant, RoundTrip { sent, now });
}

fn allowed(holder: &Holder, claim: &Claim<'_>, now: u64) -> Option<bool> {
    match holder.spend(claim, now).0 {
        Spend::Known(outcome) => Some(outcome.allowed),
        _ => None,
    }
}

#[test]
fn one_ask_for_all_who_wait_and_the_next_when_permits_run_low() {
    let (holder, terms) = (Holder::new(8), terms(100));
    let one = claim(&terms, 1);
    assert_eq!(holder.spend(&one, START), (Spend::Wait, true));
    // Whoever comes meanwhile asks for nothing.
    assert_eq!(holder.spend(&one, START), (Spend::Wait, false));
    let first = due(&holder, START);
    assert_eq!((first.ask.want, first.ask.held), (25, 0));
    assert!(holder.due(START, 8).is_empty());
    answer(&holder, &first, grant(20, 80), START);
    let now = START + 2 * MS;
    for left in (0..20).rev() {
        let (spend, asks) = holder.spend(&one, now);
        let Spend::Known(outcome) = spend else {
            panic!("{spend:?}");
        };
        assert!(outcome.allowed);
        assert_eq!(outcome.remaining, 80 + left);
        assert_eq!(asks, left == 5, "a quarter is low");
    }
    assert_eq!(holder.spend(&one, now).0, Spend::Wait);
    let second = due(&holder, now);
    assert!(second.ask.number > first.ask.number);
    assert_eq!(second.ask.want, 50, "twice as many: they were gone at once");
    answer(&holder, &second, grant(0, 0), now);
    // Nobody else holds any: no before the window ends, and nothing is asked.
    let (spend, asks) = holder.spend(&one, now + SECOND);
    let Spend::Known(outcome) = spend else {
        panic!("{spend:?}");
    };
    assert!(!outcome.allowed && !asks);
    let retry = outcome.retry.unwrap();
    assert!(retry > Duration::from_secs(58) && retry < Duration::from_secs(60));
    assert_eq!(allowed(&holder, &one, now + 61 * SECOND), None);
}

#[test]
fn permits_lapse_with_their_window_as_of_when_they_were_asked_for() {
    let (holder, terms) = (Holder::new(8), terms(100));
    let one = claim(&terms, 1);
    holder.spend(&one, START);
    let first = due(&holder, START);
    answer(&holder, &first, grant(20, 80), START);
    assert_eq!(allowed(&holder, &one, START + 60 * SECOND - 1), Some(true));
    assert_eq!(allowed(&holder, &one, START + 60 * SECOND), None);
    let again = due(&holder, START + 60 * SECOND);
    assert_eq!(again.ask.held, 0);
    let held = holder.held();
    assert_eq!(
        (held.granted, held.spent, held.held + held.stranded),
        (20, 1, 19)
    );
}

#[test]
fn an_ask_without_an_answer_is_asked_again_as_it_was() {
    let (holder, terms) = (Holder::new(8), terms(100));
    let one = claim(&terms, 1);
    holder.spend(&one, START);
    let first = due(&holder, START);
    holder.failed(&first, START + 20 * MS);
    assert_eq!(holder.spend(&one, START + 21 * MS).0, Spend::Away);
    assert!(holder.due(START + 119 * MS, 8).is_empty());
    let again = due(&holder, START + 120 * MS);
    assert_eq!(again, first);
    assert_eq!(holder.spend(&one, START + 121 * MS).0, Spend::Away);
    answer(&holder, &again, grant(20, 80), START + 121 * MS);
    assert_eq!(allowed(&holder, &one, START + 123 * MS), Some(true));
    assert_eq!(holder.held().asks, 1);
    // What comes late is nobody's.
    answer(&holder, &first, grant(20, 60), START + 123 * MS);
    assert_eq!(holder.held().granted, 20);
}

#[test]
fn what_lies_idle_goes_back_and_the_place_is_free_then() {
    let (holder, terms) = (Holder::new(8), terms(1_000));
    let one = claim(&terms, 1);
    holder.spend(&one, START);
    let first = due(&holder, START);
    answer(&holder, &first, grant(250, 750), START);
    assert_eq!(allowed(&holder, &one, START + 2 * MS), Some(true));
    let mut now = START;
    let back = loop {
        now += SECOND;
        assert!(now < START + 20 * SECOND);
        if let Some(due) = holder.due(now, 8).pop() {
            break due;
        }
    };
    assert_eq!((back.ask.want, back.ask.back, back.ask.held), (0, 249, 0));
    assert_eq!(back.ask.mark, 7_000_000);
    answer(&holder, &back, grant(0, 999), now);
    for _ in 0..20 {
        now += SECOND;
        assert!(holder.due(now, 8).is_empty());
    }
    let held = holder.held();
    assert_eq!((held.keys, held.returned, held.spent), (0, 249, 1));
    assert_eq!(holder.next(), None);
}

#[test]
fn dear_requests_wait_for_enough_or_learn_that_there_is_not() {
    let (holder, terms) = (Holder::new(8), terms(100));
    assert_eq!(allowed(&holder, &claim(&terms, 101), START), Some(false));
    let dear = claim(&terms, 60);
    holder.spend(&dear, START);
    let first = due(&holder, START);
    assert_eq!(first.ask.want, 60);
    answer(&holder, &first, grant(50, 50), START);
    // There is something for others, and too little for this one.
    let looks = claim(&terms, 0);
    assert_eq!(allowed(&holder, &looks, START + 2 * MS), Some(true));
    assert_eq!(holder.spend(&dear, START + 2 * MS), (Spend::Wait, true));
    let second = due(&holder, START + 2 * MS);
    assert_eq!(second.ask.held, 50);
    answer(&holder, &second, grant(25, 25), START + 2 * MS);
    assert_eq!(allowed(&holder, &dear, START + 4 * MS), Some(true));
    let part = holder.part(&dear, START + 4 * MS).unwrap();
    assert_eq!((part.permits, part.left), (15, 25));
    assert!(holder.give_back(&dear, 7_000_000, START + 4 * MS));
    assert!(
        !holder.give_back(&dear, 9_000_000, START + 4 * MS),
        "another window"
    );
    assert_eq!(holder.part(&dear, START + 4 * MS).unwrap().permits, 75);
}

#[test]
fn another_limit_on_the_same_key_has_permits_of_its_own() {
    let holder = Holder::new(8);
    let (wide, narrow) = (terms(100), terms(50));
    holder.spend(&claim(&wide, 1), START);
    let first = due(&holder, START);
    answer(&holder, &first, grant(20, 80), START);
    assert_eq!(
        allowed(&holder, &claim(&wide, 1), START + 2 * MS),
        Some(true)
    );
    assert_eq!(allowed(&holder, &claim(&narrow, 1), START + 2 * MS), None);
    assert_eq!(due(&holder, START + 2 * MS).ask.key, first.ask.key);
}

#[test]
fn what_was_spent_long_ago_is_no_permit_again() {
    let holder = Holder::new(8);
    let law = Law::Bucket {
        interval_us: 1_000.0,
        holds: 1_000.0,
    };
    // A hundred may be held.
    let terms = Terms::new(law, 1, 0.1).unwrap();
    let one = claim(&terms, 1);
    holder.spend(&one, START);
    let first = due(&holder, START);
    answer(&holder, &first, grant(90, 900), START);
    let now = START + 2 * MS;
    assert_eq!(allowed(&holder, &one, now), Some(true));
    assert!(holder.give_back(&claim(&terms, 11), 7_000_000, now));
    assert!(
        !holder.give_back(&one, 7_000_000, now),
        "the store knows what it is worth"
    );
    assert_eq!(holder.part(&one, now).unwrap().permits, 100);
}

#[test]
fn permits_of_the_window_before_are_given_back_there() {
    let holder = Holder::new(8);
    let window = Duration::from_secs(60);
    let law = Law::Sliding {
        limit: 1_000,
        window,
    };
    let terms = Terms::new(law, 1, 0.1).unwrap();
    let one = claim(&terms, 1);
    let grants = |due: &Due, mark, now| {
        let all = grant(due.ask.want, 900);
        answer(&holder, due, Grant { mark, ..all }, now);
    };
    holder.spend(&one, START);
    let first = due(&holder, START);
    assert_eq!(first.ask.want, 100);
    grants(&first, 7, START);
    let mut now = START + 2 * MS;
    // With a quarter left more is asked for: in the window that has begun meanwhile.
    let mut mark = |next, spent| {
        for _ in 0..spent {
            assert_eq!(allowed(&holder, &one, now), Some(true));
        }
        grants(&due(&holder, now), next, now);
        now += 2 * MS;
        let Spend::Known(outcome) = holder.spend(&one, now).0 else {
            panic!("it is held");
        };
        outcome.mark
    };
    assert_eq!(mark(8, 75), 7);
    // Nothing is older than the window before.
    assert_eq!(mark(9, 74), 8);
}
