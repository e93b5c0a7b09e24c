//! Peers that are none, and peers that do not answer.

use std::time::Duration;

use futures::future::join_all;
use lockgate_quota::{Away, Charge, Law, QuotaStore, Settled};
use openssl::ssl::{Ssl, SslContext, SslFiletype, SslMethod};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::certs::Authority;
use super::rig::{Gate, Rig, secret, until, until_asked};
use crate::core::{Core, node_id};
use crate::frame::{Charged, Frame, Hello, Question, Reply};
use crate::ledger::Asked;
use crate::members::{Node, Roll};
use crate::place::KeyId;
use crate::secure::{Identity, Secure, Unusable};

/// Two gateways, and one that does not belong to them though it is on the roll.
async fn stranger(identity: [Identity; 3]) {
    let mut rig = Rig::new();
    for identity in identity {
        rig.add(identity).await;
    }
    rig.publish();
    until(|| rig.members[0].figures().connected == 1 && rig.members[1].figures().connected == 1)
        .await;
    until(|| rig.members[0].figures().refused > 1 && rig.members[2].figures().refused > 1).await;
    assert_eq!(rig.members[2].figures().connected, 0);
    assert_eq!(rig.members[0].figures().connected, 1);
}

#[tokio::test]
async fn another_secret_is_refused_both_ways() {
    let other = Identity::Secret("another secret of some length".to_owned());
    stranger([secret(), secret(), other]).await;
}

#[tokio::test]
async fn another_authority_is_refused_both_ways() {
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let hosts = ["127.0.0.1"];
    stranger([
        ours.identity("a", &hosts),
        ours.identity("b", &hosts),
        other.identity("c", &hosts),
    ])
    .await;
}

#[tokio::test]
async fn a_certificate_of_another_host_is_refused_both_ways() {
    let ours = Authority::new("hosts");
    stranger([
        ours.identity("a", &["gateway.test", "127.0.0.1"]),
        ours.identity("b", &["127.0.0.1"]),
        ours.identity("c", &["127.0.0.2", "gateway.test"]),
    ])
    .await;
}

#[tokio::test]
async fn a_secret_does_not_meet_certificates() {
    let ours = Authority::new("mixed");
    stranger([
        ours.identity("a", &["127.0.0.1"]),
        ours.identity("b", &["127.0.0.1"]),
        secret(),
    ])
    .await;
}

#[tokio::test]
async fn noise_ends_nothing_but_its_connection() {
    let rig = Rig::of(2, |_| secret()).await;
    let name = &rig.members[0].name;
    for noise in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0; 100_000],
        vec![0x16; 5],
    ] {
        let mut tcp = TcpStream::connect(name).await.unwrap();
        let _ = tcp.write_all(&noise).await;
        let _ = tcp.shutdown().await;
        let mut rest = Vec::new();
        let _ = tcp.read_to_end(&mut rest).await;
    }
    // Who knows the secret, too.
    let secure = Secure::new(&secret()).unwrap();
    let run = rig.members[1].peers.me().1;
    let hello = |name: &str| {
        Frame::Hello(Hello {
            name: name.to_owned(),
            run,
            knew: 0,
            epoch: 0,
        })
        .write()
    };
    let asks = Frame::Asks {
        epoch: 1,
        asks: Vec::new(),
    }
    .write();
    let whole = [hello(&rig.members[1].name), vec![0, 0, 0, 9], vec![7; 9]].concat();
    let long = [hello(&rig.members[1].name), vec![0xff; 64]].concat();
    for bytes in [hello("somebody:1"), asks, whole, long] {
        let tcp = TcpStream::connect(name).await.unwrap();
        let mut stream = secure.dial(tcp, "127.0.0.1").await.unwrap();
        let _ = stream.write_all(&bytes).await;
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
    }
    let figures = rig.members[0].figures();
    assert!(
        figures.refused >= 4 && figures.bad_frames >= 2,
        "{figures:?}"
    );
    // What was said in the name of the peer ended its own connection, which is made again.
    for at in [0, 1] {
        let key = rig.keys_of(at, 2).remove(1);
        until_asked(|| async { rig.check(1 - at, &key, 10_000).await.is_ok() }).await;
    }
    for at in [0, 1] {
        assert_eq!(rig.burst(&[0, 1], &rig.keys_of(at, 1)[0], 10, 10).await, 10);
    }
}

