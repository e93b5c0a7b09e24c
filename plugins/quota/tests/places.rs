use std::sync::Arc;
use std::time::Duration;

use super::rig::*;
use crate::{Central, Entered, LONGEST_LIFE, PlaceHeld, Places, Seat, Server};

const SECOND: Duration = Duration::from_secs(1);

fn seat(text: &str, most: u64) -> Seat {
    Seat {
        key: crate::key_text("t", "places", text),
        most,
    }
}

fn at(redis: &Redis, node: &str) -> Arc<Places> {
    Arc::new(Places::new(Arc::new(redis.central()), SECOND, node))
}

/// The place and how many are there; `None` when there is no room.
async fn enter(places: &Arc<Places>, seats: &[Seat]) -> Option<(PlaceHeld, Vec<u64>)> {
    match places.enter(seats, 0).await {
        Entered::In(place, there) => Some((place, there.to_vec())),
        Entered::Full(_) => None,
        Entered::Away(away, _) => panic!("{away}"),
    }
}

fn count(redis: &Redis, text: &str) -> String {
    redis.cli(&["ZCARD", &seat(text, 0).key])
}

async fn until_count(redis: &Redis, text: &str, expected: &str) {
    for _ in 0..1_000 {
        if count(redis, text) == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{text}: {} and not {expected}", count(redis, text));
}

#[tokio::test]
async fn gateways_share_places_and_leaving_makes_room() {
    let redis = Redis::start();
    let (one, other) = (at(&redis, "one"), at(&redis, "other"));
    let seats = [seat("a", 2)];
    let (first, there) = enter(&one, &seats).await.unwrap();
    assert_eq!(there, [1]);
    let (_second, there) = enter(&other, &seats).await.unwrap();
    assert_eq!(there, [2]);
    assert!(enter(&one, &seats).await.is_none());
    assert!(enter(&other, &seats).await.is_none());
    // Another key has room, and what was refused holds nothing.
    let _ = enter(&other, &[seat("b", 1)]).await.unwrap();
    assert_eq!((one.len(), count(&redis, "a")), (1, "2".to_owned()));
    drop(first);
    until_count(&redis, "a", "1").await;
    assert!(enter(&other, &seats).await.is_some());
}

#[tokio::test]
async fn a_request_has_a_place_everywhere_or_nowhere() {
    let redis = Redis::start();
    let places = at(&redis, "one");
    let both = [seat("wide", 9), seat("narrow", 1)];
    let (_held, there) = enter(&places, &both).await.unwrap();
    assert_eq!(there, [1, 1]);
    for _ in 0..5 {
        assert!(enter(&places, &both).await.is_none());
    }
    assert_eq!(count(&redis, "wide"), "1");
}

#[tokio::test]
async fn many_at_once_get_exactly_the_places() {
    let redis = Redis::start();
    let gateways: Vec<_> = (0..3).map(|n| at(&redis, &n.to_string())).collect();
    let asked: Vec<_> = (0..300)
        .map(|n| {
            let places = Arc::clone(&gateways[n % 3]);
            tokio::spawn(async move { enter(&places, &[seat("hot", 40)]).await })
        })
        .collect();
    let mut held = Vec::new();
    for answer in asked {
        held.extend(answer.await.unwrap());
    }
    assert_eq!(held.len(), 40);
    drop(held);
    until_count(&redis, "hot", "0").await;
    assert!(gateways.iter().all(|places| places.is_empty()));
}

#[tokio::test]
async fn a_place_is_kept_as_long_as_its_request_and_no_longer_than_its_gateway() {
    let redis = Redis::start();
    let gateway = at(&redis, "one");
    let (held, _) = enter(&gateway, &[seat("a", 1)]).await.unwrap();
    // A gateway that dies says nothing any more.
    let place = ["ZADD", &seat("a", 1).key, "NX"];
    let soon = redis.cli(&["TIME"]).lines().next().unwrap().to_owned() + "500";
    redis.cli(&[&place[..], &[&soon, "dead:1"]].concat());
    tokio::time::sleep(3 * SECOND).await;
    // Three lives later.
    assert!(enter(&at(&redis, "other"), &[seat("a", 1)]).await.is_none());
    assert_eq!(count(&redis, "a"), "1");
    drop(held);
    until_count(&redis, "a", "0").await;
    let ttl = redis.cli(&["PTTL", &seat("a", 1).key]);
    assert_eq!(ttl, "-2", "nothing is left");
}

#[tokio::test]
async fn a_server_that_forgot_learns_again() {
    let redis = Redis::start();
    let gateway = at(&redis, "one");
    let (_held, _) = enter(&gateway, &[seat("a", 1)]).await.unwrap();
    redis.cli(&["FLUSHALL"]);
    redis.cli(&["SCRIPT", "FLUSH"]);
    until_count(&redis, "a", "1").await;
    assert!(enter(&gateway, &[seat("a", 1)]).await.is_none());
}

#[tokio::test]
async fn who_is_let_pass_while_the_server_is_away_counts_when_it_is_back() {
    let port = free_port();
    let server = Server::Single {
        place: place(port),
        access: crate::Access::default(),
    };
    let central = Arc::new(Central::new(server, SECOND));
    let places = Arc::new(Places::new(central, SECOND, "one"));
    let seats = [seat("a", 1)];
    let Entered::Away(_, held) = places.enter(&seats, 0).await else {
        panic!("there is no server")
    };
    let Entered::Away(_, refused) = places.enter(&seats, 0).await else {
        panic!("there is no server")
    };
    drop(refused);
    // Who has waited before does not even ask.
    let Entered::Away(_, unasked) = places.enter_unasked(&seats, 0) else {
        panic!("nobody was asked")
    };
    let redis = Redis::on(port, &[]);
    until_count(&redis, "a", "2").await;
    drop(unasked);
    until_count(&redis, "a", "1").await;
    drop(held);
    until_count(&redis, "a", "0").await;
}

#[tokio::test]
async fn an_answer_that_nobody_waits_for_frees_its_place() {
    let redis = Redis::start();
    let places = at(&redis, "one");
    // Connected, so that the question is under way at once.
    drop(enter(&places, &[seat("b", 1)]).await);
    redis.signal(Signal::SIGSTOP);
    let asked = {
        let places = Arc::clone(&places);
        tokio::spawn(async move { enter(&places, &[seat("a", 1)]).await.is_some() })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    asked.abort();
    let _ = asked.await;
    assert!(places.is_empty());
    redis.signal(Signal::SIGCONT);
    until_count(&redis, "a", "0").await;
    assert!(enter(&places, &[seat("a", 1)]).await.is_some());
}

#[tokio::test]
async fn a_clock_that_was_turned_back_holds_nothing() {
    let redis = Redis::start();
    let places = at(&redis, "one");
    let key = seat("a", 1).key;
    redis.cli(&["ZADD", &key, "99999999999999", "from-tomorrow:1"]);
    assert!(enter(&places, &[seat("a", 1)]).await.is_some());
}

/// A member that some other gateway holds, for so long from now by the server's clock, in milliseconds.
fn forge(redis: &Redis, text: &str, from_now: u64) {
    let time = redis.cli(&["TIME"]);
    let seconds: u64 = time.lines().next().unwrap().parse().unwrap();
    let ends = ((seconds * 1_000) + from_now).to_string();
    redis.cli(&["ZADD", &seat(text, 0).key, &ends, "other:0"]);
}

#[tokio::test]
async fn a_clock_that_went_back_a_little_frees_no_place() {
    let redis = Redis::start();
    // Entered for ten seconds, just before the clock went back by at least two.
    forge(&redis, "a", 13_000);
    assert!(enter(&at(&redis, "one"), &[seat("a", 1)]).await.is_none());
    assert_eq!(count(&redis, "a"), "1");
}

#[tokio::test]
async fn a_shorter_life_does_not_shorten_that_of_others() {
    let redis = Redis::start();
    let long = Places::new(Arc::new(redis.central()), LONGEST_LIFE, "long");
    let seats = [seat("a", 2)];
    let (_held, _) = enter(&Arc::new(long), &seats).await.unwrap();
    let (_short, there) = enter(&at(&redis, "short"), &seats).await.unwrap();
    assert_eq!(there, [2]);
    let left: u64 = redis.cli(&["PTTL", &seats[0].key]).parse().unwrap();
    assert!(left > 5_000, "{left}");
}

#[tokio::test]
async fn who_enters_twice_because_an_answer_was_lost_has_one_place() {
    let redis = Redis::start();
    let lossy = Lossy::to(&redis).await;
    let places = Arc::new(Places::new(Arc::new(lossy.central()), SECOND, "one"));
    drop(enter(&places, &[seat("b", 1)]).await);
    until_count(&redis, "b", "0").await;
    lossy.lose(1);
    let both = [seat("wide", 9), seat("narrow", 1)];
    let (_held, there) = enter(&places, &both).await.expect("there is room");
    assert_eq!(there, [1, 1]);
    assert_eq!(
        (count(&redis, "wide"), count(&redis, "narrow")),
        ("1".into(), "1".into())
    );
}

#[tokio::test]
async fn who_is_refused_after_a_long_wait_holds_nothing() {
    let redis = Redis::start();
    let places = at(&redis, "one");
    // Connected, and known to the server.
    drop(enter(&places, &[seat("b", 1)]).await);
    until_count(&redis, "b", "0").await;
    forge(&redis, "a", 9_500);
    redis.signal(Signal::SIGSTOP);
    let asked = {
        let places = Arc::clone(&places);
        tokio::spawn(async move { enter(&places, &[seat("a", 1)]).await.is_some() })
    };
    // Longer than places go without a word.
    tokio::time::sleep(SECOND).await;
    redis.signal(Signal::SIGCONT);
    assert!(!asked.await.unwrap());
    for _ in 0..10 {
        assert_eq!(count(&redis, "a"), "1");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn the_last_places_of_what_is_not_configured_any_more_are_given_back() {
    let redis = Redis::start();
    let places = at(&redis, "one");
    let (held, _) = enter(&places, &[seat("a", 9)]).await.unwrap();
    forge(&redis, "a", 9_000);
    // Nothing but a word of its gateway frees a place now.
    redis.cli(&["PERSIST", &seat("a", 9).key]);
    assert_eq!(count(&redis, "a"), "2");
    drop(places);
    drop(held);
    until_count(&redis, "a", "1").await;
}