/// A certificate of the same authority, or the secret, is not enough to be listened to.
#[tokio::test]
async fn what_a_stranger_says_of_epochs_stops_nobody() {
    let rig = Rig::of(2, |_| secret()).await;
    let secure = Secure::new(&secret()).unwrap();
    for member in &rig.members {
        let tcp = TcpStream::connect(&member.name).await.unwrap();
        let mut stream = secure.dial(tcp, "127.0.0.1").await.unwrap();
        let hello = Frame::Hello(Hello {
            name: "somebody:1".to_owned(),
            run: 7,
            knew: 0,
            epoch: u64::MAX,
        });
        stream.write_all(&hello.write()).await.unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        assert_eq!(rest, b"");
    }
    for at in [0, 1] {
        assert_eq!(rig.burst(&[0, 1], &rig.keys_of(at, 1)[0], 10, 10).await, 10);
    }
}

/// One number that does not fit would end the connection for all who ask.
#[tokio::test]
async fn what_is_too_large_harms_nobody_else() {
    let rig = Rig::of(2, |_| secret()).await;
    let key = rig.keys_of(1, 1).remove(0);
    let peers = &rig.members[0].peers;
    let charge = |law| Charge {
        key: key.clone(),
        law,
        cost: 1,
    };
    let settled = Settled {
        charge: charge(super::rig::law(10)),
        more: i64::MAX,
        mark: 0,
    };
    peers.settle(&[settled], 0).await.unwrap();
    let window = Duration::from_secs(1);
    for law in [
        Law::Fixed { limit: 0, window },
        Law::Log {
            limit: 2_000,
            window,
        },
    ] {
        let asked = peers.check(&[charge(law)], 0).await;
        assert!(matches!(asked, Err(Away::Failed(_))), "{asked:?}");
        let asked = peers.inspect(&key, law, 0).await;
        assert!(matches!(asked, Err(Away::Failed(_))), "{asked:?}");
    }
    assert!(!rig.check(0, &key, 10).await.unwrap());
    assert_eq!(rig.members[1].figures().bad_frames, 0);
}

#[tokio::test]
async fn a_frozen_peer_costs_its_deadline_a_few_times() {
    let mut rig = Rig::new().patient(Duration::from_millis(200));
    for _ in 0..2 {
        rig.add(secret()).await;
    }
    rig.publish();
    rig.settled().await;
    let key = rig.keys_of(1, 1).remove(0);
    until_asked(|| async { rig.check(0, &key, 1_000).await.is_ok() }).await;
    rig.members[1].gate.send_replace(Gate::Frozen);
    let mut late = 0;
    while !matches!(rig.check(0, &key, 1_000).await, Err(Away::Known)) {
        late += 1;
    }
    // Five failures in a row, and what was under way.
    assert!(late <= 6, "{late}");
    // From now on nearly nobody waits: a probe each fifth of a second, or longer.
    let asked = join_all((0..200).map(|_| rig.check(0, &key, 1_000))).await;
    let waited = asked
        .iter()
        .filter(|asked| !matches!(asked, Err(Away::Known)));
    assert!(waited.count() <= 2);
    rig.members[1].gate.send_replace(Gate::Open);
    until_asked(|| async { rig.check(0, &key, 1_000).await.is_ok() }).await;
}

#[test]
fn what_cannot_be_used_is_refused() {
    let short = Identity::Secret("0123456789abcde".to_owned());
    assert!(matches!(Secure::new(&short), Err(Unusable::Secret)));
    let nowhere = Identity::Certificate {
        ca: "/nowhere/ca.pem".into(),
        cert: "/nowhere/cert.pem".into(),
        key: "/nowhere/key.pem".into(),
    };
    let Err(error) = Secure::new(&nowhere) else {
        panic!()
    };
    assert_eq!(error.to_string(), "cannot use `/nowhere/ca.pem`");
}

#[tokio::test]
async fn an_owner_that_is_behind_stops_granting() {
    let node = |name: &str| Node {
        name: name.to_owned(),
        run: 1,
        weight: 1,
        revision: 1,
    };
    let (core, _moves) = Core::new("a", 1, false);
    core.stand_for(Duration::from_secs(60));
    core.see(Roll::new(5, vec![node("a")]));
    let charge = Charged {
        key: KeyId::of("k"),
        law: super::rig::law(10),
        cost: 1,
    };
    let question = Question::Check([charge].into_iter().collect());
    let b = node_id("b", 1);
    let granted = |asked| matches!(asked, Asked::Answered(Reply::Verdict(_)));
    assert!(granted(core.ask(b, 5, &question)));
    assert!(granted(core.ask(b, 3, &question)));
    // Who asks by a later one than is known here asks the right one, unless there is one later still.
    assert!(granted(core.ask(b, 7, &question)));
    // Somebody acts by a later one that is not known here. Who acts by it asks the right one.
    core.hear(9);
    assert_eq!(core.ask(b, 5, &question), Asked::Expected);
    assert_eq!(core.ask(b, 7, &question), Asked::Expected);
    assert!(granted(core.ask(b, 9, &question)));
    core.see(Roll::new(9, vec![node("b")]));
    assert_eq!(core.ask(b, 9, &question), Asked::Answered(Reply::Moved));
    // Who asks knows better again: it may be here in a moment.
    assert_eq!(core.ask(b, 11, &question), Asked::Expected);
}

fn node(name: &str, weight: u32) -> Node {
    Node {
        name: name.to_owned(),
        run: 1,
        weight,
        revision: 1,
    }
}

#[test]
fn what_was_said_before_etcd_was_restored_is_void() {
    let (core, _moves) = Core::new("a", 1, false);
    core.stand_for(Duration::from_secs(60));
    core.see(Roll::new(1_000, vec![node("a", 1), node("b", 1)]));
    core.hear(1_000);
    assert_eq!(core.is_done("b", 1, 1_000, false), Reply::Done(true));
    assert_eq!(core.ledger.places().1, 0);
    // By an older copy the other one leaves: what it counted is on its way.
    core.see(Roll::new(7, vec![node("a", 1), node("b", 0)]));
    let expected = core.ledger.places().1;
    assert!(expected > 1_000, "{expected}");
    assert_eq!(core.is_done("b", 1, 1_000, false), Reply::Later);
    assert_eq!(core.is_done("b", 1, 6, false), Reply::Done(true));
    assert_eq!(core.ledger.places().1, expected);
    assert_eq!(core.is_done("b", 1, 7, false), Reply::Done(true));
    assert_eq!(core.ledger.places(), (4_096, 0));
}

#[test]
fn a_fixed_list_waits_for_what_peers_remember() {
    let start = || {
        let (core, _moves) = Core::new("a", 5, true);
        core.see_fixed(Roll::new(
            1,
            vec![node("a", 1), node("b", 1), node("c", 1)]
                .into_iter()
                .map(|node| Node {
                    run: if node.name == "a" { 5 } else { 0 },
                    ..node
                })
                .collect(),
        ));
        core
    };
    let core = start();
    let (here, expected) = core.ledger.places();
    assert!(here == 0 && expected > 1_000, "{here} {expected}");
    core.was_known("b", 0);
    assert_eq!(core.ledger.places(), (0, expected));
    core.was_known("c", 0);
    assert_eq!(core.ledger.places(), (expected, 0));
    let key = (0..).map(|n| KeyId::of(&format!("{n}")));
    let mut mine = key.filter(|key| core.view().is_mine(key.partition()));
    let law = Law::Bucket {
        interval_us: 1e9,
        holds: 10.0,
    };
    let key = mine.next().unwrap();
    let left = |core: &Core| match core.ask(1, 1, &Question::Look(key, law)) {
        Asked::Answered(Reply::Standing(standing)) => standing.remaining,
        other => panic!("{other:?}"),
    };
    assert_eq!(left(&core), 10);
    // One of them knew another start: what that counted is lost.
    let core = start();
    core.was_known("b", 4);
    assert_eq!(core.ledger.places(), (expected, 0));
    assert_eq!(left(&core), 5);
    // What others say of epochs means nothing.
    core.hear(9);
    assert_eq!(left(&core), 5);
}

/// Limits of two owners, of which one does not answer: the other one gets back what it charged.
#[tokio::test]
async fn what_a_late_owner_stops_is_given_back() {
    let mut rig = Rig::new().patient(Duration::from_millis(200));
    for _ in 0..3 {
        rig.add(secret()).await;
    }
    rig.publish();
    rig.settled().await;
    let [late, well] = [1, 2].map(|at| rig.keys_of(at, 1).remove(0));
    let charge = |key: &String| Charge {
        key: key.clone(),
        law: super::rig::law(1_000),
        cost: 1,
    };
    let charges = [charge(&late), charge(&well)];
    let peers = &rig.members[0].peers;
    let left = || async {
        let standing = peers.inspect(&well, super::rig::law(1_000), 0).await;
        standing.map(|standing| standing.remaining)
    };
    until_asked(|| async { left().await.is_ok() }).await;
    rig.members[1].gate.send_replace(Gate::Frozen);
    for n in 0..8 {
        let asked = peers.check(&charges, 0);
        if n % 2 == 0 {
            assert!(asked.await.is_err());
        } else {
            // The client has gone.
            let _ = tokio::time::timeout(Duration::from_millis(20), asked).await;
        }
    }
    // The one that answers is not taken for one that does not.
    assert!(rig.check(0, &well, 1_000).await.unwrap());
    until_asked(|| async { matches!(left().await, Ok(999)) }).await;
}

#[tokio::test]
async fn another_start_is_not_asked_in_place_of_the_one_that_is_known() {
    let mut rig = Rig::of(2, |_| secret()).await;
    let key = rig.keys_of(1, 1).remove(0);
    rig.revision += 1;
    let mut roll = rig.roll();
    for node in &mut roll.nodes {
        if node.name == rig.members[1].name {
            node.run += 1;
        }
    }
    // The roll is ahead of the process that listens there: it is not the one that is meant.
    rig.members[0].peers.see(roll);
    until(|| rig.members[0].figures().connected == 0).await;
    assert!(matches!(rig.check(0, &key, 10).await, Err(Away::Known)));
    // It may go on asking, as one whose successor has begun. What it counted is not taken from it.
    let other = rig.keys_of(0, 1).remove(0);
    assert!(rig.check(1, &other, 10).await.unwrap());
    let (name, run) = (&*rig.members[1].name, rig.members[1].peers.me().1);
    let core = &rig.members[0].peers.core;
    let hand = |run| core.take_over((name, run), 0, core.now(), Vec::new());
    assert_eq!(
        (hand(run), hand(run + 1)),
        (Reply::Later, Reply::Done(true))
    );
    rig.publish();
    until(|| {
        rig.members
            .iter()
            .all(|member| member.figures().connected == 1)
    })
    .await;
}

#[tokio::test]
async fn who_is_off_the_roll_is_not_listened_to_any_more() {
    let mut rig = Rig::of(3, |_| secret()).await;
    rig.revision += 1;
    let mut roll = rig.roll();
    roll.nodes.retain(|node| node.name != rig.members[2].name);
    rig.members[0].peers.see(roll);
    until(|| rig.members[2].figures().connected == 1).await;
    assert_eq!(rig.members[1].figures().connected, 2);
}

#[tokio::test]
async fn connections_that_prove_nothing_leave_room_for_peers() {
    let mut rig = Rig::of(2, |_| secret()).await;
    let name = rig.members[0].name.clone();
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(TcpStream::connect(&name).await.unwrap());
    }
    let (first, rest) = silent.split_first_mut().unwrap();
    let last = rest.last_mut().unwrap();
    let (mut one, mut other) = ([0], [0]);
    // What is too much is closed at once, while the first still has time to prove itself.
    let last_ends = tokio::select! {
        _ = last.read(&mut one) => true,
        _ = first.read(&mut other) => false,
    };
    assert!(last_ends);
    for at in [0, 1] {
        assert_eq!(rig.burst(&[0, 1], &rig.keys_of(at, 1)[0], 10, 10).await, 10);
    }
    drop(silent);
    rig.add(secret()).await;
    rig.publish();
    rig.settled().await;
}

/// A client of something else that trusts the same authority.
#[tokio::test]
async fn who_does_not_speak_as_a_peer_is_refused() {
    let authority = Authority::new("spoken");
    let identity = authority.identity("a", &["127.0.0.1"]);
    let Identity::Certificate { cert, key, .. } = identity.clone() else {
        panic!()
    };
    let rig = Rig::of(1, |_| identity.clone()).await;
    let mut context = SslContext::builder(SslMethod::tls_client()).unwrap();
    context.set_certificate_chain_file(cert).unwrap();
    context.set_private_key_file(key, SslFiletype::PEM).unwrap();
    let ssl = Ssl::new(&context.build()).unwrap();
    let tcp = TcpStream::connect(&rig.members[0].name).await.unwrap();
    let mut stream = tokio_openssl::SslStream::new(ssl, tcp).unwrap();
    std::pin::Pin::new(&mut stream).connect().await.unwrap();
    let me = &rig.members[0];
    let hello = Frame::Hello(Hello {
        name: me.name.clone(),
        run: me.peers.me().1,
        knew: 0,
        epoch: 0,
    });
    let _ = stream.write_all(&hello.write()).await;
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert_eq!(rest, b"");
    until(|| rig.members[0].figures().refused == 1).await;
}

#[tokio::test]
async fn nobody_is_charged_for_what_is_not_waited_for() {
    let (core, _moves) = Core::new("a", 1, false);
    core.stand_for(Duration::from_secs(60));
    core.see(Roll::new(5, vec![node("a", 1), node("b", 0)]));
    core.hear(5);
    let key = KeyId::of("k");
    let law = super::rig::law(10);
    let charge = Charged { key, law, cost: 1 };
    let question = Question::Check([charge].into_iter().collect());
    let b = node_id("b", 1);
    assert_eq!(core.ask(b, 5, &question), Asked::Expected);
    // Its time is over when the counts come.
    let until = tokio::time::Instant::now();
    assert_eq!(core.is_done("b", 1, 5, true), Reply::Done(true));
    let late = crate::serve::wait_for(&core, (b, 5), &question, until).await;
    assert_eq!(late, Reply::Later);
    match core.ask(b, 5, &Question::Look(key, law)) {
        Asked::Answered(Reply::Standing(standing)) => assert_eq!(standing.remaining, 10),
        other => panic!("{other:?}"),
    }
}
